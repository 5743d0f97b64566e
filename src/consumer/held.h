/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The windows that a consumer holds, in the order in which it got them.
 *
 *     ids      oldest ............ next
 *              | held | released | held |
 *
 * Releases may come in any order; what the daemon may reuse ends at the oldest window that is still held. So the span
 * from there counts against `hold`, released ones in between included: more could not be promised room in the ring.
 */
#ifndef TSC_HELD_H
#define TSC_HELD_H

#include "../ipc/token.h"
#include "ring.h"

/*
 * Where a consumer is: round k of rank r begins at index begin + (k W + r) b of the epoch. One that joined late reads
 * [wrap, len) first and then [0, wrap) in a second lap.
 */
struct tsc_walk {
    uint64_t epoch;
    uint64_t own_epoch;
    uint64_t begin;        /* index at which the rounds begin */
    uint64_t round;        /* windows of this rank so far */
    uint64_t wrap;         /* > 0: there will be another lap, over [0, wrap) */
    uint64_t until;        /* > 0: this is that lap, and the epoch is over at this index */
    uint64_t whole;        /* in that lap: the epoch's length */
    struct tsi_place from; /* `after` of the window before: from there on a producer must have the samples */
};

struct tsc_window {
    uint64_t position; /* nothing of it lies below; of a resident stream, as RELEASE counts it */
    struct tsc_ring *ring;
    struct tsc_walk walk;   /* that leads to it */
    struct tsi_place after; /* where it ends; of a rank, a sample before that */
    uint32_t valid;         /* real samples in it */
    bool held;
    bool pending; /* released behind work that a GPU has been given: given back when that is done */
    bool private; /* its data was copied: what happens to the ring does not matter to it */
    bool again;   /* it had been lost before */
};

struct tsc_held {
    struct tsc_window *windows; /* window `id` is at id % hold */
    uint32_t hold;
    uint32_t n_pending;
    uint64_t oldest;
    uint64_t next;
};

int tsc_held_init(struct tsc_held *held, uint32_t hold); /* TSOCKET_OK, TSOCKET_ENOMEM */
void tsc_held_fini(struct tsc_held *held);

bool tsc_held_full(const struct tsc_held *held);

/* Only if not full. Takes the window but for `held`, and returns its id. */
uint64_t tsc_held_add(struct tsc_held *held, const struct tsc_window *window);

/* The window, or NULL if `id` is not held. */
const struct tsc_window *tsc_held_find(const struct tsc_held *held, uint64_t id);

void tsc_held_release(struct tsc_held *held, uint64_t id); /* only one that find finds */

/* Only the newest one, when it has been released: it takes no room in the span any more, and its id comes again. */
void tsc_held_retract(struct tsc_held *held, uint64_t id);

void tsc_held_set_pending(struct tsc_held *held, uint64_t id); /* likewise */

/* The oldest pending one. False: there is none. */
bool tsc_held_first_pending(const struct tsc_held *held, uint64_t *id_out);

/* Whether as many are held as can be, and the oldest one is pending: room will come by itself. */
bool tsc_held_will_move(const struct tsc_held *held);

/* The position below which nothing of that ring is held; `otherwise` if nothing of it is held at all. */
uint64_t tsc_held_floor(const struct tsc_held *held, const struct tsc_ring *ring, uint64_t otherwise);

/* Whether nothing up to position `end` of that ring can be made before the first window that is held there is
 * released, which nobody has done yet. */
bool tsc_held_keeps_out(const struct tsc_held *held, const struct tsc_ring *ring, uint64_t end);

#endif
