/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The swap-or-not shuffle (Hoang, Morris, Rogaway: "An enciphering scheme based on a card shuffle", CRYPTO 2012).
 *
 * A round has a random number K and pairs every place x with K - x (mod count). A random bit of the pair says whether
 * its two members change places. Whatever the bits are, a round is a permutation, and so are all of them together; one
 * place is followed through the rounds without a look at the others.
 */
#include "order.h"

#include "random.h"

/*
 * The paper bounds what an observer of q of n places can tell from a perfect shuffle by
 * 2 n^1.5 / (r + 2) * ((q + n) / 2n)^(r/2 + 1) after r rounds. For half of 1.3 million places that is 0.002 with the
 * number below, and falls by a quarter every two rounds. The constant part is for small counts, where the bound says
 * little: with 5 places all 120 orders come equally often.
 */
static uint32_t rounds_for(uint64_t count)
{
    uint32_t bits = 0;
    while (count >> bits != 0)
        bits++;
    return 32 + 6 * bits;
}

/* A number below `count` from 64 random bits, as good as unbiased: counts are far below 2^64. */
static uint64_t scale_to(uint64_t random, uint64_t count)
{
    __extension__ typedef unsigned __int128 uint128;
    return (uint64_t)(((uint128)random * count) >> 64);
}

uint64_t tsp_order_at(const struct tsp_order *order, uint64_t epoch, uint64_t ordinal)
{
    if (!order->shuffle)
        return ordinal;
    struct tsp_random random;
    tsp_random_init(&random, order->seed, epoch, 0, 0, TSP_RANDOM_ORDER);
    uint64_t pairing = tsp_random_u64(&random);
    uint64_t swapping = tsp_random_u64(&random);

    uint64_t x = ordinal;
    uint32_t rounds = rounds_for(order->count);
    for (uint32_t round = 0; round < rounds; round++) {
        pairing += UINT64_C(0x9e3779b97f4a7c15); /* odd and without pattern: all rounds' numbers differ in many bits */
        swapping += UINT64_C(0x9e3779b97f4a7c15);
        uint64_t k = scale_to(tsp_random_mix(pairing), order->count);
        uint64_t partner = k >= x ? k - x : k + order->count - x;
        uint64_t pair = x > partner ? x : partner; /* the same number seen from both */
        if (tsp_random_mix(tsp_random_mix(swapping) + pair) >> 63)
            x = partner;
    }
    return x;
}
