/* SPDX-License-Identifier: Apache-2.0 */
#include "rate.h"

#include "../ipc/clock.h"

bool tsp_rate_exceeds(struct tsp_rate *rate, uint32_t limit, uint64_t now_ns)
{
    if (rate->n == 0 || now_ns - rate->since_ns >= TSI_NS_PER_S)
        *rate = (struct tsp_rate){.since_ns = now_ns};
    if (rate->n <= limit)
        rate->n++;
    return rate->n > limit;
}
