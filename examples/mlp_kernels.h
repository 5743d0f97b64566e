/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of a perceptron (mlp.h says which), one result at a time: what thread i of each kernel computes. For
 * both compilers, the device's and the host's. Matrices are row-major.
 */
#ifndef MLP_KERNELS_H
#define MLP_KERNELS_H

#ifdef __CUDA__ /* compiled without any header of the toolkit */
typedef unsigned char uint8_t;
typedef unsigned uint32_t;
typedef long int64_t;
typedef unsigned long uint64_t;
#define MLP_FUNCTION static inline __attribute__((device))
#else
#include <math.h>
#include <stdint.h>
#define MLP_FUNCTION static inline
#endif

enum {
    MLP_SIDE = 32, /* of the reduced image */
    MLP_CHANNELS = 3,
    MLP_INPUTS = MLP_SIDE * MLP_SIDE * MLP_CHANNELS,
};

/* What one or more batches came to. */
struct mlp_device_tally {
    uint64_t samples;
    uint64_t correct;
    uint64_t strangers; /* with a label that is no class */
    double loss;        /* sum over the samples */
};

#ifdef __CUDA__
MLP_FUNCTION float mlp_exp(float x)
{
    return __nvvm_ex2_approx_f(x * 1.44269504f);
}

MLP_FUNCTION float mlp_log(float x)
{
    return __nvvm_lg2_approx_f(x) * 0.69314718f;
}
#else
MLP_FUNCTION float mlp_exp(float x)
{
    return expf(x);
}

MLP_FUNCTION float mlp_log(float x)
{
    return logf(x);
}
#endif

/* The part of `len` pixels that pixel i of MLP_SIDE stands for; repeats pixels where there are fewer. */
MLP_FUNCTION uint32_t mlp_begin(uint32_t i, uint32_t len)
{
    return i * len / MLP_SIDE;
}

MLP_FUNCTION uint32_t mlp_end(uint32_t i, uint32_t len)
{
    uint32_t begin = mlp_begin(i, len), end = mlp_begin(i + 1, len);

    return end > begin ? end : begin + 1;
}

/* i counts the inputs of all samples: the mean of a box of one channel of an image of bytes, as -1 to 1. */
MLP_FUNCTION void mlp_reduce_one(uint32_t i, const uint8_t *images, uint32_t width, uint32_t height, float *x)
{
    uint32_t pixel = i % MLP_INPUTS / MLP_CHANNELS, channel = i % MLP_CHANNELS, sum = 0;
    uint32_t from_x = mlp_begin(pixel % MLP_SIDE, width), to_x = mlp_end(pixel % MLP_SIDE, width);
    uint32_t from_y = mlp_begin(pixel / MLP_SIDE, height), to_y = mlp_end(pixel / MLP_SIDE, height);
    const uint8_t *image = images + (uint64_t)(i / MLP_INPUTS) * width * height * MLP_CHANNELS;

    for (uint32_t at_y = from_y; at_y < to_y; at_y++)
        for (uint32_t at_x = from_x; at_x < to_x; at_x++)
            sum += image[((uint64_t)at_y * width + at_x) * MLP_CHANNELS + channel];
    x[i] = (float)sum / (float)((to_x - from_x) * (to_y - from_y)) / 127.5f - 1;
}

/* out = a b, of rows x inner and inner x columns, either of them transposed in memory. */
MLP_FUNCTION void mlp_multiply_one(uint32_t i, const float *a, uint32_t a_transposed, const float *b,
                                   uint32_t b_transposed, uint32_t rows, uint32_t inner, uint32_t columns, float *out)
{
    uint32_t row = i / columns, column = i % columns;
    uint64_t a_at = a_transposed ? row : (uint64_t)row * inner, a_step = a_transposed ? rows : 1;
    uint64_t b_at = b_transposed ? (uint64_t)column * inner : column, b_step = b_transposed ? 1 : columns;
    float sum = 0;

    for (uint32_t k = 0; k < inner; k++)
        sum += a[a_at + k * a_step] * b[b_at + k * b_step];
    out[i] = sum;
}

MLP_FUNCTION void mlp_bias_one(uint32_t i, float *rows, uint32_t columns, const float *bias, uint32_t rectify)
{
    float value = rows[i] + bias[i % columns];

    rows[i] = rectify && value < 0 ? 0 : value;
}

/* Scores of sample i become the derivative of its loss by them: softmax minus 1 at the label. */
MLP_FUNCTION void mlp_score_one(uint32_t i, float *scores, const int64_t *labels, uint32_t classes, float *losses,
                                uint32_t *hits)
{
    float *score = scores + (uint64_t)i * classes, top, sum = 0;
    uint32_t best = 0, label = (uint32_t)labels[i], stranger = labels[i] < 0 || labels[i] >= classes;

    for (uint32_t c = 1; c < classes; c++)
        best = score[c] > score[best] ? c : best;
    top = score[best];
    for (uint32_t c = 0; c < classes; c++) {
        score[c] = mlp_exp(score[c] - top);
        sum += score[c];
    }
    for (uint32_t c = 0; c < classes; c++)
        score[c] = stranger ? 0 : score[c] / sum;
    hits[i] = stranger ? 2 : best == label;
    losses[i] = 0;
    if (stranger)
        return;
    losses[i] = -mlp_log(score[label] > 1e-30f ? score[label] : 1e-30f);
    score[label] -= 1;
}

/* Of all samples, by one thread: they are few. */
MLP_FUNCTION void mlp_tally_all(const float *losses, const uint32_t *hits, uint32_t n, struct mlp_device_tally *tally)
{
    for (uint32_t i = 0; i < n; i++) {
        tally->loss += (double)losses[i];
        tally->correct += hits[i] == 1;
        tally->strangers += hits[i] == 2;
    }
    tally->samples += n;
}

MLP_FUNCTION void mlp_sum_one(uint32_t i, const float *rows, uint32_t n, uint32_t columns, float *out)
{
    float sum = 0;

    for (uint32_t row = 0; row < n; row++)
        sum += rows[(uint64_t)row * columns + i];
    out[i] = sum;
}

/* What the rectifier held back learns nothing. */
MLP_FUNCTION void mlp_mask_one(uint32_t i, float *delta, const float *hidden)
{
    if (hidden[i] <= 0)
        delta[i] = 0;
}

MLP_FUNCTION void mlp_descend_one(uint32_t i, float *value, float *velocity, const float *gradient, float scale,
                                  float momentum, float lr)
{
    velocity[i] = momentum * velocity[i] + gradient[i] * scale;
    value[i] -= lr * velocity[i];
}

#endif
