/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream as the runs of a ledger tell it: how long its epochs were, and which ranks completed them. Runs of one name,
 * data, recipe and seed are one stream, whose facts stand in the first of them (`same`).
 */
#ifndef TSC_LEDGER_STREAM_H
#define TSC_LEDGER_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "findings.h"

#define TSC_TO_THE_END UINT64_MAX

/* The lengths of a stream's epochs, by epoch. */
struct tsc_length {
    uint64_t epoch;
    uint64_t len;
};

/* A rank has completed an epoch. */
struct tsc_share {
    uint64_t epoch;
    uint64_t first; /* place from which its windows were counted */
    uint32_t batch;
    uint32_t rank;
    uint32_t world;
};

struct tsc_stream {
    char *name;
    char *dataset; /* may be empty, as the next */
    char *recipe;
    uint64_t seed;
    bool resident;              /* every epoch is epoch 0 again */
    struct tsc_length *lengths; /* by epoch, rising; of the first one (`same`) only, for all */
    size_t n_lengths;
    size_t lengths_room;
    struct tsc_stream *same;  /* the first one of this name, data, recipe and seed, in an earlier run; or itself */
    struct tsc_share *shares; /* of that one only */
    size_t n_shares;
    size_t shares_room;
    struct tsc_stream *next;
};

/* The epoch's length; TSC_TO_THE_END where it is not recorded. */
uint64_t tsc_stream_length(const struct tsc_stream *stream, uint64_t epoch);

/* Records it. One that is known already must be the same, or is a finding. */
void tsc_stream_set_length(struct tsc_stream *stream, uint64_t epoch, uint64_t len, struct tsc_findings *findings);

/* The first of the lengths, of the first stream of its kind, that is of that epoch or a later one. */
size_t tsc_stream_length_from(const struct tsc_stream *stream, uint64_t epoch);

/* Records that a rank has completed an epoch. */
void tsc_stream_add_share(struct tsc_stream *stream, const struct tsc_share *share, struct tsc_findings *findings);

void tsc_stream_destroy(struct tsc_stream *stream);

#endif
