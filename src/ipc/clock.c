/* SPDX-License-Identifier: Apache-2.0 */
#include "clock.h"

#include <limits.h>
#include <time.h>

uint64_t tsi_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * TSI_NS_PER_S + (uint64_t)now.tv_nsec;
}

uint64_t tsi_clock_deadline(uint64_t now_ns, int timeout_ms)
{
    return timeout_ms < 0 ? UINT64_MAX : now_ns + (uint64_t)timeout_ms * TSI_NS_PER_MS;
}

int tsi_clock_left_ms(uint64_t now_ns, uint64_t deadline_ns)
{
    uint64_t left_ms;

    if (deadline_ns == UINT64_MAX)
        return -1;
    if (deadline_ns <= now_ns)
        return 0;
    left_ms = (deadline_ns - now_ns + TSI_NS_PER_MS - 1) / TSI_NS_PER_MS;
    return left_ms > INT_MAX ? INT_MAX : (int)left_ms;
}
