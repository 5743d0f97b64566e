/* SPDX-License-Identifier: Apache-2.0 */
#include "copier.h"

#include <assert.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../ipc/device.h"
#include "../ipc/error.h"

enum {
    FLIGHT_MAX = 4,        /* chunks that a device is copying */
    CHUNK_BYTES = 4 << 20, /* from this size on the link is as fast as it gets */
    CHUNKS_PER_RING = 8,   /* at least */
    NODES_MAX = 1024,      /* NUMA nodes that mbind knows */
};

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* One device. Its thread alone uses what is not marked. */
struct lane {
    struct tsp_copier *copier;
    const struct tsi_arena *arena;
    struct tsi_cu_stream *stream;
    struct {
        struct tsi_cu_event *event;
        uint64_t end;     /* the chunk's */
    } flight[FLIGHT_MAX]; /* a ring: n_flight from first on */
    unsigned first;
    unsigned n_flight;
    uint64_t issued;
    uint64_t done; /* under the copier's lock */
    pthread_t thread;
    bool running; /* constant while the thread is */
};

struct tsp_copier {
    /* constant */
    struct tsp_copier_options options;
    struct tsi_layout ring;
    struct tsi_layout staging;
    void *memory; /* staging's, or the host ring's */
    bool pinned;
    unsigned n_lanes;
    struct lane lanes[TSI_DEVICES_MAX];

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    uint64_t head;
    uint64_t flush; /* what is below it does not wait for a full chunk */
    uint64_t done;  /* the least of the lanes */
    bool stopping;
    bool failed;
};

uint64_t tsp_copier_chunk(const struct tsi_layout *ring)
{
    uint64_t samples = (CHUNK_BYTES + ring->sample_bytes - 1) / ring->sample_bytes;
    uint64_t most = ring->capacity / CHUNKS_PER_RING;

    return most == 0 ? 1 : MIN(samples, most);
}

/* --- a device's work; its context is current */

static uint64_t device_at(const struct lane *lane, uint32_t field, uint64_t slot)
{
    const struct tsi_layout *ring = &lane->copier->ring;

    return (uintptr_t)lane->arena->base + ring->offset[field] + slot * ring->fields[field].sample_bytes;
}

/* How many samples from `position` on lie behind one another both in staging and in the ring. */
static uint64_t run_length(const struct tsp_copier *copier, uint64_t position, uint64_t end)
{
    uint64_t in_ring = copier->ring.capacity - position % copier->ring.capacity;
    uint64_t in_staging = copier->staging.capacity - position % copier->staging.capacity;

    return MIN(end - position, MIN(in_ring, in_staging));
}

static int copy_field(const struct lane *lane, uint32_t field, uint64_t position, uint64_t n)
{
    struct tsp_copier *copier = lane->copier;
    const struct tsi_cuda *cuda = &lane->arena->device->cuda;
    uint64_t slot = position % copier->ring.capacity;
    uint64_t bytes = copier->ring.fields[field].sample_bytes;
    uint64_t to = device_at(lane, field, slot);
    uint64_t mirrored = slot < copier->ring.mirror ? MIN(n, copier->ring.mirror - slot) : 0;
    int result = cuda->cuMemcpyHtoDAsync(to, tsp_copier_at(copier, field, position), n * bytes, lane->stream);

    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "copy of field %s to %s: cuMemcpyHtoDAsync", copier->ring.fields[field].name,
                             lane->arena->device->name);
    if (mirrored == 0)
        return TSOCKET_OK;
    result = cuda->cuMemcpyDtoDAsync(device_at(lane, field, copier->ring.capacity + slot), to, mirrored * bytes,
                                     lane->stream);
    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "mirror of field %s on %s: cuMemcpyDtoDAsync",
                             copier->ring.fields[field].name, lane->arena->device->name);
    return TSOCKET_OK;
}

/* Asks for the copies of [issued, end) and for an event behind them. */
static int issue(struct lane *lane, uint64_t end)
{
    const struct tsp_copier *copier = lane->copier;
    const struct tsi_cuda *cuda = &lane->arena->device->cuda;
    unsigned last = (lane->first + lane->n_flight) % FLIGHT_MAX;
    int result, rc = TSOCKET_OK;

    for (uint64_t position = lane->issued, n; rc == TSOCKET_OK && position < end; position += n) {
        n = run_length(copier, position, end);
        for (uint32_t field = 0; rc == TSOCKET_OK && field < copier->ring.n_fields; field++)
            rc = copy_field(lane, field, position, n);
    }
    if (rc != TSOCKET_OK)
        return rc;
    result = cuda->cuEventRecord(lane->flight[last].event, lane->stream);
    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "copies to %s: cuEventRecord", lane->arena->device->name);
    lane->flight[last].end = end;
    lane->n_flight++;
    return TSOCKET_OK;
}

