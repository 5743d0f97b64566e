/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ipc/clock.h"
#include "../ipc/log.h"
#include "cache.h"
#include "order.h"

enum {
    STAGE_READ,
    STAGE_DECODE,
};

const char *const tsp_stage_names[TSOCKET_STAGES_MAX] = {[STAGE_READ] = "read", [STAGE_DECODE] = "decode"};

/* One decode thread; all of it belongs to that thread once it runs. */
struct worker {
    struct tsp_pipeline *pipeline;
    pthread_t thread;
    struct tsp_decoder *decoder;
    struct tsp_encoded encoded;
    struct tsp_encoded cached; /* borrows its pixels from the cache */
};

/* Constant while the threads run. */
struct tsp_pipeline {
    struct tsocket_producer *producer;
    struct tsp_stream_plan plans[TSOCKET_STREAMS_MAX];
    struct tsp_cache *cache; /* borrowed; NULL: none */
    uint32_t n_workers;
    struct worker workers[];
};

/* Fields are dense arrays whose elements may lie anywhere: copy, do not cast. */
static void write_aug(const struct tsp_view *view, void *data)
{
    const float values[TSP_AUG_VALUES] = {(float)view->x, (float)view->y, (float)view->width, (float)view->height,
                                          view->flip ? 1 : 0};
    memcpy(data, values, sizeof values);
}

static enum tsp_bad draw_views(struct worker *worker, const struct tsp_stream_plan *plan,
                               const struct tsp_encoded *encoded, uint64_t sample, const struct tsocket_claim *claim)
{
    struct tsp_view views[TSP_VIEWS_MAX];
    uint32_t width, height, n = tsp_stream_plan_views(plan);
    enum tsp_bad bad = tsp_decoder_header(worker->decoder, encoded, plan->recipe.exif, &width, &height);
    if (bad != TSP_GOOD)
        return bad;
    for (uint32_t i = 0; i < n; i++) {
        tsp_stream_plan_draw(plan, claim->epoch, sample, i, width, height, &views[i]);
        views[i].out.data = claim->data[tsp_stream_plan_image(plan, i)];
        if (plan->aug)
            write_aug(&views[i], claim->data[tsp_stream_plan_aug(plan, i)]);
    }
    return tsp_decoder_draw(worker->decoder, views, n);
}

/* The cache of the stream's pictures; NULL: none. What is decoded smaller, or is pixels already, gains nothing. */
static struct tsp_cache *cache_of(const struct worker *worker, const struct tsp_stream_plan *plan)
{
    return tsp_stream_plan_is_fast(plan) || plan->source->raw_width > 0 ? NULL : worker->pipeline->cache;
}

/*
 * Puts the sample that has been read into the cache, if there is room. A picture that is damaged where the crop does
 * not reach is not kept and not refused: the sample must not depend on the cache.
 */
static bool keep(struct worker *worker, struct tsp_cache *cache, uint32_t stream, uint64_t sample)
{
    struct tsp_pixels pixels;
    uint32_t width, height, orientation;
    if (tsp_decoder_header(worker->decoder, &worker->encoded, true, &width, &height) != TSP_GOOD ||
        !tsp_cache_has_room(cache, width, height) ||
        tsp_decoder_whole(worker->decoder, &pixels, &orientation) != TSP_GOOD)
        return false;
    return tsp_cache_offer(cache, stream, sample, &pixels, orientation, &worker->cached);
}

/* Reads the sample, or finds it in the cache: *encoded_out is it. */
static enum tsp_bad fetch(struct worker *worker, const struct tsp_stream_plan *plan, uint32_t stream, uint64_t sample,
                          const struct tsp_encoded **encoded_out)
{
    struct tsp_cache *cache = cache_of(worker, plan);
    *encoded_out = &worker->cached;
    if (cache && tsp_cache_find(cache, stream, sample, &worker->cached))
        return TSP_GOOD;
    enum tsp_bad bad = plan->source->ops->read(plan->source, sample, &worker->encoded);
    if (bad == TSP_GOOD && (!cache || !keep(worker, cache, stream, sample)))
        *encoded_out = &worker->encoded;
    return bad;
}

/* Images and their augs; label, index and valid are written in any case. */
static void zero_fields(const struct tsp_stream_plan *plan, const struct tsocket_claim *claim)
{
    struct tsocket_field fields[TSOCKET_FIELDS_MAX];
    uint32_t n = tsp_stream_plan_fields(plan, fields);
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes = tsocket_dtype_bytes(fields[i].dtype);
        for (uint32_t k = 0; k < fields[i].ndim; k++)
            bytes *= fields[i].shape[k];
        memset(claim->data[i], 0, bytes);
    }
}

static void write_int64(void *data, int64_t value)
{
    memcpy(data, &value, sizeof value);
}

static void write_other_fields(const struct tsp_stream_plan *plan, uint64_t sample, bool valid,
                               const struct tsocket_claim *claim)
{
    write_int64(claim->data[TSP_FIELD_LABEL], plan->source->ops->label(plan->source, sample));
    write_int64(claim->data[TSP_FIELD_INDEX], (int64_t)sample);
    if (plan->on_bad == TSOCKET_BAD_MASK)
        *(uint8_t *)claim->data[TSP_FIELD_VALID] = valid;
}

