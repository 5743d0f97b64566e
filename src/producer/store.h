/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the samples of a ring lie: in host memory, in the memory of one or several GPUs, or in both.
 *
 *     host      decode threads --> ring in host memory                              there at once
 *     GPUs      decode threads --> staging --copies--> ring in each GPU             there when all copies have passed
 *     both      decode threads --> ring in host memory --copies--> ring in each GPU    likewise
 *
 *     pushed:   all below `head` is written, in order
 *     done:     all below it is where consumers read it, in every place; what may be published
 *
 * A consumer reads in one of the places. Used with the producer's lock held, but for at and written.
 */
#ifndef TSP_STORE_H
#define TSP_STORE_H

#include <tsocket/producer.h>

#include "../ipc/cuda_arena.h"
#include "../ipc/layout.h"
#include "copier.h"

#define TSP_PLACES_MAX     (TSI_DEVICES_MAX + 1)
#define TSP_STORE_TEXT_MAX 1024

/* Who is to hear of copies; see copier.h. */
struct tsp_store_watcher {
    void (*moved)(void *context);
    void (*failed)(void *context, int rc, const char *why);
    void *context;
};

struct tsp_store {
    const struct tsi_layout *layout;
    struct tsi_devices *devices;
    struct tsi_arena arenas[TSP_PLACES_MAX]; /* the GPUs' first, then the host's */
    char tickets[TSP_PLACES_MAX][TSI_TICKET_MAX];
    unsigned n_gpus;
    unsigned n_places;
    struct tsp_copier *copier; /* NULL: what is written is there */
    uint64_t head;             /* as pushed */
    uint64_t flushed;          /* what is below it does not wait for a full chunk */
};

/*
 * Reserves the memory where options->device and share say, for a layout that must outlive the store. "auto" has it in
 * the GPU and in host memory, so that everybody finds it; and in host memory alone, with the reason for
 * tsp_store_describe, where the GPU does not work or has no room. TSOCKET_ENOMEM with the needed and the available
 * size; TSOCKET_EINVAL, TSOCKET_ENOTFOUND, TSOCKET_EDEVICE, TSOCKET_ESYSTEM.
 */
int tsp_store_init(struct tsp_store *store, const struct tsi_layout *layout,
                   const struct tsocket_stream_options *options, const struct tsp_store_watcher *watcher);

/* All zero is allowed. No callback may wait for the caller. */
void tsp_store_fini(struct tsp_store *store);

/* Where to write a field of the sample at `position`, which is below tsp_store_limit. Any thread. */
void *tsp_store_at(const struct tsp_store *store, uint32_t field, uint64_t position);

/* All of that sample is written. Any thread. */
void tsp_store_written(const struct tsp_store *store, uint64_t position);

/* Everything below `head` is written; what is below `wanted` is to be there soon. */
void tsp_store_push(struct tsp_store *store, uint64_t head, uint64_t wanted);

uint64_t tsp_store_done(const struct tsp_store *store);
uint64_t tsp_store_limit(const struct tsp_store *store); /* positions below it have room to be written */

/* Whether all that was pushed is there. */
bool tsp_store_is_idle(const struct tsp_store *store);

/* Goes on at another position. Only while idle. */
void tsp_store_restart(struct tsp_store *store, uint64_t position);

/*
 * The place for a consumer that accepts `wanted`: a list of UUIDs and "host", the best first; empty: host memory.
 * TSOCKET_EREFUSED, with the way out.
 */
int tsp_store_choose(const struct tsp_store *store, const char *stream, const char *wanted, unsigned *place_out);

/* "host", or a GPU's UUID. */
void tsp_store_name(const struct tsp_store *store, unsigned place, char name_out[TSI_UUID_TEXT_LEN]);

/* The list of devices for another store of the stream, which was asked for as `device`: the same places. */
const char *tsp_store_devices(const struct tsp_store *store, const char *device);

/* For people: "host memory", "NVIDIA H200 (GPU-..., cuda-vmm) and host memory"; and why no GPU, if one was looked for.
 */
void tsp_store_describe(const struct tsp_store *store, char text_out[TSP_STORE_TEXT_MAX]);

#endif
