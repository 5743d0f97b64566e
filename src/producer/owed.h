/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a consumer is owed: windows that it held, and that were written over since it was parked. They are given to it
 * again, and the ledger says both. And what it has released when it leaves, which its ring may not show any more.
 *
 *     given --parked, written over, released--> LOST --given again, released whole--> AGAIN
 *
 * It says so itself, as it says what it has released, and on the lifeline: so nothing of it comes behind its end. What
 * it says is believed only within what it may have been given.
 *
 * With the producer's lock held.
 */
#ifndef TSP_OWED_H
#define TSP_OWED_H

#include "stream.h"

/* Whatever comes next, it has been given nothing that its ring has not had so far: before it reads elsewhere. */
void tsp_owed_note_reach(struct tsp_consumer *consumer);

/* It says LOST or AGAIN. TSOCKET_EPROTOCOL: it cannot have lost that, or not so much. */
int tsp_owed_hear(struct tsp_consumer *consumer, const struct tsi_hot *hot);

/* It says PASSED: what it has released, wherever it read that. Of what it cannot have been given, nothing is noted. */
void tsp_owed_hear_passed(struct tsp_consumer *consumer, const struct tsi_hot *hot);

#endif
