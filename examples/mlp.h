/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A perceptron with one hidden layer of rectifiers, trained by stochastic gradient descent with momentum on the softmax
 * cross-entropy: what the example trainer trains. Matrix products are OpenBLAS's, on the calling thread alone.
 *
 *     x, label filled by the caller --mlp_train--> weights one step further, loss and hits added to the tally
 *                                   --mlp_evaluate--> the same without the step
 */
#ifndef MLP_H
#define MLP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One number for every weight and bias; the matrices are row-major, one row per input of the layer. */
struct mlp_parameters {
    float *all; /* what follows, as one array */
    float *hidden, *hidden_bias;
    float *output, *output_bias;
};

struct mlp {
    size_t inputs;
    size_t classes;
    size_t n_parameters;
    struct mlp_parameters value, gradient, velocity;
    float *x;      /* batch x inputs; the caller fills it */
    size_t *label; /* batch, each < classes; the caller fills it */
    float *hidden; /* batch x hidden units */
    float *delta;  /* batch x hidden units, the loss's derivative by the hidden layer */
    float *output; /* batch x classes: scores, then the loss's derivative by them */
};

/* What one or more batches came to. */
struct mlp_tally {
    uint64_t samples;
    uint64_t correct;
    double loss; /* sum over the samples */
};

/* Random weights by `seed`, room for `batch` samples. False: no memory. *m is for mlp_fini in any case. */
bool mlp_init(struct mlp *m, size_t inputs, size_t classes, size_t batch, uint64_t seed);
void mlp_fini(struct mlp *m);

/* The first `n` rows of x and label, 1 <= n <= batch; adds to *tally. */
void mlp_train(struct mlp *m, size_t n, float lr, struct mlp_tally *tally);
void mlp_evaluate(struct mlp *m, size_t n, struct mlp_tally *tally);

#endif
