/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is said between a producer and its consumers over ZeroMQ, and what follows from it: see ../ipc/wire.h for the
 * messages. With the lock held.
 */
#ifndef TSP_TALK_H
#define TSP_TALK_H

#include "engine.h"

/* Takes in all messages that have come, up to a limit. */
void tsp_talk_hear(struct tsocket_producer *producer, uint64_t now_ns);

/*
 * Moves heads, floors and epochs, moves consumers between rings, and tells who waits for it. By the loop or by whoever
 * has just made it possible: a sample that is committed is published by the thread that made it, without a detour.
 */
void tsp_talk_progress(struct tsocket_producer *producer, uint64_t now_ns);

/* What a consumer that closes says last, on the lifeline: a RELEASE. */
void tsp_talk_last_words(struct tsp_consumer *consumer, const struct tsi_hot *hot);

/* It says, on the lifeline as well, what it has lost or been given again. May be its end. */
void tsp_talk_owed(struct tsocket_producer *producer, struct tsp_consumer *consumer, const struct tsi_hot *hot);

/* The end of a consumer; `why` is for the log. */
void tsp_talk_drop(struct tsocket_producer *producer, struct tsp_consumer *consumer, const char *why);

#endif
