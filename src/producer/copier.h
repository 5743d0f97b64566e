/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The stage between the filler and the published head of a stream whose rings lie in GPUs.
 *
 *     decode threads --> staging (pinned host memory) --copies--> ring in each GPU --events--> done, published
 *
 *            done             issued              head         done + staging
 *      ---------|----------------|------------------|-----------------|
 *       in GPUs   being copied      decoded, in order  being decoded     no room
 *
 * Staging is laid out like the ring, with fewer slots (position % staging). A chunk of samples is copied at once: per
 * field one copy for each run that is contiguous on both sides, and one on the device for what has a place in the
 * mirror; then an event. A chunk is closed when it is full, or by a push that asks for it: at an epoch's end, or when
 * somebody waits. While it runs, a copier allocates nothing and asks nothing else of the driver.
 *
 * Each device has a thread that asks for the copies and waits for them. done is what all devices have.
 */
#ifndef TSP_COPIER_H
#define TSP_COPIER_H

#include <stdbool.h>

#include "../ipc/arena.h"
#include "../ipc/layout.h"

struct tsp_copier;

struct tsp_copier_options {
    const struct tsi_layout *ring;  /* of each arena */
    const struct tsi_arena *arenas; /* 1 to TSI_DEVICES_MAX, in GPUs; they must outlive the copier */
    unsigned n_arenas;
    uint64_t chunk;   /* samples; 1 to staging */
    uint64_t staging; /* samples; 1 to the ring's capacity */
    void *host;       /* a ring of the same layout in host memory, which is filled in staging's place; NULL: none */

    /* Called by the copier's threads, which hold nothing; from before create returns until destroy does. */
    void (*moved)(void *context);                           /* done has risen */
    void (*failed)(void *context, int rc, const char *why); /* nothing is copied any more; once */
    void *context;
};

/* A chunk that is large enough for the link, and a small part of the ring. */
uint64_t tsp_copier_chunk(const struct tsi_layout *ring);

/*
 * Pins the staging memory and starts. TSOCKET_ENOMEM, TSOCKET_ESYSTEM, TSOCKET_EDEVICE with the reason; TSOCKET_EINVAL:
 * the numbers do not fit.
 */
int tsp_copier_create(const struct tsp_copier_options *options, struct tsp_copier **copier_out);

/*
 * Waits for the copies that were asked for. NULL is allowed. No callback may wait for the caller. False: options.host
 * must not be unmapped, for the driver, which cannot be reached any more, still takes it for pinned.
 */
bool tsp_copier_destroy(struct tsp_copier *copier);

/* Where to decode a field of the sample at `position`, which must be below tsp_copier_limit. Any thread. */
void *tsp_copier_at(const struct tsp_copier *copier, uint32_t field, uint64_t position);

/*
 * All positions below head are decoded. `flush`: do not wait for a full chunk. Any thread, also one that holds a lock
 * that the callbacks take: it never waits for the device.
 */
void tsp_copier_push(struct tsp_copier *copier, uint64_t head, bool flush);

/* Goes on at another position; at first it is 0. Only when done has reached head: push with `flush`, and wait. */
void tsp_copier_restart(struct tsp_copier *copier, uint64_t position);

uint64_t tsp_copier_done(struct tsp_copier *copier);  /* positions below it are in all devices */
uint64_t tsp_copier_limit(struct tsp_copier *copier); /* positions below it have room in staging */

#endif
