/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random numbers that are a pure function of what they are for: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel
 * random numbers: as easy as 1, 2, 3", SC 2011), keyed by the seed, counted by epoch, sample, view, operation and draw.
 * No thread, batch or order can change them.
 */
#ifndef TSP_RANDOM_H
#define TSP_RANDOM_H

#include <stdint.h>

/* What a draw is for; part of the key, so that adding one never shifts another. Never renumber. */
enum tsp_random_op {
    TSP_RANDOM_ORDER = 1,
    TSP_RANDOM_CROP = 2,
    TSP_RANDOM_FLIP = 3,
    TSP_RANDOM_SYNTHETIC = 4,
};

struct tsp_random {
    uint32_t key[2];
    uint32_t counter[4];
    uint32_t block[4]; /* four draws made at once */
    uint32_t used;     /* of these */
};

/* The function itself: four random words from a counter and a key. */
void tsp_random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t block_out[4]);

/* sample < 2^48, view < 2^16; epoch counts modulo 2^32. */
void tsp_random_init(struct tsp_random *random, uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t view,
                     enum tsp_random_op op);

uint32_t tsp_random_u32(struct tsp_random *random);
uint64_t tsp_random_u64(struct tsp_random *random);
double tsp_random_uniform(struct tsp_random *random, double low, double high); /* in [low, high) */
uint64_t tsp_random_below(struct tsp_random *random, uint64_t bound);          /* in [0, bound), unbiased; bound > 0 */

/*
 * A bijection of 64-bit numbers in which every bit of the result depends on every bit of the argument (the finaliser of
 * SplitMix64: Steele, Lea, Flood, OOPSLA 2014). For where a Philox block per number costs too much: mix a Philox key
 * with a counter.
 */
static inline uint64_t tsp_random_mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

#endif
