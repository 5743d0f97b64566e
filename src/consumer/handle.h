/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a handle: one attached consumer and its place in the stream. open.c makes and ends it, consumer.c
 * walks.
 *
 * With a shard, rank r of W reads the windows [start + skip + (k W + r) b, + b) for k = 0, 1, ... of every epoch; alone
 * it is the same with W = 1. Used by one thread at a time, the caller's.
 */
#ifndef TSC_HANDLE_H
#define TSC_HANDLE_H

#include <tsocket/tsocket.h>

#include "../ipc/control.h"
#include "attach.h"
#include "fork.h"
#include "held.h"

struct tsocket {
    struct tsc_attachment attachment;
    struct tsc_fork_guard guard;
    const struct tsi_control *control; /* in attachment */
    const struct tsi_layout *layout;   /* in attachment */

    /* what was asked for; constant */
    uint32_t batch;
    uint32_t rank;
    uint32_t world;
    uint64_t epochs; /* 0: no limit */
    enum tsocket_last last;
    uint64_t save_up; /* so many released samples need not be told yet */
    uint32_t n_fields;
    uint32_t fields[TSOCKET_FIELDS_MAX]; /* batch.data[i] is field fields[i] of the layout */
    uint64_t pad_offset[TSOCKET_FIELDS_MAX];
    unsigned char *pad; /* hold private batches, each pad_bytes, or NULL */
    uint64_t pad_bytes;

    /* where it is */
    uint64_t epoch;
    uint64_t own_epoch;
    uint64_t start; /* position of the epoch's first sample; only once `placed` */
    bool placed;
    uint64_t round;             /* windows of this rank handed out in this epoch */
    uint64_t skip;              /* place in the epoch at which the rounds begin: > 0 after joining in the middle */
    uint64_t received;          /* real samples, this epoch */
    uint64_t received_all;      /* real samples since open */
    struct tsocket_epoch ended; /* the last one, if own_epoch > 0 */
    struct tsc_held held;

    /* what the daemon knows */
    uint64_t head_seen;   /* as of the last look, */
    uint64_t len_seen;    /* and the length of this epoch; 0 before its first */
    uint64_t released;    /* cumulative position to be told to it */
    bool release_due;     /* `released` is not told yet: the queue was full */
    uint64_t asked_epoch; /* the WANT that waits for its answer, */
    uint64_t asked_index; /* or 0 */
    bool gone;            /* the lifeline has ended */
};

/* TSOCKET_EFORK, and says so, where the handle belongs to the parent process. */
int tsc_handle_check(const struct tsocket *ts);

/* Where the next window of this rank begins, counted from the epoch's start. */
uint64_t tsc_handle_next_index(const struct tsocket *ts);

/* Windows that each rank gets of `samples` samples. */
uint64_t tsc_handle_windows(const struct tsocket *ts, uint64_t samples);

#endif
