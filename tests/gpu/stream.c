/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include <tsocket/tsocket.h>

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* Sizes that are no power of two, and one that is no multiple of anything. */
static const struct tsocket_field fields[] = {
    {.name = "image", .dtype = TSOCKET_UINT8, .ndim = 3, .shape = {7, 5, 3}},
    {.name = "label", .dtype = TSOCKET_INT64},
    {.name = "odd", .dtype = TSOCKET_UINT8},
};

enum {
    FIELDS = sizeof(fields) / sizeof(fields[0]),
};

static void on_moved(void *context)
{
    struct stream *stream = context;

    pthread_mutex_lock(&stream->lock);
    stream->moved++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

static void on_failed(void *context, int rc, const char *why)
{
    struct stream *stream = context;

    pthread_mutex_lock(&stream->lock);
    stream->failed = rc;
    stream->failures++;
    snprintf(stream->why, sizeof(stream->why), "%s", why);
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
}

/* --- life */

static int open_device(struct stream *stream, unsigned i)
{
    char name[16];
    int rc;

    snprintf(name, sizeof(name), "cuda:%u", i);
    rc = tsi_device_open(name, &stream->devices[i]);
    if (rc == TSOCKET_OK)
        rc = tsi_cuda_arena_create(&stream->devices[i], i % 2 == 0 ? TSI_SHARE_AUTO : TSI_SHARE_IPC,
                                   stream->layout.bytes, &stream->arenas[i]);
    return rc;
}

int stream_open(struct stream *stream, const struct shape *shape)
{
    struct tsp_copier_options options;
    int rc;

    *stream = (struct stream){.shape = *shape,
                              .random = 1,
                              .host = {.fd = -1},
                              .lock = PTHREAD_MUTEX_INITIALIZER,
                              .changed = PTHREAD_COND_INITIALIZER};
    for (unsigned i = 0; i < TSI_DEVICES_MAX; i++)
        stream->arenas[i].fd = -1;
    rc = tsi_layout_init(fields, FIELDS, shape->capacity, shape->mirror, &stream->layout);
    for (unsigned i = 0; rc == TSOCKET_OK && i < shape->n_devices; i++)
        rc = open_device(stream, i);
    if (rc == TSOCKET_OK && shape->host)
        rc = tsi_arena_create("test", stream->layout.bytes, &stream->host);
    options = (struct tsp_copier_options){
        .ring = &stream->layout,
        .arenas = stream->arenas,
        .n_arenas = shape->n_devices,
        .chunk = shape->chunk,
        .staging = shape->staging,
        .host = stream->host.base,
        .moved = on_moved,
        .failed = on_failed,
        .context = stream,
    };
    if (rc == TSOCKET_OK)
        rc = tsp_copier_create(&options, &stream->copier);
    if (rc != TSOCKET_OK)
        stream_close(stream);
    return rc;
}

void stream_close(struct stream *stream)
{
    tsp_copier_destroy(stream->copier);
    tsi_arena_close(&stream->host);
    for (unsigned i = 0; i < stream->shape.n_devices; i++) {
        tsi_arena_close(&stream->arenas[i]);
        tsi_device_close(&stream->devices[i]);
    }
}

/* --- the producer */

static unsigned char byte_of(uint64_t position, uint32_t field, uint64_t byte)
{
    return (unsigned char)((position + 1) * 167 + field * 59 + byte * 13 + (position >> 8));
}

void stream_fill(struct stream *stream, uint64_t end, bool flush)
{
    for (; stream->head < end; stream->head++) {
        for (uint32_t field = 0; field < FIELDS; field++) {
            unsigned char *to = tsp_copier_at(stream->copier, field, stream->head);

            for (uint64_t i = 0; i < stream->layout.fields[field].sample_bytes; i++)
                to[i] = byte_of(stream->head, field, i);
        }
    }
    tsp_copier_push(stream->copier, end, flush);
}

int stream_wait(struct stream *stream, uint64_t position)
{
    int rc;

    pthread_mutex_lock(&stream->lock);
    while (stream->failed == TSOCKET_OK && tsp_copier_done(stream->copier) < position)
        pthread_cond_wait(&stream->changed, &stream->lock);
    rc = stream->failed;
    pthread_mutex_unlock(&stream->lock);
    return rc;
}

/* --- the consumer */

static void fetch(const struct tsi_device *device, void *to, uint64_t from, uint64_t bytes)
{
    if (tsi_device_enter(device) != TSOCKET_OK)
        errx(1, "%s", tsocket_last_error());
    if (device->cuda.cuMemcpyDtoHAsync(to, from, bytes, NULL) != TSI_CU_SUCCESS ||
        device->cuda.cuStreamSynchronize(NULL) != TSI_CU_SUCCESS)
        errx(1, "the window cannot be read");
    tsi_device_leave(device);
}

static bool field_is_right(struct stream *stream, unsigned device, uint32_t field, uint64_t position, uint64_t n)
{
    const struct tsi_arena *arena = &stream->arenas[device];
    uint64_t sample = stream->layout.fields[field].sample_bytes;
    unsigned char *got = malloc(n * sample);
    bool right = true;

    if (got == NULL)
        err(1, "malloc");
    fetch(&stream->devices[device], got, (uintptr_t)tsi_layout_at(&stream->layout, arena->base, field, position),
          n * sample);
    for (uint64_t i = 0; i < n * sample; i++)
        right = right && got[i] == byte_of(position + i / sample, field, i % sample);
    free(got);
    return right;
}

bool stream_window_is_right(struct stream *stream, uint64_t position, uint64_t n)
{
    bool right = true;

    for (unsigned device = 0; device < stream->shape.n_devices; device++) {
        for (uint32_t field = 0; field < FIELDS; field++)
            right = right && field_is_right(stream, device, field, position, n);
    }
    return right;
}

/* --- both */

static uint64_t choose(struct stream *stream, uint64_t most)
{
    return 1 + (uint64_t)rand_r(&stream->random) % most;
}

int stream_run(struct stream *stream, uint64_t samples)
{
    uint64_t end = stream->head + samples;

    while (stream->floor < end) {
        uint64_t room = MIN(MIN(stream->floor + stream->shape.capacity, tsp_copier_limit(stream->copier)), end);
        uint64_t want, n;

        if (stream->head < room)
            stream_fill(stream, stream->head + choose(stream, room - stream->head), choose(stream, 4) == 1);
        want = stream->floor + choose(stream, stream->shape.mirror);
        n = MIN(want, stream->head) - stream->floor;
        if (n == 0 || choose(stream, 3) == 1)
            continue;
        tsp_copier_push(stream->copier, stream->head, true); /* somebody waits */
        if (stream_wait(stream, stream->floor + n) != TSOCKET_OK)
            return stream->failed;
        if (!stream_window_is_right(stream, stream->floor, n))
            return TSOCKET_EBAD_SAMPLE;
        stream->floor += n;
    }
    return TSOCKET_OK;
}
