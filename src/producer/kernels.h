/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The two loops that a resize spends its time in, written for several kinds of processors. All of them give the same
 * bits: the scalar one is the reference, the tests compare the others with it.
 *
 * A weight w is a whole number, the filter's weight times 2^TSP_WEIGHT_BITS. Vector units multiply 16 bits, so each is
 * kept a second time as w = high * 2^TSP_LOW_BITS + low with 0 <= low < 2^TSP_LOW_BITS, in groups of four:
 *
 *     pairs of one pixel:   high 0..3, low 0..3 | high 4..7, low 4..7 | ...      the last group is filled up with zeros
 *
 * Both sums are exact modulo 2^32, and so is what they make together: nothing is lost by the cut. For resize.c alone.
 */
#ifndef TSP_KERNELS_H
#define TSP_KERNELS_H

#include <stddef.h>
#include <stdint.h>

enum {
    TSP_WEIGHT_BITS = 22, /* 8 of 32 bits hold the pixel, 2 the sign and what a negative lobe adds */
    TSP_LOW_BITS = 11,
    TSP_GROUP = 4,             /* weights */
    TSP_PAIRS = 2 * TSP_GROUP, /* 16-bit numbers of a group */
    TSP_SQUEEZE_ROWS = 4,      /* squeeze makes so many at once */
    TSP_SQUEEZE_PIXELS = 4,    /* squeeze makes multiples of so many */
    TSP_BEYOND = 32,           /* bytes: how far behind what they need kernels may read, and squeeze may write */
};

/* Which source pixels one destination pixel is made of. */
struct tsp_taps {
    uint32_t first;
    uint32_t count;
};

/* The weights of one direction of a resize; `taps` of as many destination pixels as a kernel is asked for. */
struct tsp_weights {
    const struct tsp_taps *taps;
    const int32_t *whole; /* max_taps by destination pixel */
    size_t max_taps;
    const int16_t *pairs; /* `step` by destination pixel, a multiple of TSP_PAIRS */
    size_t step;
};

struct tsp_kernels {
    const char *name;
    /*
     * Makes `n` RGB pixels, a multiple of TSP_SQUEEZE_PIXELS, of each row; pixel i is made of those from
     * rows[r] + 3 * taps[i].first on, to to[r] + 3 * i.
     */
    void (*squeeze)(const struct tsp_weights *weights, uint32_t n, const uint8_t *const rows[TSP_SQUEEZE_ROWS],
                    uint8_t *const to[TSP_SQUEEZE_ROWS]);
    /* Makes `n` bytes of destination row `i`, and none more, from those of the taps[i].count rows in `rows`. */
    void (*blend)(const struct tsp_weights *weights, uint32_t i, const uint8_t *const *rows, uint8_t *to, size_t n);
};

/* The fastest that this processor runs. */
const struct tsp_kernels *tsp_kernels_best(void);

/* All that this processor runs, the scalar ones first; NULL behind the last one. */
const struct tsp_kernels *tsp_kernels_at(size_t number);

#endif
