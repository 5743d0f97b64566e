/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the run goes, for whoever started tsocketd: on a terminal one live line, redrawn in place every second and gone
 * at the end; otherwise a line in the log every ten seconds. Main thread only.
 */
#ifndef TSP_PROGRESS_H
#define TSP_PROGRESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <tsocket/producer.h>

#define TSP_PROGRESS_ERASE "\r\033[K" /* back to the first column, and nothing to the right of it */
#define TSP_PROGRESS_BAR   20         /* columns of a bar */

struct tsp_progress {
    bool live;
    uint64_t next_ns; /* when the next line is due */
};

void tsp_progress_init(struct tsp_progress *progress, bool live, uint64_t now_ns);

/* Whether a line is due, and showing one. */
bool tsp_progress_due(const struct tsp_progress *progress, uint64_t now_ns);
void tsp_progress_show(struct tsp_progress *progress, const char *text, uint64_t now_ns);

/* Takes the live line away. */
void tsp_progress_clear(const struct tsp_progress *progress);

/* Shows a line about the producer if one is due. */
void tsp_progress_tick(struct tsp_progress *progress, struct tsocket_producer *producer, uint64_t now_ns);

/* Takes the live line away and logs what the whole run came to. */
void tsp_progress_end(struct tsp_progress *progress, struct tsocket_producer *producer);

/* "#########..........." for what is done of all; "0:12:34". Both return `out`. */
const char *tsp_progress_bar(uint64_t done, uint64_t all, char out[TSP_PROGRESS_BAR + 1]);
const char *tsp_progress_time(double seconds, char *out, size_t len);

/* The two texts for a status as tsocket_producer_status gives it; empty where it is not such a thing. */
void tsp_progress_line(const char *status, char *text, size_t len);
void tsp_progress_summary(const char *status, char *text, size_t len);

#endif
