/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joining: where a newcomer begins.
 *
 *     an epoch's start is in the ring       there                                       READING
 *     now, catch-up                         in the middle, with the slowest             READING
 *     wait                                  at the next epoch                           JOINING
 *     with a token                          behind its batch, if that is in the ring    READING, else PARKED (side.h)
 *
 * With the producer's lock held.
 */
#ifndef TSP_JOIN_H
#define TSP_JOIN_H

#include "stream.h"

/*
 * Whether the consumer, whose hello is filled in, can be attached. TSOCKET_OK: it is, and *catch_up_out says whether
 * what lies before its first sample is to come from a side ring. Otherwise an error code, and tsocket_last_error() is
 * what it is to be told.
 */
int tsp_join_attach(struct tsp_stream *stream, const struct tsp_roster *roster, struct tsp_consumer *consumer,
                    uint64_t now_ns, bool *catch_up_out);

/* From here on the consumer counts, at `position` of the group's ring. */
void tsp_join_activate(struct tsp_stream *stream, const struct tsp_roster *roster, struct tsp_consumer *consumer,
                       uint64_t epoch, uint64_t position, uint64_t now_ns);

/* An epoch has begun: those who waited for it are activated. */
void tsp_join_start_waiting(struct tsp_stream *stream, const struct tsp_roster *roster, uint64_t now_ns);

/* Samples of room that the consumer needs in a ring so that it never waits for itself. */
uint64_t tsp_join_room(const struct tsp_stream *stream, const struct tsi_hello *hello);

#endif
