/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Side rings: what a consumer reads while it is where the group's ring is not.
 *
 *     READING the group's ring --held too long, paused, asks for a place behind--> PARKED
 *              ^                                                                     |
 *              |  its place is in the group's ring                                   | says where it stands
 *              +---------------------------------------------------------------------+
 *              |                                                                     | else: a side ring, begun there
 *              +---- its place has come into the group's ring ---- READING a side ring
 *
 * One mechanism for pausing, lagging, coming late and coming back: a consumer that is to read elsewhere is summoned
 * (control.h), says at its next call where it stands, and is told where to read on. Because order and bytes depend on
 * the place alone, it cannot tell the rings apart.
 *
 * A side ring has one reader. It stays that reader's until nothing of it is held any more, also while the reader is
 * back with the group; if it needs one again meanwhile, the same ring is begun anew behind what is held.
 *
 * With the producer's lock held.
 */
#ifndef TSP_SIDE_H
#define TSP_SIDE_H

#include "stream.h"

/* Whether the place is in the ring, or will be in this epoch; and where. */
bool tsp_side_find(const struct tsp_stream *ring, const struct tsi_place *place, uint64_t *position_out);

/* Whether the stream has side rings that are large enough for such a consumer. */
bool tsp_side_fits(const struct tsp_stream *stream, const struct tsi_hello *hello);

/* The consumer is not counted any more, and must say where it stands. */
void tsp_side_park(struct tsp_consumer *consumer, enum tsp_ledger_why why, uint64_t now_ns);

/* Its settings have changed: it is to hear of them. */
void tsp_side_tell(struct tsp_consumer *consumer);

/*
 * It says where it stands, and waits to be told where to read; `again`: at what it had lost, which is given again.
 * TSOCKET_EPROTOCOL: there is no such place.
 */
int tsp_side_ask(struct tsp_consumer *consumer, const struct tsi_place *place, bool again, uint64_t now_ns);

/* It pauses at that place. TSOCKET_EPROTOCOL. */
int tsp_side_pause(struct tsp_consumer *consumer, const struct tsi_place *place, uint64_t now_ns);

/*
 * Where a consumer that asks is to read on. False: not yet. If *move_out names a side ring, its memory must be sent
 * first, unless the consumer has it already (*same_out).
 */
bool tsp_side_answer(struct tsp_stream *stream, const struct tsp_roster *roster, struct tsp_consumer *consumer,
                     uint64_t now_ns, struct tsi_move *move_out, bool *same_out);

/* It holds nothing of that side ring any more. */
void tsp_side_left(struct tsp_consumer *consumer, uint32_t serial);

/* It leaves the roster. */
void tsp_side_forget(struct tsp_consumer *consumer);

/* Parks who holds the others up, calls back whose place has come into the group's ring, begins the ring at a token. */
void tsp_side_progress(struct tsp_stream *stream, const struct tsp_roster *roster, uint64_t now_ns);

/* When progress should be called, at the latest, although nothing happened; UINT64_MAX: no need. */
uint64_t tsp_side_deadline_ns(const struct tsp_stream *stream, const struct tsp_roster *roster);

/* Side rings of the stream that are in use. */
uint32_t tsp_side_used(const struct tsp_stream *stream);

/* Whether nobody has begun to read the stream: all who are attached have come with a token and not asked yet. */
bool tsp_side_is_free(const struct tsp_stream *stream, const struct tsp_roster *roster);

#endif
