/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A consumer in a thread of its own, which reads epochs and checks every sample (of a rig without bad samples): the
 * group that goes on while the test's own consumer does something else.
 */
#ifndef READER_H
#define READER_H

#include <pthread.h>
#include <stdatomic.h>

#include "rig.h"

enum {
    PATIENCE_MS = 20000,
    MAX_HOLD_MS = 600, /* longer than this machine stands still, hopefully */
};

struct reader {
    pthread_t thread;
    struct tsocket *ts;
    uint64_t epochs;
    atomic_uint_fast64_t samples;
    atomic_bool good;
};

/* Attaches, and begins to read so many epochs. */
void reader_start(struct reader *reader, uint32_t batch, uint64_t epochs);

/* The same with one that is attached, wherever it is; `ts` is the reader's from here on. */
void reader_go_on(struct reader *reader, struct tsocket *ts, uint64_t epochs);

/* All of them were read, and all was right; it is closed. */
void reader_finish(struct reader *reader);

void reader_wait_for_samples(const struct reader *reader, uint64_t samples);

void reader_nap(long ms);

/* On a machine that stands still for longer than max_hold_ms a window may be lost, and comes again. */
void reader_expect_and_release(struct tsocket *ts, uint64_t epoch, uint64_t first, uint32_t count);

/* The windows of an epoch from `first` on, and its end. */
void reader_expect_rest(struct tsocket *ts, uint64_t epoch, uint64_t first, uint32_t batch, uint64_t samples);

#endif