/* Waits for the oldest chunk that is being copied. */
static int retire(struct lane *lane, uint64_t *end_out)
{
    const struct tsi_cuda *cuda = &lane->arena->device->cuda;
    int result = cuda->cuEventSynchronize(lane->flight[lane->first].event);

    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "copies to %s: cuEventSynchronize", lane->arena->device->name);
    *end_out = lane->flight[lane->first].end;
    lane->first = (lane->first + 1) % FLIGHT_MAX;
    lane->n_flight--;
    return TSOCKET_OK;
}

/* --- a device's thread; with the lock, but around the calls above and the callbacks */

/* Where the next chunk ends; issued: there is none yet. */
static uint64_t next_end(const struct lane *lane)
{
    const struct tsp_copier *copier = lane->copier;

    if (copier->head - lane->issued >= copier->options.chunk)
        return lane->issued + copier->options.chunk;
    return copier->flush > lane->issued ? copier->head : lane->issued;
}

/* Raises done to what the slowest device has. Returns whether it has risen. */
static bool update_done(struct tsp_copier *copier)
{
    uint64_t least = UINT64_MAX;

    for (unsigned i = 0; i < copier->n_lanes; i++)
        least = MIN(least, copier->lanes[i].done);
    if (least == copier->done)
        return false;
    assert(least > copier->done && least <= copier->head);
    copier->done = least;
    return true;
}

static void fail(struct tsp_copier *copier, int rc)
{
    bool first = !copier->failed && !copier->stopping;

    copier->failed = true;
    pthread_cond_broadcast(&copier->changed);
    if (!first)
        return;
    pthread_mutex_unlock(&copier->lock);
    copier->options.failed(copier->options.context, rc, tsocket_last_error());
    pthread_mutex_lock(&copier->lock);
}

/* Does one thing: asks for a chunk, waits for one, or waits for something to do. */
static int step(struct lane *lane)
{
    struct tsp_copier *copier = lane->copier;
    uint64_t end = next_end(lane);
    bool asks = end > lane->issued && lane->n_flight < FLIGHT_MAX;
    int rc;

    if (!asks && lane->n_flight == 0) {
        pthread_cond_wait(&copier->changed, &copier->lock);
        return TSOCKET_OK;
    }
    pthread_mutex_unlock(&copier->lock);
    rc = asks ? issue(lane, end) : retire(lane, &end);
    pthread_mutex_lock(&copier->lock);
    if (rc != TSOCKET_OK)
        return rc;
    if (asks)
        lane->issued = end;
    else
        lane->done = end;
    if (!update_done(copier))
        return TSOCKET_OK;
    pthread_mutex_unlock(&copier->lock);
    copier->options.moved(copier->options.context);
    pthread_mutex_lock(&copier->lock);
    return TSOCKET_OK;
}

static void *run(void *argument)
{
    struct lane *lane = argument;
    struct tsp_copier *copier = lane->copier;
    int rc = tsi_device_enter(lane->arena->device);
    bool entered = rc == TSOCKET_OK;

    pthread_mutex_lock(&copier->lock);
    while (rc == TSOCKET_OK && !copier->stopping && !copier->failed)
        rc = step(lane);
    if (rc != TSOCKET_OK)
        fail(copier, rc);
    pthread_mutex_unlock(&copier->lock);
    if (entered) {
        lane->arena->device->cuda.cuStreamSynchronize(lane->stream); /* nobody reads staging afterwards */
        tsi_device_leave(lane->arena->device);
    }
    return NULL;
}

/* --- life */

