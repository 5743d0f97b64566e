/* SPDX-License-Identifier: Apache-2.0 */
/* The order: which sample comes at which place of an epoch. A pure function; no table, no state. */
#ifndef TSP_ORDER_H
#define TSP_ORDER_H

#include <stdbool.h>
#include <stdint.h>

struct tsp_order {
    uint64_t count; /* samples, at least 1 */
    uint64_t seed;
    bool shuffle; /* false: place i holds sample i */
};

/* The sample at place `ordinal` < count of `epoch`. For every (seed, epoch) a permutation of 0 .. count - 1. */
uint64_t tsp_order_at(const struct tsp_order *order, uint64_t epoch, uint64_t ordinal);

#endif
