/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A producer and a consumer around a copier, in one process and one thread: what is decoded is a function of the
 * position, and what the consumer reads in the GPU's ring is compared with it.
 *
 *     stream_open --> stream_run (fills, pushes, waits, reads windows, releases) --> stream_close
 */
#ifndef TEST_GPU_STREAM_H
#define TEST_GPU_STREAM_H

#include <pthread.h>
#include <stdbool.h>

#include "ipc/cuda_arena.h"
#include "ipc/layout.h"
#include "producer/copier.h"

struct shape {
    uint64_t capacity;
    uint64_t mirror;
    uint64_t chunk;
    uint64_t staging;
    bool host; /* a host ring is filled in staging's place */
    unsigned n_devices;
};

struct stream {
    struct shape shape;
    struct tsi_device devices[TSI_DEVICES_MAX];
    struct tsi_arena arenas[TSI_DEVICES_MAX];
    struct tsi_arena host;
    struct tsi_layout layout;
    struct tsp_copier *copier;
    uint64_t head;
    uint64_t floor;
    unsigned random;

    pthread_mutex_t lock; /* of what the callbacks write */
    pthread_cond_t changed;
    unsigned long moved;
    int failed; /* the error code; 0: none */
    unsigned long failures;
    char why[256];
};

/* TSOCKET_OK, or what the driver or the copier says; nothing is left open then. */
int stream_open(struct stream *stream, const struct shape *shape);
void stream_close(struct stream *stream);

/* Fills [head, end), which must have room, and pushes it. */
void stream_fill(struct stream *stream, uint64_t end, bool flush);

/* Waits until all devices have what is below `position`. TSOCKET_OK or the copier's error. */
int stream_wait(struct stream *stream, uint64_t position);

/* Whether every device has the right bytes in the window [position, position + n). */
bool stream_window_is_right(struct stream *stream, uint64_t position, uint64_t n);

/* `samples` more of them through the ring, in steps, windows and flushes that a seed decides. */
int stream_run(struct stream *stream, uint64_t samples);

#endif
