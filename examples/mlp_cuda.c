/* SPDX-License-Identifier: Apache-2.0 */
#include "mlp_cuda.h"

#include <stdio.h>
#include <stdlib.h>

#include "mlp_weights.h"

__asm__(".section .rodata\n"
        ".globl mlp_kernels_ptx\n"
        "mlp_kernels_ptx:\n"
        ".incbin \"" MLP_KERNELS_PTX "\"\n"
        ".byte 0\n"
        ".previous\n");

enum {
    ALIGNMENT = 256, /* of each array */
};

/* ---- life ------------------------------------------------------------------------------------------------------- */

static bool find_kernels(struct mlp_cuda *m)
{
    return card_kernel(m->card, "mlp_reduce", &m->reduce) && card_kernel(m->card, "mlp_multiply", &m->multiply) &&
           card_kernel(m->card, "mlp_bias", &m->bias) && card_kernel(m->card, "mlp_score", &m->score) &&
           card_kernel(m->card, "mlp_tally", &m->sum_up) && card_kernel(m->card, "mlp_sum", &m->sum) &&
           card_kernel(m->card, "mlp_mask", &m->mask) && card_kernel(m->card, "mlp_descend", &m->descend);
}

/* The place of an array of `bytes` bytes at the end of what has been given out so far. */
static void place(uint64_t *address_out, uint64_t bytes, uint64_t *end)
{
    *address_out = *end;
    *end += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static bool reserve(struct mlp_cuda *m, uint32_t batch)
{
    const uint64_t parameters = m->n_parameters * sizeof(float), wide = batch * MLP_HIDDEN * sizeof(float);
    struct {
        uint64_t *address;
        uint64_t bytes;
    } arrays[] = {
        {&m->value, parameters},
        {&m->gradient, parameters},
        {&m->velocity, parameters},
        {&m->x, batch * MLP_INPUTS * sizeof(float)},
        {&m->hidden, wide},
        {&m->delta, wide},
        {&m->output, (uint64_t)batch * m->classes * sizeof(float)},
        {&m->losses, batch * sizeof(float)},
        {&m->hits, batch * sizeof(uint32_t)},
        {&m->labels, batch * sizeof(int64_t)},
        {&m->tally, sizeof(struct mlp_device_tally)},
    };
    uint64_t bytes = 0, end;

    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        place(&end, arrays[i].bytes, &bytes);
    if (!CARD(m->card, alloc(&m->memory, bytes)) || !CARD(m->card, fill(m->memory, 0, bytes, m->card->stream)))
        return false;
    end = m->memory;
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        place(arrays[i].address, arrays[i].bytes, &end);
    return true;
}

/* In the order of mlp.h: the hidden layer, its biases, the output layer, its biases. */
static bool begin(struct mlp_cuda *m, uint64_t seed)
{
    float *weights = calloc(m->n_parameters, sizeof(*weights));
    bool ok;

    if (weights == NULL) {
        fprintf(stderr, "trainer_cuda: no memory for the first weights\n");
        return false;
    }
    mlp_fill_random(weights, MLP_INPUTS, MLP_HIDDEN, &seed);
    mlp_fill_random(weights + (MLP_INPUTS + 1) * MLP_HIDDEN, MLP_HIDDEN, m->classes, &seed);
    ok = CARD(m->card, copy_in(m->value, weights, m->n_parameters * sizeof(*weights), m->card->stream)) &&
         CARD(m->card, stream_wait(m->card->stream));
    free(weights);
    return ok;
}

bool mlp_cuda_init(struct mlp_cuda *m, const struct card *card, uint32_t classes, uint32_t batch, uint64_t seed)
{
    *m = (struct mlp_cuda){
        .card = card,
        .classes = classes,
        .n_parameters = (MLP_INPUTS + 1) * MLP_HIDDEN + (MLP_HIDDEN + 1) * classes,
    };
    return find_kernels(m) && reserve(m, batch) && begin(m, seed);
}

void mlp_cuda_fini(struct mlp_cuda *m)
{
    if (m->memory != 0)
        m->card->dealloc(m->memory);
}

/* ---- the layers' parameters, in `value` or `gradient` ------------------------------------------------------------ */

static uint64_t hidden_bias(uint64_t parameters)
{
    return parameters + MLP_INPUTS * MLP_HIDDEN * sizeof(float);
}

static uint64_t output(uint64_t parameters)
{
    return hidden_bias(parameters) + MLP_HIDDEN * sizeof(float);
}

static uint64_t output_bias(const struct mlp_cuda *m, uint64_t parameters)
{
    return output(parameters) + (uint64_t)MLP_HIDDEN * m->classes * sizeof(float);
}

/* ---- one kernel each -------------------------------------------------------------------------------------------- */

static bool multiply(struct mlp_cuda *m, uint64_t a, uint32_t a_transposed, uint64_t b, uint32_t b_transposed,
                     uint32_t rows, uint32_t inner, uint32_t columns, uint64_t out)
{
    void *params[] = {NULL, &a, &a_transposed, &b, &b_transposed, &rows, &inner, &columns, &out};

    return card_run(m->card, m->multiply, rows * columns, params);
}

static bool add_bias(struct mlp_cuda *m, uint64_t rows, uint32_t n, uint32_t columns, uint64_t bias, uint32_t rectify)
{
    void *params[] = {NULL, &rows, &columns, &bias, &rectify};

    return card_run(m->card, m->bias, n * columns, params);
}

static bool sum_rows(struct mlp_cuda *m, uint64_t rows, uint32_t n, uint32_t columns, uint64_t out)
{
    void *params[] = {NULL, &rows, &n, &columns, &out};

    return card_run(m->card, m->sum, columns, params);
}

static bool score(struct mlp_cuda *m, uint32_t n)
{
    void *params[] = {NULL, &m->output, &m->labels, &m->classes, &m->losses, &m->hits};
    void *sums[] = {NULL, &m->losses, &m->hits, &n, &m->tally};

    return card_run(m->card, m->score, n, params) && card_run(m->card, m->sum_up, 1, sums);
}

static bool mask(struct mlp_cuda *m, uint32_t n)
{
    void *params[] = {NULL, &m->delta, &m->hidden};

    return card_run(m->card, m->mask, n * MLP_HIDDEN, params);
}

static bool descend(struct mlp_cuda *m, uint32_t n, float lr)
{
    float scale = 1 / (float)n, momentum = MLP_MOMENTUM;
    void *params[] = {NULL, &m->value, &m->velocity, &m->gradient, &scale, &momentum, &lr};

    return card_run(m->card, m->descend, m->n_parameters, params);
}

/* ---- a batch ---------------------------------------------------------------------------------------------------- */

bool mlp_cuda_take(struct mlp_cuda *m, uint32_t n, uint64_t images, uint32_t width, uint32_t height, uint64_t labels)
{
    void *params[] = {NULL, &images, &width, &height, &m->x};

    return card_run(m->card, m->reduce, n * MLP_INPUTS, params) &&
           CARD(m->card, copy(m->labels, labels, n * sizeof(int64_t), m->card->stream));
}

static bool forward(struct mlp_cuda *m, uint32_t n)
{
    return multiply(m, m->x, 0, m->value, 0, n, MLP_INPUTS, MLP_HIDDEN, m->hidden) &&
           add_bias(m, m->hidden, n, MLP_HIDDEN, hidden_bias(m->value), 1) &&
           multiply(m, m->hidden, 0, output(m->value), 0, n, MLP_HIDDEN, m->classes, m->output) &&
           add_bias(m, m->output, n, m->classes, output_bias(m, m->value), 0);
}

/* m->output, the derivative by the scores, to m->gradient. */
static bool backward(struct mlp_cuda *m, uint32_t n)
{
    return multiply(m, m->hidden, 1, m->output, 0, MLP_HIDDEN, n, m->classes, output(m->gradient)) &&
           sum_rows(m, m->output, n, m->classes, output_bias(m, m->gradient)) &&
           multiply(m, m->output, 0, output(m->value), 1, n, m->classes, MLP_HIDDEN, m->delta) && mask(m, n) &&
           multiply(m, m->x, 1, m->delta, 0, MLP_INPUTS, n, MLP_HIDDEN, m->gradient) &&
           sum_rows(m, m->delta, n, MLP_HIDDEN, hidden_bias(m->gradient));
}

bool mlp_cuda_train(struct mlp_cuda *m, uint32_t n, float lr)
{
    return forward(m, n) && score(m, n) && backward(m, n) && descend(m, n, lr);
}

bool mlp_cuda_tally(struct mlp_cuda *m, struct mlp_device_tally *tally_out)
{
    return CARD(m->card, copy_out(tally_out, m->tally, sizeof(*tally_out), m->card->stream)) &&
           CARD(m->card, fill(m->tally, 0, sizeof(*tally_out), m->card->stream)) &&
           CARD(m->card, stream_wait(m->card->stream));
}
