/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The filler of one stream: which slots are claimed, which have become ready, and how far the ready ones reach without
 * a gap. Plain state, no clock, no thread, no memory but its own: whoever calls holds the producer's lock.
 *
 *      start          head            next          limit       start + len
 *        |  passed     | ready or out  | may be taken | no room    |
 *
 * Slots become ready out of order; head passes them in order. What cannot be used is decided only when head reaches it,
 * so that the decision depends on nothing but the order (design, invariant 4): the epoch loses its last remaining
 * sample, which is made once more in the place of the bad one.
 *
 * Claims never cross the end of an epoch: the next one begins when this one is decided and all its claims are back. So
 * positions are dense, and nothing is ever made for a place that then does not exist, but what lies between the end and
 * the old end when an epoch shrinks while it is being filled.
 */
#ifndef TSP_FILLER_H
#define TSP_FILLER_H

#include <stdbool.h>
#include <stdint.h>

enum tsp_slot_state {
    TSP_SLOT_FREE,
    TSP_SLOT_OUT, /* somebody fills it */
    TSP_SLOT_READY,
    TSP_SLOT_BAD, /* its sample cannot be used */
    TSP_SLOT_END, /* the producer says that the epoch ends before it */
};

struct tsp_slot {
    enum tsp_slot_state state;
    const char *kind; /* of a bad one: a constant */
    char *why;        /* of a bad one: owned by the slot; may be NULL */
};

struct tsp_filler {
    struct tsp_slot *slots; /* position % capacity */
    uint64_t capacity;
    uint64_t epoch;
    uint64_t start;
    uint64_t len; /* TSI_LEN_OPEN: not known yet */
    uint64_t head;
    uint64_t next;
    uint64_t limit;
    bool ending; /* an END has come back: nothing more of this epoch is handed out */
    bool redo;   /* the place at head is to be made again, from redo_ordinal */
    uint64_t redo_ordinal;
    uint64_t out; /* claims that are not back */
    bool stopped; /* nothing is handed out until it begins again */
};

int tsp_filler_init(struct tsp_filler *filler, uint64_t capacity); /* TSOCKET_OK, TSOCKET_ENOMEM */
void tsp_filler_fini(struct tsp_filler *filler);

/*
 * Begins an epoch at `index` of it; the samples before count as passed. Only when no claim is out. `start` is the place
 * of its first sample; start + index is not below head.
 */
void tsp_filler_begin(struct tsp_filler *filler, uint64_t epoch, uint64_t start, uint64_t len, uint64_t index);

/* Nothing more is handed out, until begin or go_on. */
void tsp_filler_stop(struct tsp_filler *filler);
void tsp_filler_go_on(struct tsp_filler *filler);

/* Claims may go up to `limit`; never past the epoch's end. Returns whether there is more to take than before. */
bool tsp_filler_allow(struct tsp_filler *filler, uint64_t limit);

/* A place to fill and the ordinal of the sample that belongs there; false: none. */
bool tsp_filler_take(struct tsp_filler *filler, uint64_t *position_out, uint64_t *ordinal_out);

/* A claim comes back as READY, BAD or END. Returns whether somebody should look at the head now. */
bool tsp_filler_put(struct tsp_filler *filler, uint64_t position, enum tsp_slot_state state, const char *kind,
                    char *why);

/* Moves head over what is ready. Returns the state of the slot that it stands at: not READY. */
enum tsp_slot_state tsp_filler_advance(struct tsp_filler *filler);

/* Head stands at a BAD slot. skip: leave it out and make the epoch's last sample here. pass: it is good enough. */
void tsp_filler_skip(struct tsp_filler *filler);
void tsp_filler_pass(struct tsp_filler *filler);

/* The epoch ends at head. */
void tsp_filler_cut(struct tsp_filler *filler);

/* Head has reached the epoch's end: its length is final. */
bool tsp_filler_decided(const struct tsp_filler *filler);

/* For streams that nobody fills: everything up to the limit is ready at once. */
void tsp_filler_jump(struct tsp_filler *filler);

#endif
