/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TSOCKET_CHECK=1 in the environment: the data of every batch is hashed when it is given and once more when it is
 * released, and what has changed between is reported as an error in the log. Memory shared by CUDA IPC can be written
 * by every consumer: one that works in place spoils the others' batches. It costs a pass, and on a GPU a copy, each
 * time.
 */
#ifndef TSC_WITNESS_H
#define TSC_WITNESS_H

#include <stdbool.h>

#include <tsocket/tsocket.h>

struct tsc_window;

/* What the data of a window was when it was given. */
struct tsc_evidence {
    bool hashed;
    uint64_t hash;
    uint32_t count;
    const void *data[TSOCKET_FIELDS_MAX];
};

/* Room for as many windows as can be held, if the environment asks for it. TSOCKET_OK, TSOCKET_ENOMEM. */
int tsc_witness_open(struct tsocket *ts, uint32_t hold);

/* Notes what the data of window `id` is. Neither does anything unless it was asked for. */
void tsc_witness_first(const struct tsocket *ts, const struct tsocket_batch *batch, uint64_t id);

/* Compares. */
void tsc_witness_again(const struct tsocket *ts, const struct tsc_window *window, uint64_t id);

#endif
