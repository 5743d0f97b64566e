/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The perceptron of mlp.h, trained on a GPU: the same weights to begin with, the same steps, up to rounding. All of it
 * is queued on the card's stream; nothing here waits but mlp_cuda_tally.
 *
 *     mlp_cuda_take: images and labels of a batch become the model's input --> the batch may be given back behind that
 *     mlp_cuda_train: weights one step further, loss and hits added to a tally on the device
 */
#ifndef MLP_CUDA_H
#define MLP_CUDA_H

#include "card.h"
#include "mlp_kernels.h"

struct mlp_cuda {
    const struct card *card;
    uint32_t classes;
    uint32_t n_parameters;
    uint64_t memory; /* of the device: what follows, one behind the other */
    uint64_t value, gradient, velocity;
    uint64_t x, hidden, delta, output, losses;
    uint64_t hits, labels, tally;
    void *reduce, *multiply, *bias, *score, *sum_up, *sum, *mask, *descend; /* kernels */
};

extern const char mlp_kernels_ptx[];

/* Random weights by `seed`, room for `batch` samples. mlp_cuda_fini is due in any case. */
bool mlp_cuda_init(struct mlp_cuda *m, const struct card *card, uint32_t classes, uint32_t batch, uint64_t seed);
void mlp_cuda_fini(struct mlp_cuda *m);

/* `n` images of bytes, [height, width, 3] each, and as many int64 labels, at addresses of the device. */
bool mlp_cuda_take(struct mlp_cuda *m, uint32_t n, uint64_t images, uint32_t width, uint32_t height, uint64_t labels);

bool mlp_cuda_train(struct mlp_cuda *m, uint32_t n, float lr);

/* Waits for all that is queued; what the batches since the last call came to. */
bool mlp_cuda_tally(struct mlp_cuda *m, struct mlp_device_tally *tally_out);

#endif
