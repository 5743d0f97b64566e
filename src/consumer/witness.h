/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TSOCKET_CHECK=1 in the environment: the data of every batch is hashed when it is given and once more when it is
 * released, and what has changed between is reported as an error in the log. Memory shared by CUDA IPC can be written
 * by every consumer: one that works in place spoils the others' batches. It costs a pass, and on a GPU a copy, each
 * time.
 */
#ifndef TSC_WITNESS_H
#define TSC_WITNESS_H

#include <tsocket/tsocket.h>

struct tsc_window;

/* Notes at the window what its data is. Does nothing unless it was asked for when the handle was opened. */
void tsc_witness_first(const struct tsocket *ts, const struct tsocket_batch *batch, struct tsc_window *window);

/* Compares. */
void tsc_witness_again(const struct tsocket *ts, const struct tsc_window *window);

#endif
