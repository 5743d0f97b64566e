/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pixel cache: whole pictures as they were decoded, for the epochs after the first.
 *
 *     find --no--> read, decode, offer --room?--> kept until the end
 *      |
 *     yes ------------------------------------> crop and resize only
 *
 * Nothing is ever evicted. Every epoch reads every sample once: what was kept longest ago comes next, so that a cache
 * that makes room always throws out what it is about to need. A fixed share of the samples stays instead, and saves
 * that share of the work. What a sample becomes does not depend on whether it was found here.
 *
 * One per pipeline; find and offer may be called by any threads at once, and take no lock.
 */
#ifndef TSP_CACHE_H
#define TSP_CACHE_H

#include <stdbool.h>

#include "pixels.h"
#include "source.h"

struct tsp_cache;

/*
 * `bytes` of memory for the samples of streams, of which number i has counts[i]: compared with what is free, as the
 * rings are, and taken at once. NULL, with one line in `error`.
 */
struct tsp_cache *tsp_cache_create(uint64_t bytes, const uint64_t *counts, uint32_t n_streams, char *error, size_t len);

void tsp_cache_destroy(struct tsp_cache *cache); /* NULL is allowed */

/* True: *encoded_out is the sample, as raw pixels that stay until destroy and are not the caller's to free. */
bool tsp_cache_find(struct tsp_cache *cache, uint32_t stream, uint64_t sample, struct tsp_encoded *encoded_out);

/* Whether a picture of this size would be kept. */
bool tsp_cache_has_room(struct tsp_cache *cache, uint32_t width, uint32_t height);

/* Copies a whole picture, if there still is room. True: it is kept, and *encoded_out as from find. */
bool tsp_cache_offer(struct tsp_cache *cache, uint32_t stream, uint64_t sample, const struct tsp_pixels *pixels,
                     uint32_t orientation, struct tsp_encoded *encoded_out);

struct tsp_cache_state {
    uint64_t capacity_bytes;
    uint64_t used_bytes;
    uint64_t kept; /* pictures */
    uint64_t found;
    uint64_t missed;
};

struct tsp_cache_state tsp_cache_look(struct tsp_cache *cache);

#endif
