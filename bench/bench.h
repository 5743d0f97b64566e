/* SPDX-License-Identifier: Apache-2.0 */
/* What the benchmark programs share: the clock that all processes of a machine agree on, and numbers in arguments. */
#ifndef BENCH_H
#define BENCH_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BENCH_NS_PER_S INT64_C(1000000000)

/* CLOCK_MONOTONIC; Python's time.monotonic_ns() is the same. */
static inline int64_t bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * BENCH_NS_PER_S + t.tv_nsec;
}

static inline void bench_sleep_until_ns(int64_t when_ns)
{
    struct timespec t = {.tv_sec = when_ns / BENCH_NS_PER_S, .tv_nsec = when_ns % BENCH_NS_PER_S};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
        ;
}

/* The number in `text`; ends the program with status 2 where it is none within the limits. */
static inline double bench_number(const char *flag, const char *text, double low, double high)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= low && value <= high)) {
        fprintf(stderr, "--%s %s: a number from %g to %g is needed\n", flag, text, low, high);
        exit(2);
    }
    return value;
}

#endif
