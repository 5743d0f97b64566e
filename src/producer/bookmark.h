/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bookmark: keeps the state file (--state, see state.h) at the epoch in which each stream is.
 *
 *     start: FILE --open--> each feed's first_epoch; another dataset, recipe or seed than the file's is an error
 *     run:   status --tick, once a second--> FILE, if an epoch has begun since
 *
 * What it cannot write is logged once, and again when it can: the run goes on. Main thread only.
 */
#ifndef TSP_BOOKMARK_H
#define TSP_BOOKMARK_H

#include "feed.h"
#include "state.h"

struct tsp_bookmark {
    const char *path; /* NULL: no file is kept */
    struct tsp_state state;
    uint64_t due_ns;
    bool written; /* the file says what `state` says */
    bool failing; /* and cannot be made to: has been logged */
};

/* Reads the file, compares it with the feeds, which have their fingerprints, and sets their first epochs. */
bool tsp_bookmark_open(struct tsp_bookmark *bookmark, const char *path, struct tsp_feed *feeds, uint32_t n,
                       struct tsp_problem *problem_out);

void tsp_bookmark_tick(struct tsp_bookmark *bookmark, struct tsocket_producer *producer, uint64_t now_ns);

/* A last time; before the producer is closed. `ended`: all that was to be read is read. */
void tsp_bookmark_close(struct tsp_bookmark *bookmark, struct tsocket_producer *producer, bool ended);

/* Takes the epochs from a status as tsocket_producer_status gives it. True if one has changed. The two above use it. */
bool tsp_bookmark_look(struct tsp_bookmark *bookmark, const char *status, bool ended);

#endif
