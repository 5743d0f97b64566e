/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How often something happens, against a limit: so many in any one second that begins with the first of them. Starts as
 * {0}; the time is passed in.
 */
#ifndef TSP_RATE_H
#define TSP_RATE_H

#include <stdbool.h>
#include <stdint.h>

struct tsp_rate {
    uint64_t since_ns;
    uint32_t n; /* since then */
};

/* It has happened once more. True: for more than `limit` times in this second. */
bool tsp_rate_exceeds(struct tsp_rate *rate, uint32_t limit, uint64_t now_ns);

#endif
