/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams: each has a worker that does its work in order, late. Work that waits for an event of another stream is work
 * like the rest.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum work_kind {
    COPY_IN,  /* host to device */
    COPY_OUT, /* device to host */
    COPY,     /* on the device */
    FILL,
    RECORD,
    WAIT,
    LAUNCH,
};

struct work {
    struct work *next;
    enum work_kind kind;
    uint64_t to, from; /* host or device addresses, as the kind says */
    size_t bytes;
    unsigned char value;
    uint64_t checksum; /* of what a COPY_IN is to copy, as it was when it was asked for */
    struct tsi_cu_event *event;
    uint64_t number; /* the record of the event that is meant */
    struct sim_launch *launch;
};

struct tsi_cu_stream {
    struct tsi_cu_context *context;
    struct tsi_cu_stream *next; /* in the list of all */
    struct work *first, **last;
    bool busy;
    bool ending;
    uint64_t random;
};

static struct tsi_cu_stream *streams;

/* --- what the worker does; without the lock where the work itself is done */

/* FNV-1a over 8 bytes at a time. */
static uint64_t checksum_of(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    while (bytes > 0) {
        size_t n = bytes < 8 ? bytes : 8;
        uint64_t word = 0;

        memcpy(&word, at, n);
        hash = (hash ^ word) * UINT64_C(0x100000001b3);
        at += n;
        bytes -= n;
    }
    return hash;
}

void sim_fault(struct tsi_cu_context *context, int error)
{
    if (context->error == TSI_CU_SUCCESS)
        context->error = error;
    pthread_cond_broadcast(&sim.changed);
}

static void sleep_a_while(struct tsi_cu_stream *stream, unsigned max_us)
{
    uint64_t us;

    if (max_us == 0)
        return;
    stream->random ^= stream->random << 13; /* xorshift64 (Marsaglia, 2003) */
    stream->random ^= stream->random >> 7;
    stream->random ^= stream->random << 17;
    us = stream->random % (max_us + 1);
    nanosleep(&(struct timespec){.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000}, NULL);
}

/* The memory behind a piece of work, looked up when it begins; what is closed then is gone. */
struct place {
    void *to;
    const void *from;
    struct sim_physical *physical[2];
};

static bool find_place(const struct tsi_cu_stream *stream, const struct work *work, struct place *place)
{
    bool to_host = work->kind == COPY_OUT, from_host = work->kind == COPY_IN, no_source = work->kind == FILL;

    *place = (struct place){.to = (void *)(uintptr_t)work->to, .from = (const void *)(uintptr_t)work->from};
    if (!to_host)
        place->to = sim_translate(stream->context, work->to, work->bytes, true, &place->physical[0]);
    if (place->to != NULL && !from_host && !no_source)
        place->from = sim_translate(stream->context, work->from, work->bytes, false, &place->physical[1]);
    return place->to != NULL && (no_source || place->from != NULL);
}

static void leave_place(struct place *place)
{
    for (int i = 0; i < 2; i++) {
        if (place->physical[i] != NULL)
            sim_physical_unref(place->physical[i]);
    }
}

static void move(struct tsi_cu_stream *stream, const struct work *work)
{
    struct place place;
    bool found = find_place(stream, work, &place);
    bool reused = false;
    unsigned delay_us = sim.delay_us;

    if (!found)
        sim_fault(stream->context, TSI_CU_ERROR_ILLEGAL_ADDRESS);
    if (found) {
        pthread_mutex_unlock(&sim.lock);
        sleep_a_while(stream, delay_us);
        reused = work->kind == COPY_IN && checksum_of(place.from, work->bytes) != work->checksum;
        if (work->kind == FILL)
            memset(place.to, work->value, work->bytes);
        else
            memcpy(place.to, place.from, work->bytes);
        pthread_mutex_lock(&sim.lock);
    }
    if (reused)
        sim_violation(SIMCUDA_EARLY_REUSE);
    leave_place(&place);
}

static void launch(struct tsi_cu_stream *stream, struct work *work)
{
    unsigned delay_us = sim.delay_us;
    int result;

    pthread_mutex_unlock(&sim.lock);
    sleep_a_while(stream, delay_us);
    result = sim_launch_run(work->launch, stream->context);
    pthread_mutex_lock(&sim.lock);
    if (result != TSI_CU_SUCCESS)
        sim_fault(stream->context, result);
}

