/* SPDX-License-Identifier: Apache-2.0 */
/* The status of a producer as one line of JSON. With the producer's lock held. */
#ifndef TSP_STATUS_H
#define TSP_STATUS_H

#include "engine.h"

/* For cJSON_free; NULL without memory. */
char *tsp_status_print(const struct tsocket_producer *producer, uint64_t now_ns);

/* Computes the rates since the last tick. */
void tsp_status_tick(struct tsocket_producer *producer, uint64_t now_ns);

#endif
