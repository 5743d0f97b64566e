/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What one attachment read, as the records of a ledger tell it.
 *
 *     place --> stretches: [600, end) of epoch 2, then [0, 600) of it, then epoch 3 from 0 ...
 *                  |
 *     released: walks along them; what it passes is `passed`, and must not have been passed before
 *                  |
 *     at an epoch's end: passed must be the whole epoch
 *
 *     owed, again: windows that it held and lost stand beside this walk; each must have come again in the end
 *
 * Releases are cumulative, so they come in the order of the stretches. A sample is passed by being released, by being
 * skipped (which is a finding), or before this attachment, where it came with a token.
 */
#ifndef TSC_READING_H
#define TSC_READING_H

#include <tsocket/tsocket.h>

#include "findings.h"
#include "debts.h"
#include "ledger_stream.h"
#include "spans.h"

#define TSC_STRETCHES_MAX 32

/* One trainer: an attachment, and those that went on where it had ended. */
struct tsc_consumer {
    const char *name; /* these two are the first stream's and attachment's */
    const char *stream;
    uint32_t rank;
    uint32_t world;
    uint64_t attachments;
    uint64_t epochs;     /* completed */
    uint64_t next_epoch; /* all before it are, or were not begun */
    uint64_t samples;    /* released, of its own windows */
    uint64_t again;      /* of these, what it had released before it came back with an older token */
    uint64_t by_token;   /* not released, but its token says that it had them */
    uint64_t dropped;    /* tails that it asked not to get */
    uint64_t skipped;
    uint64_t lost;     /* written over while it held them, and owed to it once more */
    uint64_t parked;   /* times */
    const char *state; /* how its last attachment ended */
    struct tsc_consumer *next;
};

struct tsc_stretch {
    uint64_t epoch;
    uint64_t begin; /* windows of ranks are counted from here */
    uint64_t pos;   /* released up to here */
    uint64_t until; /* TSC_TO_THE_END: the epoch's end */
};

struct tsc_reading {
    /* constant */
    uint64_t id;
    char *name;
    struct tsc_stream *stream;
    struct tsc_consumer *who;
    int32_t pid;
    uint32_t batch;
    uint32_t rank;
    uint32_t world;
    enum tsocket_last last;
    enum tsocket_join join;
    bool resumed;

    bool placed;
    bool carried; /* it goes on in an epoch that the attachment before had begun */
    bool ended;
    bool left;      /* it ended by itself, in order */
    bool continued; /* another attachment went on from here */
    bool vouched;   /* what no stretch of this epoch names it had before: its token says so, and no record tells more */
    bool stands;    /* it was placed at `stand`, in an epoch of which it had had all: it is not to release any of it */
    struct tsc_length stand;
    uint64_t first; /* where it began in this epoch */
    uint64_t told;  /* its token's place in this epoch: of one that lost samples, it may lie behind the end */
    uint64_t late;  /* where it joined in the middle as it wanted: what lies before is not its; else 0 */
    struct tsc_stretch stretches[TSC_STRETCHES_MAX]; /* the first is where it reads; never none once placed */
    uint32_t n_stretches;
    struct tsc_spans passed; /* of the epoch of the first stretch */
    struct tsc_debts owed;   /* whoever goes on from here begins without: its token vouches, or it says it anew */
    struct tsc_reading *next;
};

/* The records. Findings go to `findings`. */
void tsc_reading_place(struct tsc_reading *reading, uint64_t epoch, uint64_t index, uint64_t until,
                       struct tsc_findings *findings);
void tsc_reading_released(struct tsc_reading *reading, uint64_t epoch, uint64_t index, struct tsc_findings *findings);
void tsc_reading_skipped(struct tsc_reading *reading, uint64_t epoch, uint64_t from, uint64_t to,
                         struct tsc_findings *findings);

/* It has lost [from, to) while it held it; and has got it again. */
void tsc_reading_owed(struct tsc_reading *reading, const struct tsc_debt *window, struct tsc_findings *findings);
void tsc_reading_again(struct tsc_reading *reading, const struct tsc_debt *window, struct tsc_findings *findings);

/* Nothing more is said of it, and nobody went on from here: epochs of which it is still owed some are not complete. */
void tsc_reading_settle(const struct tsc_reading *reading, struct tsc_findings *findings);

/* It goes on, at that place, where `before` had ended: before the first place. */
void tsc_reading_continue(struct tsc_reading *reading, struct tsc_reading *before, uint64_t epoch, uint64_t index,
                          struct tsc_findings *findings);

/* It has ended: an epoch of which nothing is left is completed. */
void tsc_reading_end(struct tsc_reading *reading, struct tsc_findings *findings);

/* Where it reads; only once it has a place. */
uint64_t tsc_reading_epoch(const struct tsc_reading *reading);
uint64_t tsc_reading_index(const struct tsc_reading *reading);

/* Whether it has begun an epoch and not completed it. */
bool tsc_reading_in_the_middle(const struct tsc_reading *reading);

void tsc_reading_destroy(struct tsc_reading *reading);

#endif