static int check(const struct tsp_copier_options *options)
{
    uint64_t capacity = options->ring->capacity;

    if (options->n_arenas == 0 || options->n_arenas > TSI_DEVICES_MAX)
        return tsi_fail(TSOCKET_EINVAL, "rings in %u devices; 1 to %d are possible", options->n_arenas,
                        TSI_DEVICES_MAX);
    if (options->staging == 0 || options->staging > capacity || options->chunk == 0 ||
        options->chunk > options->staging)
        return tsi_fail(TSOCKET_EINVAL,
                        "chunks of %" PRIu64 " samples in a staging of %" PRIu64 " for a ring of %" PRIu64
                        "; each must be 1 to the next",
                        options->chunk, options->staging, capacity);
    return TSOCKET_OK;
}

/* Memory near the card costs it less to read; where the kernel knows no nodes, any will do. */
static void prefer_node(void *memory, uint64_t bytes, int node)
{
    unsigned long nodes[NODES_MAX / (8 * sizeof(unsigned long))] = {0};
    const unsigned bits = 8 * sizeof(unsigned long);

    if (node < 0 || node >= NODES_MAX)
        return;
    nodes[(unsigned)node / bits] = 1ul << (unsigned)node % bits;
    syscall(SYS_mbind, memory, bytes, MPOL_PREFERRED, nodes, NODES_MAX, 0);
}

/* Staging has the same fields. It needs no mirror, and a layout has one of at least one sample. */
static int make_staging(struct tsp_copier *copier)
{
    const struct tsi_layout *ring = &copier->ring;
    int rc = tsi_layout_init(ring->fields, ring->n_fields, copier->options.staging, 1, &copier->staging);

    if (rc != TSOCKET_OK)
        return rc;
    copier->memory = mmap(NULL, copier->staging.bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (copier->memory == MAP_FAILED) {
        copier->memory = NULL;
        return tsi_fail_errno(TSOCKET_ENOMEM, "cannot map %" PRIu64 " bytes of staging memory", copier->staging.bytes);
    }
    prefer_node(copier->memory, copier->staging.bytes,
                tsi_device_attribute(copier->options.arenas[0].device, TSI_CU_ATTRIBUTE_HOST_NUMA));
    return TSOCKET_OK;
}

/* For all devices at once. */
static int pin(struct tsp_copier *copier)
{
    const struct tsi_device *device = copier->options.arenas[0].device;
    int result, rc = tsi_device_enter(device);

    if (rc != TSOCKET_OK)
        return rc;
    result = device->cuda.cuMemHostRegister(copier->memory, copier->staging.bytes, TSI_CU_HOST_PORTABLE);
    tsi_device_leave(device);
    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(&device->cuda, result, "cannot pin %" PRIu64 " bytes of host memory: cuMemHostRegister",
                             copier->staging.bytes);
    copier->pinned = true;
    return TSOCKET_OK;
}

static int prepare_lane(struct lane *lane)
{
    const struct tsi_cuda *cuda = &lane->arena->device->cuda;
    int result = cuda->cuStreamCreate(&lane->stream, TSI_CU_STREAM_NON_BLOCKING);

    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "cuStreamCreate on %s", lane->arena->device->name);
    for (int i = 0; i < FLIGHT_MAX; i++) {
        result = cuda->cuEventCreate(&lane->flight[i].event, TSI_CU_EVENT_BLOCKING_SYNC | TSI_CU_EVENT_DISABLE_TIMING);
        if (result != TSI_CU_SUCCESS)
            return tsi_cuda_fail(cuda, result, "cuEventCreate on %s", lane->arena->device->name);
    }
    return TSOCKET_OK;
}

/* A lane that has failed half-way is closed like a whole one. */
static int open_lane(struct lane *lane)
{
    int error, rc = tsi_device_enter(lane->arena->device);

    if (rc != TSOCKET_OK)
        return rc;
    rc = prepare_lane(lane);
    tsi_device_leave(lane->arena->device);
    if (rc != TSOCKET_OK)
        return rc;
    error = pthread_create(&lane->thread, NULL, run, lane);
    if (error != 0)
        return tsi_fail(TSOCKET_ESYSTEM, "pthread_create: %s", strerror(error));
    lane->running = true;
    return TSOCKET_OK;
}

static void close_lane(struct lane *lane)
{
    const struct tsi_device *device = lane->arena->device;

    if (lane->running)
        pthread_join(lane->thread, NULL);
    for (int i = 0; i < FLIGHT_MAX; i++) {
        if (lane->flight[i].event != NULL)
            device->cuda.cuEventDestroy(lane->flight[i].event);
    }
    if (lane->stream == NULL || tsi_device_enter(device) != TSOCKET_OK)
        return;
    device->cuda.cuStreamDestroy(lane->stream);
    tsi_device_leave(device);
}

