/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Samples that cannot be used: what becomes of one when head reaches it, in order, so that the decision depends on
 * nothing but the order (design, Bad samples). They are counted by kind, and logged until there are too many to read.
 * With the producer's lock held.
 */
#ifndef TSP_BAD_H
#define TSP_BAD_H

#include "stream.h"

/* Head stands at one. TSOCKET_OK: it is left out or passed. TSOCKET_EBAD_SAMPLE: the run ends, with the reason. */
int tsp_bad_decide(struct tsp_stream *stream);

/* The epoch is over. */
void tsp_bad_sum_up(struct tsp_stream *stream);

#endif