static void do_work(struct tsi_cu_stream *stream, struct work *work)
{
    bool broken = stream->context->error != TSI_CU_SUCCESS;

    switch (work->kind) {
    case RECORD:
        sim_event_pass(work->event, work->number);
        break;
    case WAIT:
        sim_event_await(work->event, work->number);
        break;
    case LAUNCH:
        if (!broken)
            launch(stream, work);
        break;
    default:
        if (!broken)
            move(stream, work);
    }
}

static void free_work(struct work *work)
{
    if (work->event != NULL)
        sim_event_unref(work->event);
    if (work->launch != NULL)
        sim_launch_free(work->launch);
    free(work);
}

static void forget(struct tsi_cu_stream *stream)
{
    struct tsi_cu_stream **at = &streams;

    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    free(stream);
    pthread_cond_broadcast(&sim.changed);
}

static void *run(void *argument)
{
    struct tsi_cu_stream *stream = argument;

    pthread_mutex_lock(&sim.lock);
    while (!stream->ending || stream->first != NULL) {
        struct work *work = stream->first;

        if (work == NULL || sim.held || sim.down) {
            pthread_cond_wait(&sim.changed, &sim.lock);
            continue;
        }
        stream->first = work->next;
        if (stream->first == NULL)
            stream->last = &stream->first;
        stream->busy = true;
        do_work(stream, work);
        stream->busy = false;
        sim.pending--;
        free_work(work);
        pthread_cond_broadcast(&sim.changed);
    }
    forget(stream);
    pthread_mutex_unlock(&sim.lock);
    return NULL;
}

/* --- streams */

static bool is_idle(const struct tsi_cu_stream *stream)
{
    return stream->first == NULL && !stream->busy;
}

static void wait_for(struct tsi_cu_stream *stream)
{
    while (!is_idle(stream))
        pthread_cond_wait(&sim.changed, &sim.lock);
}

void sim_drain(struct tsi_cu_context *context)
{
    struct tsi_cu_stream *stream = streams;

    while (stream != NULL) {
        if (stream->context != context || is_idle(stream)) {
            stream = stream->next;
            continue;
        }
        pthread_cond_wait(&sim.changed, &sim.lock);
        stream = streams; /* the list may have changed meanwhile */
    }
}

static struct tsi_cu_stream *create_stream(struct tsi_cu_context *context)
{
    struct tsi_cu_stream *stream = calloc(1, sizeof(*stream));
    pthread_attr_t detached;
    pthread_t thread;
    bool started;

    if (stream == NULL)
        return NULL;
    stream->context = context;
    stream->last = &stream->first;
    stream->random = (sim.seed + ++sim.n_streams) * UINT64_C(0x9e3779b97f4a7c15) | 1;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    started = pthread_create(&thread, &detached, run, stream) == 0;
    pthread_attr_destroy(&detached);
    if (!started) {
        free(stream);
        return NULL;
    }
    stream->next = streams;
    streams = stream;
    return stream;
}

/* NULL and CU_STREAM_LEGACY are the context's own, and so is CU_STREAM_PER_THREAD for as far as one thread can tell. */
static bool is_own(const struct tsi_cu_stream *stream)
{
    return (uintptr_t)stream <= 2;
}

/* The stream that a call means. */
static struct tsi_cu_stream *stream_of(struct tsi_cu_context *context, struct tsi_cu_stream *stream)
{
    if (!is_own(stream))
        return stream;
    if (context->null_stream == NULL)
        context->null_stream = create_stream(context);
    return context->null_stream;
}

