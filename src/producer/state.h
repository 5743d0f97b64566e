/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state file (--state FILE): with what seed and in which epoch each stream was, so that a daemon that starts again
 * goes on there.
 *
 *     tsocket-state 1
 *     stream train epoch 12 seed 7 dataset 0123456789abcdef recipe 0123456789abcdef
 *     check 0123456789abcdef                                   a hash of all the lines above
 *
 * It is replaced as a whole: whoever reads it sees the old one or the new one. One that is torn or of another kind is
 * an error, never a fresh start: it may be somebody's.
 */
#ifndef TSP_STATE_H
#define TSP_STATE_H

#include <tsocket/producer.h>

#include "fingerprint.h"
#include "problem.h"

struct tsp_state_stream {
    char name[TSOCKET_NAME_MAX + 1];
    uint64_t epoch;
    uint64_t seed;
    char dataset[TSP_FINGERPRINT];
    char recipe[TSP_FINGERPRINT];
};

struct tsp_state {
    uint32_t n;
    struct tsp_state_stream streams[TSOCKET_STREAMS_MAX];
};

/* True: *state_out is what the file says; no streams where there is no file yet. */
bool tsp_state_read(const char *path, struct tsp_state *state_out, struct tsp_problem *problem_out);

/* Replaces the file. False: the old one is as it was, *problem_out says why, and errno, where it can. */
bool tsp_state_write(const char *path, const struct tsp_state *state, struct tsp_problem *problem_out);

/* The stream of that name, or NULL. */
struct tsp_state_stream *tsp_state_find(struct tsp_state *state, const char *name);

#endif
