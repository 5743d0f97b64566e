/* SPDX-License-Identifier: Apache-2.0 */
/*
 * --check: decodes every picture of a source once, from the first pixel to the last, and reports those that are bad.
 *
 *     threads: read -> decode all of it -> bad? a line of JSON        main thread: waits, shows how far it is
 *
 * A run for training decodes no further than the crops need: damage below them is only found here.
 */
#ifndef TSP_CHECK_H
#define TSP_CHECK_H

#include <stdio.h>

#include "decode.h"
#include "source.h"

struct tsp_check {
    const struct tsp_source *source; /* borrowed */
    struct tsp_limits limits;
    uint32_t workers;
    const char *stream; /* named in each line; NULL: not */
    FILE *out;          /* lines {"index":..,"key":..,"kind":..,"why":..}, in no order */
    /* Called by the caller's thread ten times a second; false: stop. May be NULL. */
    bool (*go_on)(void *context, uint64_t checked);
    void *context;
};

struct tsp_check_result {
    uint64_t checked; /* all, unless it was stopped */
    uint64_t bad;
    uint64_t pixels; /* of the good ones */
    uint64_t bytes;  /* of all */
    bool stopped;    /* by go_on */
};

/* False: it could not go on for a reason that is no sample's (no memory, a failing disk), with one line in `error`. */
bool tsp_check_run(const struct tsp_check *check, struct tsp_check_result *result_out, char *error, size_t len);

#endif
