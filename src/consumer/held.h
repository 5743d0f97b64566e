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

#include <stdbool.h>
#include <stdint.h>

struct tsc_window {
    uint64_t position; /* nothing of it lies below */
    bool held;
    bool private; /* its data was copied: what happens to the ring does not matter to it */
};

struct tsc_held {
    struct tsc_window *windows; /* window `id` is at id % hold */
    uint32_t hold;
    uint64_t oldest;
    uint64_t next;
};

int tsc_held_init(struct tsc_held *held, uint32_t hold); /* TSOCKET_OK, TSOCKET_ENOMEM */
void tsc_held_fini(struct tsc_held *held);

bool tsc_held_full(const struct tsc_held *held);

/* Only if not full. Returns the window's id. */
uint64_t tsc_held_add(struct tsc_held *held, uint64_t position, bool private);

/* The window, or NULL if `id` is not held. */
const struct tsc_window *tsc_held_find(const struct tsc_held *held, uint64_t id);

void tsc_held_release(struct tsc_held *held, uint64_t id); /* only one that find finds */

/* The position below which nothing is held; `otherwise` if nothing is held at all. */
uint64_t tsc_held_floor(const struct tsc_held *held, uint64_t otherwise);

#endif
