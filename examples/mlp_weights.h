/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the perceptron of mlp.h and that of mlp_cuda.h have in common: how large it is, and the random weights that it
 * begins with.
 */
#ifndef MLP_WEIGHTS_H
#define MLP_WEIGHTS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum {
    MLP_HIDDEN = 128,
};

#define MLP_MOMENTUM 0.9f

/* splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014), as [-1, 1). */
static inline float mlp_random_float(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return (float)((z ^ z >> 31) >> 40) / (float)(1 << 23) - 1;
}

/* Uniform, with the variance 2 / inputs that keeps the signal's size through a layer of rectifiers (He et al.:
 * "Delving deep into rectifiers", ICCV 2015). */
static inline void mlp_fill_random(float *weights, size_t inputs, size_t outputs, uint64_t *state)
{
    float range = sqrtf(6.0f / (float)inputs);
    for (size_t i = 0; i < inputs * outputs; i++)
        weights[i] = range * mlp_random_float(state);
}

#endif