static void hand_back_bad(struct worker *worker, const struct tsp_stream_plan *plan, uint64_t sample, enum tsp_bad bad,
                          const char *reason, const struct tsocket_claim *claim)
{
    char key[512], why[1024];
    tsi_log_quote(plan->source->ops->key(plan->source, sample), key, sizeof key);
    snprintf(why, sizeof why, "%s: %s", key, reason);
    if (bad == TSP_STOP) {
        tsocket_producer_fail(worker->pipeline->producer, TSOCKET_ESYSTEM, why);
        return;
    }
    if (plan->on_bad == TSOCKET_BAD_MASK) {
        zero_fields(plan, claim);
        write_other_fields(plan, sample, false, claim);
    }
    tsocket_producer_reject(worker->pipeline->producer, claim, tsp_bad_word(bad), why);
}

/* Makes one sample. False: the run cannot go on. */
static bool make_sample(struct worker *worker, struct tsocket_claim *claim)
{
    const struct tsp_stream_plan *plan = &worker->pipeline->plans[claim->stream];
    const struct tsp_order order = {plan->source->count, plan->recipe.seed, plan->recipe.shuffle};
    uint64_t sample = tsp_order_at(&order, claim->epoch, claim->ordinal);

    uint64_t begun = tsi_clock_ns();
    const char *reason = worker->encoded.why;
    const struct tsp_encoded *encoded;
    enum tsp_bad bad = fetch(worker, plan, claim->stream, sample, &encoded);
    uint64_t read = tsi_clock_ns();
    if (bad == TSP_GOOD) {
        reason = tsp_decoder_why(worker->decoder);
        bad = draw_views(worker, plan, encoded, sample, claim);
    }
    claim->stage_ns[STAGE_READ] = read - begun;
    claim->stage_ns[STAGE_DECODE] = tsi_clock_ns() - read;
    if (bad != TSP_GOOD) {
        hand_back_bad(worker, plan, sample, bad, reason, claim);
        return bad != TSP_STOP;
    }
    write_other_fields(plan, sample, true, claim);
    tsocket_producer_commit(worker->pipeline->producer, claim);
    return true;
}

static void *worker_main(void *context)
{
    struct worker *worker = context;
    struct tsocket_claim claim;
    while (tsocket_producer_claim(worker->pipeline->producer, -1, &claim) == TSOCKET_OK)
        if (!make_sample(worker, &claim))
            break;
    return NULL;
}

/* Waits for the first `started` threads, and frees what all workers have. */
static void finish(struct tsp_pipeline *pipeline, uint32_t started)
{
    for (uint32_t i = 0; i < started; i++)
        pthread_join(pipeline->workers[i].thread, NULL);
    for (uint32_t i = 0; i < pipeline->n_workers; i++) {
        tsp_decoder_destroy(pipeline->workers[i].decoder);
        tsp_encoded_fini(&pipeline->workers[i].encoded);
    }
    free(pipeline);
}

/* Starts the threads with all signals blocked: those belong to the main thread. Returns how many run. */
static uint32_t start_threads(struct tsp_pipeline *pipeline, int *error_out)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);
    uint32_t started = 0;
    *error_out = 0;
    while (started < pipeline->n_workers && *error_out == 0) {
        struct worker *worker = &pipeline->workers[started];
        *error_out = pthread_create(&worker->thread, NULL, worker_main, worker);
        started += *error_out == 0;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static bool create_decoders(struct tsp_pipeline *pipeline, const struct tsp_limits *limits)
{
    for (uint32_t i = 0; i < pipeline->n_workers; i++) {
        struct worker *worker = &pipeline->workers[i];
        worker->pipeline = pipeline;
        worker->decoder = tsp_decoder_create(limits);
        if (!worker->decoder)
            return false;
    }
    return true;
}

struct tsp_pipeline *tsp_pipeline_start(struct tsocket_producer *producer, const struct tsp_stream_plan *plans,
                                        uint32_t n_plans, const struct tsp_limits *limits, struct tsp_cache *cache,
                                        uint32_t workers, char *error, size_t len)
{
    struct tsp_pipeline *pipeline = calloc(1, sizeof *pipeline + workers * sizeof pipeline->workers[0]);
    if (!pipeline)
        goto no_memory;
    pipeline->producer = producer;
    memcpy(pipeline->plans, plans, n_plans * sizeof *plans);
    pipeline->cache = cache;
    pipeline->n_workers = workers;
    if (!create_decoders(pipeline, limits))
        goto no_memory;
    int failure;
    uint32_t started = start_threads(pipeline, &failure);
    if (started == workers)
        return pipeline;
    snprintf(error, len, "decode thread %u of %u could not be started: %s; --workers may be too many", started + 1,
             workers, strerror(failure));
    tsocket_producer_stop(producer);
    finish(pipeline, started);
    return NULL;

no_memory:
    snprintf(error, len, "no memory for %u decode threads", workers);
    if (pipeline)
        finish(pipeline, 0);
    tsocket_producer_stop(producer);
    return NULL;
}

void tsp_pipeline_join(struct tsp_pipeline *pipeline)
{
    if (pipeline)
        finish(pipeline, pipeline->n_workers);
}
