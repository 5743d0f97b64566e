/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A set of samples of one epoch, as a few spans [from, to): sorted, disjoint, never touching. Starts as {0}. It is of a
 * fixed size, since who reads in order makes very few of them; `full` says that one did not fit.
 */
#ifndef TSC_SPANS_H
#define TSC_SPANS_H

#include <stdbool.h>
#include <stdint.h>

#define TSC_SPANS_MAX 32

struct tsc_span {
    uint64_t from;
    uint64_t to;
};

struct tsc_spans {
    struct tsc_span items[TSC_SPANS_MAX];
    uint32_t n;
    bool full;
};

/* Adds [from, to). Returns the first part of it that was there already; an empty span if none was. */
struct tsc_span tsc_spans_add(struct tsc_spans *spans, uint64_t from, uint64_t to);

/* Takes [from, to) out. Returns how many samples of it were there. */
uint64_t tsc_spans_remove(struct tsc_spans *spans, uint64_t from, uint64_t to);

/* The first part of [from, to) that is missing; an empty span if none is. */
struct tsc_span tsc_spans_missing(const struct tsc_spans *spans, uint64_t from, uint64_t to);

#endif
