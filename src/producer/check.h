/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --check: decodes every picture of a source once, from the first pixel to the last, reports those that are bad and
 * sums up the others.
 *
 *     threads: read -> decode all of it -> bad: a line | good: measured       main thread: waits, shows how far it is
 *
 * A run for training decodes no further than the crops need: damage below them is only found here.
 */
#ifndef TSP_CHECK_H
#define TSP_CHECK_H

#include <stdio.h>

#include "decode.h"
#include "source.h"
#include "summary.h"

struct tsp_check {
    const struct tsp_source *source; /* borrowed */
    struct tsp_limits limits;
    uint32_t workers;
    const char *stream; /* named in each line; NULL: not */
    FILE *out;          /* a line for each bad one, in no order */
    bool json;          /* lines {"index":..,"key":..,"kind":..,"why":..}; else KIND KEY: WHY */
    const char *erase;  /* goes before each line: takes a live line away; NULL: nothing */
    /* Called by the caller's thread ten times a second; false: stop. May be NULL. */
    bool (*go_on)(void *context, uint64_t checked);
    void *context;
};

struct tsp_check_result {
    uint64_t checked; /* all, unless it was stopped */
    uint64_t bad;
    uint64_t kinds[TSP_BAD_COUNT]; /* of the bad ones, by enum tsp_bad */
    uint64_t *bad_samples;         /* their numbers, rising; the caller's to free */
    uint64_t bytes;                /* of all */
    struct tsp_summary summary;    /* of the good ones */
    double seconds;
    bool stopped; /* by go_on */
};

/* False: it could not go on for a reason that is no sample's (no memory, a failing disk), with one line in `error`. */
bool tsp_check_run(const struct tsp_check *check, struct tsp_check_result *result_out, char *error, size_t len);

/* The end of the report, where and as its lines were: what all of it came to. */
void tsp_check_print(const struct tsp_check *check, const struct tsp_check_result *result);

#endif
