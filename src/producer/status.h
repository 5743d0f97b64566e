/* SPDX-License-Identifier: Apache-2.0 */
/* The status of a producer as one line of JSON. With the producer's lock held. */
#ifndef TSP_STATUS_H
#define TSP_STATUS_H

#include "engine.h"

/* For cJSON_free; NULL without memory. */
char *tsp_status_print(const struct tsocket_producer *producer, uint64_t now_ns);

#define TSP_STATUS_MISSING 64

/* "3 consumers, 2 are here": what it waits for, of a stream that has not opened. False: it has, and `text_out` is
 * empty. */
bool tsp_status_missing(const struct tsp_stream *stream, const struct tsp_roster *roster,
                        char text_out[TSP_STATUS_MISSING]);

/* Computes the rates since the last tick. */
void tsp_status_tick(struct tsocket_producer *producer, uint64_t now_ns);

#endif