static int start(struct tsp_copier *copier)
{
    int rc = TSOCKET_OK;

    if (copier->options.host != NULL) {
        copier->staging = copier->ring;
        copier->memory = copier->options.host;
    } else {
        rc = make_staging(copier);
    }
    if (rc == TSOCKET_OK)
        rc = pin(copier);
    while (rc == TSOCKET_OK && copier->n_lanes < copier->options.n_arenas)
        rc = open_lane(&copier->lanes[copier->n_lanes++]);
    return rc;
}

int tsp_copier_create(const struct tsp_copier_options *options, struct tsp_copier **copier_out)
{
    struct tsp_copier *copier;
    int rc = check(options);

    if (rc != TSOCKET_OK)
        return rc;
    copier = calloc(1, sizeof(*copier));
    if (copier == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for a copier");
    copier->options = *options;
    copier->ring = *options->ring;
    pthread_mutex_init(&copier->lock, NULL);
    pthread_cond_init(&copier->changed, NULL);
    for (unsigned i = 0; i < options->n_arenas; i++) {
        copier->lanes[i].copier = copier;
        copier->lanes[i].arena = &options->arenas[i];
    }
    rc = start(copier);
    if (rc != TSOCKET_OK) {
        tsp_copier_destroy(copier);
        return rc;
    }
    *copier_out = copier;
    return TSOCKET_OK;
}

/* Lets staging go; but not what the driver still takes for pinned, since its context cannot be reached any more. */
static bool free_staging(struct tsp_copier *copier)
{
    const struct tsi_device *device = copier->options.arenas[0].device;

    if (copier->pinned) {
        if (tsi_device_enter(device) != TSOCKET_OK)
            return false;
        device->cuda.cuMemHostUnregister(copier->memory);
        tsi_device_leave(device);
    }
    if (copier->memory != NULL && copier->options.host == NULL)
        munmap(copier->memory, copier->staging.bytes);
    return true;
}

bool tsp_copier_destroy(struct tsp_copier *copier)
{
    bool is_free;

    if (copier == NULL)
        return true;
    pthread_mutex_lock(&copier->lock);
    copier->stopping = true;
    pthread_cond_broadcast(&copier->changed);
    pthread_mutex_unlock(&copier->lock);
    for (unsigned i = 0; i < copier->n_lanes; i++)
        close_lane(&copier->lanes[i]);
    is_free = free_staging(copier);
    pthread_cond_destroy(&copier->changed);
    pthread_mutex_destroy(&copier->lock);
    free(copier);
    return is_free;
}

/* --- what the engine asks */

void *tsp_copier_at(const struct tsp_copier *copier, uint32_t field, uint64_t position)
{
    return tsi_layout_at(&copier->staging, copier->memory, field, position);
}

/* Most pushes bring one sample, and no chunk: the threads sleep on. */
void tsp_copier_push(struct tsp_copier *copier, uint64_t head, bool flush)
{
    bool wake = false;

    pthread_mutex_lock(&copier->lock);
    assert(head >= copier->head && head - copier->done <= copier->staging.capacity);
    copier->head = head;
    if (flush)
        copier->flush = head;
    for (unsigned i = 0; i < copier->n_lanes; i++)
        wake = wake || next_end(&copier->lanes[i]) > copier->lanes[i].issued;
    if (wake)
        pthread_cond_broadcast(&copier->changed);
    pthread_mutex_unlock(&copier->lock);
}

void tsp_copier_restart(struct tsp_copier *copier, uint64_t position)
{
    pthread_mutex_lock(&copier->lock);
    assert(copier->done == copier->head); /* so that no thread has anything to do */
    copier->head = copier->flush = copier->done = position;
    for (unsigned i = 0; i < copier->n_lanes; i++)
        copier->lanes[i].issued = copier->lanes[i].done = position;
    pthread_mutex_unlock(&copier->lock);
}

uint64_t tsp_copier_done(struct tsp_copier *copier)
{
    uint64_t done;

    pthread_mutex_lock(&copier->lock);
    done = copier->done;
    pthread_mutex_unlock(&copier->lock);
    return done;
}

uint64_t tsp_copier_limit(struct tsp_copier *copier)
{
    return tsp_copier_done(copier) + copier->staging.capacity;
}