int cuStreamCreate(struct tsi_cu_stream **stream_out, unsigned flags)
{
    struct tsi_cu_context *context;
    struct tsi_cu_stream *stream;
    int result = sim_enter(SIM_cuStreamCreate, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    if ((flags & ~(unsigned)TSI_CU_STREAM_NON_BLOCKING) != 0)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    stream = create_stream(context);
    if (stream == NULL)
        return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
    sim.live[SIM_KIND_STREAM]++;
    *stream_out = stream;
    return sim_leave(TSI_CU_SUCCESS);
}

/* Work that it still has is done all the same; the worker frees it then. */
int cuStreamDestroy_v2(struct tsi_cu_stream *stream)
{
    struct tsi_cu_context *context;
    struct tsi_cu_stream *found;
    int result;

    if (!sim_enter_free(SIM_cuStreamDestroy, &context, &result))
        return result;
    found = streams;
    while (found != NULL && found != stream)
        found = found->next;
    if (found == NULL || found->ending) {
        sim_violation(SIMCUDA_DOUBLE_FREE);
        return sim_leave(TSI_CU_ERROR_INVALID_HANDLE);
    }
    stream->ending = true;
    sim.live[SIM_KIND_STREAM]--;
    pthread_cond_broadcast(&sim.changed);
    return sim_leave(result);
}

int cuStreamSynchronize(struct tsi_cu_stream *stream)
{
    struct tsi_cu_context *context;
    int result = sim_enter(SIM_cuStreamSynchronize, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    stream = stream_of(context, stream);
    if (stream == NULL)
        return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
    wait_for(stream);
    return sim_leave(stream->context->error);
}

/* --- work */

static int give(struct tsi_cu_context *context, struct tsi_cu_stream *stream, const struct work *filled)
{
    struct work *work;

    stream = stream_of(context, stream);
    work = stream != NULL ? malloc(sizeof(*work)) : NULL;
    if (work == NULL)
        return TSI_CU_ERROR_OUT_OF_MEMORY;
    *work = *filled;
    *stream->last = work;
    stream->last = &work->next;
    sim.pending++;
    pthread_cond_broadcast(&sim.changed);
    return TSI_CU_SUCCESS;
}

/* A copy from or to host memory: one that is not registered makes the caller wait, as the real driver does. */
static int give_host(struct tsi_cu_context *context, struct tsi_cu_stream *stream, const struct work *work,
                     const void *host)
{
    int result = give(context, stream, work);

    if (result != TSI_CU_SUCCESS || sim_is_registered(context, host, work->bytes))
        return result;
    sim.pageable_copies++;
    wait_for(stream_of(context, stream));
    return context->error;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *host, size_t bytes, struct tsi_cu_stream *stream)
{
    struct work work = {.kind = COPY_IN, .to = to, .from = (uintptr_t)host, .bytes = bytes};
    struct tsi_cu_context *context;
    int result = sim_enter(SIM_cuMemcpyHtoDAsync, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    work.checksum = checksum_of(host, bytes);
    return sim_leave(give_host(context, stream, &work, host));
}

int cuMemcpyDtoHAsync_v2(void *host, uint64_t from, size_t bytes, struct tsi_cu_stream *stream)
{
    struct work work = {.kind = COPY_OUT, .to = (uintptr_t)host, .from = from, .bytes = bytes};
    struct tsi_cu_context *context;
    int result = sim_enter(SIM_cuMemcpyDtoHAsync, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    return sim_leave(give_host(context, stream, &work, host));
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, struct tsi_cu_stream *stream)
{
    struct work work = {.kind = COPY, .to = to, .from = from, .bytes = bytes};
    struct tsi_cu_context *context;
    int result = sim_enter(SIM_cuMemcpyDtoDAsync, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    return sim_leave(give(context, stream, &work));
}

int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, struct tsi_cu_stream *stream)
{
    struct work work = {.kind = FILL, .to = to, .bytes = bytes, .value = value};
    struct tsi_cu_context *context;
    int result = sim_enter(SIM_cuMemsetD8Async, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    return sim_leave(give(context, stream, &work));
}

int sim_stream_launch(struct tsi_cu_context *context, struct tsi_cu_stream *stream, struct sim_launch *launched)
{
    struct work work = {.kind = LAUNCH, .launch = launched};

    return give(context, stream, &work);
}

int sim_stream_event(struct tsi_cu_context *context, struct tsi_cu_stream *stream, bool record,
                     struct tsi_cu_event *event, uint64_t number)
{
    struct work work = {.kind = record ? RECORD : WAIT, .event = event, .number = number};
    int result = give(context, stream, &work);

    if (result == TSI_CU_SUCCESS)
        event->refs++;
    return result;
}

int sim_stream_device(const struct tsi_cu_context *context, const struct tsi_cu_stream *stream)
{
    return is_own(stream) ? context->device : stream->context->device;
}

/* --- for tests */

void simcuda_break(int device, int error)
{
    pthread_mutex_lock(&sim.lock);
    sim_fault(&sim.contexts[device], error);
    pthread_mutex_unlock(&sim.lock);
}

void simcuda_hold(bool held)
{
    pthread_mutex_lock(&sim.lock);
    sim.held = held;
    pthread_cond_broadcast(&sim.changed);
    pthread_mutex_unlock(&sim.lock);
}

unsigned long simcuda_pending(void)
{
    unsigned long n;

    pthread_mutex_lock(&sim.lock);
    n = sim.pending;
    pthread_mutex_unlock(&sim.lock);
    return n;
}

unsigned long simcuda_pageable_copies(void)
{
    unsigned long n;

    pthread_mutex_lock(&sim.lock);
    n = sim.pageable_copies;
    pthread_mutex_unlock(&sim.lock);
    return n;
}
