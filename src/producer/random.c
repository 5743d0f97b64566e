/* SPDX-License-Identifier: Apache-2.0 */
#include "random.h"

enum {
    PHILOX_ROUNDS = 10,
    BLOCK_WORDS = 4,
};

void tsp_random_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t block_out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t p0 = UINT64_C(0xD2511F53) * c0;
        uint64_t p1 = UINT64_C(0xCD9E8D57) * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    block_out[0] = c0;
    block_out[1] = c1;
    block_out[2] = c2;
    block_out[3] = c3;
}

/* The counter, from its low end: 24 bits of block number, 8 of operation, 32 of epoch, 48 of sample, 16 of view. */
void tsp_random_init(struct tsp_random *random, uint64_t seed, uint64_t epoch, uint64_t sample, uint32_t view,
                     enum tsp_random_op op)
{
    *random = (struct tsp_random){
        .key = {(uint32_t)seed, (uint32_t)(seed >> 32)},
        .counter = {(uint32_t)op << 24, (uint32_t)epoch, (uint32_t)sample,
                    (uint32_t)((sample >> 32) & 0xffff) | view << 16},
        .used = BLOCK_WORDS,
    };
}

uint32_t tsp_random_u32(struct tsp_random *random)
{
    if (random->used == BLOCK_WORDS) {
        tsp_random_philox(random->counter, random->key, random->block);
        random->counter[0]++;
        random->used = 0;
    }
    return random->block[random->used++];
}

uint64_t tsp_random_u64(struct tsp_random *random)
{
    uint64_t low = tsp_random_u32(random);
    return low | (uint64_t)tsp_random_u32(random) << 32;
}

double tsp_random_uniform(struct tsp_random *random, double low, double high)
{
    double value = low + (high - low) * ((double)(tsp_random_u64(random) >> 11) * 0x1p-53);
    return value < high ? value : low; /* rounding may reach `high` */
}

uint64_t tsp_random_below(struct tsp_random *random, uint64_t bound)
{
    uint64_t surplus = (UINT64_MAX - bound + 1) % bound; /* 2^64 mod bound: as many values are refused */
    uint64_t value;
    do
        value = tsp_random_u64(random);
    while (value < surplus);
    return value % bound;
}
