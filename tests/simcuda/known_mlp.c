/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of examples/mlp_kernels.cu, as in known.c. */
#include "sim.h"

#include "examples/mlp_kernels.h"

static uint32_t number_of(const struct simcuda_launch *launch, unsigned param)
{
    return *(const uint32_t *)launch->params[param];
}

static float float_of(const struct simcuda_launch *launch, unsigned param)
{
    return *(const float *)launch->params[param];
}

/* `count` elements behind an address. */
static void *array(struct simcuda_launch *launch, unsigned param, uint64_t count, size_t bytes, bool write)
{
    return simcuda_at(launch, *(const uint64_t *)launch->params[param], count * bytes, write);
}

static void reduce(struct simcuda_launch *launch)
{
    uint32_t count = number_of(launch, 0), width = number_of(launch, 2), height = number_of(launch, 3);
    const uint8_t *images = array(launch, 1, (uint64_t)count / MLP_INPUTS * width * height * MLP_CHANNELS, 1, false);
    float *x = array(launch, 4, count, sizeof(*x), true);

    for (uint32_t i = 0; images != NULL && x != NULL && i < count; i++)
        mlp_reduce_one(i, images, width, height, x);
}

static void multiply(struct simcuda_launch *launch)
{
    uint32_t count = number_of(launch, 0), rows = number_of(launch, 5), inner = number_of(launch, 6);
    uint32_t columns = number_of(launch, 7);
    const float *a = array(launch, 1, (uint64_t)rows * inner, sizeof(*a), false);
    const float *b = array(launch, 3, (uint64_t)inner * columns, sizeof(*b), false);
    float *out = array(launch, 8, count, sizeof(*out), true);

    for (uint32_t i = 0; a != NULL && b != NULL && out != NULL && i < count; i++)
        mlp_multiply_one(i, a, number_of(launch, 2), b, number_of(launch, 4), rows, inner, columns, out);
}

static void add_bias(struct simcuda_launch *launch)
{
    uint32_t count = number_of(launch, 0), columns = number_of(launch, 2);
    float *rows = array(launch, 1, count, sizeof(*rows), true);
    const float *bias = array(launch, 3, columns, sizeof(*bias), false);

    for (uint32_t i = 0; rows != NULL && bias != NULL && i < count; i++)
        mlp_bias_one(i, rows, columns, bias, number_of(launch, 4));
}

static void score(struct simcuda_launch *launch)
{
    uint32_t count = number_of(launch, 0), classes = number_of(launch, 3);
    float *scores = array(launch, 1, (uint64_t)count * classes, sizeof(*scores), true);
    const int64_t *labels = array(launch, 2, count, sizeof(*labels), false);
    float *losses = array(launch, 4, count, sizeof(*losses), true);
    uint32_t *hits = array(launch, 5, count, sizeof(*hits), true);

    for (uint32_t i = 0; scores != NULL && labels != NULL && losses != NULL && hits != NULL && i < count; i++)
        mlp_score_one(i, scores, labels, classes, losses, hits);
}

static void tally(struct simcuda_launch *launch)
{
    uint32_t n = number_of(launch, 3);
    const float *losses = array(launch, 1, n, sizeof(*losses), false);
    const uint32_t *hits = array(launch, 2, n, sizeof(*hits), false);
    struct mlp_device_tally *out = array(launch, 4, 1, sizeof(*out), true);

    if (losses != NULL && hits != NULL && out != NULL)
        mlp_tally_all(losses, hits, n, out);
}

static void sum_rows(struct simcuda_launch *launch)
{
    uint32_t columns = number_of(launch, 0), n = number_of(launch, 2);
    const float *rows = array(launch, 1, (uint64_t)n * columns, sizeof(*rows), false);
    float *out = array(launch, 4, columns, sizeof(*out), true);

    for (uint32_t i = 0; rows != NULL && out != NULL && i < columns; i++)
        mlp_sum_one(i, rows, n, columns, out);
}

static void mask(struct simcuda_launch *launch)
{
    uint32_t count = number_of(launch, 0);
    float *delta = array(launch, 1, count, sizeof(*delta), true);
    const float *hidden = array(launch, 2, count, sizeof(*hidden), false);

    for (uint32_t i = 0; delta != NULL && hidden != NULL && i < count; i++)
        mlp_mask_one(i, delta, hidden);
}

static void descend(struct simcuda_launch *launch)
{
    uint32_t count = number_of(launch, 0);
    float *value = array(launch, 1, count, sizeof(*value), true);
    float *velocity = array(launch, 2, count, sizeof(*velocity), true);
    const float *gradient = array(launch, 3, count, sizeof(*gradient), false);

    for (uint32_t i = 0; value != NULL && velocity != NULL && gradient != NULL && i < count; i++)
        mlp_descend_one(i, value, velocity, gradient, float_of(launch, 4), float_of(launch, 5), float_of(launch, 6));
}

static __attribute__((constructor)) void register_all(void)
{
    simcuda_register("mlp_reduce", reduce, 5, (const size_t[]){4, 8, 4, 4, 8});
    simcuda_register("mlp_multiply", multiply, 9, (const size_t[]){4, 8, 4, 8, 4, 4, 4, 4, 8});
    simcuda_register("mlp_bias", add_bias, 5, (const size_t[]){4, 8, 4, 8, 4});
    simcuda_register("mlp_score", score, 6, (const size_t[]){4, 8, 8, 4, 8, 8});
    simcuda_register("mlp_tally", tally, 5, (const size_t[]){4, 8, 8, 4, 8});
    simcuda_register("mlp_sum", sum_rows, 5, (const size_t[]){4, 8, 4, 4, 8});
    simcuda_register("mlp_mask", mask, 3, (const size_t[]){4, 8, 8});
    simcuda_register("mlp_descend", descend, 7, (const size_t[]){4, 8, 8, 8, 4, 4, 4});
}
