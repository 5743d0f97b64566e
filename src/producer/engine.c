/* SPDX-License-Identifier: Apache-2.0 */
#include "engine.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "../ipc/clock.h"
#include "../ipc/error.h"
#include "../ipc/log.h"
#include "../ipc/step.h"
#include "loop.h"
#include "status.h"
#include "talk.h"

enum {
    ALLOW_MAX = 1024, /* users or groups */
    ANY_STREAM = TSOCKET_STREAMS_MAX,
    COLLECT_MS = 250, /* for others who resume as well, where nobody said how many there will be */
};

/* --- life */

void tsocket_producer_options_init(struct tsocket_producer_options *options)
{
    *options = (struct tsocket_producer_options){.size = sizeof(*options),
                                                 .name = "main",
                                                 .join_grace_ms = 5000,
                                                 .max_hold_ms = 30000,
                                                 .side_share = 25,
                                                 .max_crashes = 20};
}

void tsocket_stream_options_init(struct tsocket_stream_options *options)
{
    *options =
        (struct tsocket_stream_options){.size = sizeof(*options), .name = "train", .capacity = 1024, .max_batch = 256};
}

/* Condition variables that count the time as tsi_clock_ns does. */
static int init_locks(struct tsocket_producer *producer)
{
    pthread_condattr_t attributes;
    int error = pthread_condattr_init(&attributes);

    if (error == 0)
        error = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    if (error == 0)
        error = pthread_cond_init(&producer->room, &attributes);
    if (error == 0)
        error = pthread_cond_init(&producer->ended, &attributes);
    if (error == 0)
        error = pthread_mutex_init(&producer->lock, NULL);
    pthread_condattr_destroy(&attributes);
    return error == 0 ? TSOCKET_OK : tsi_fail(TSOCKET_ENOMEM, "no memory for locks");
}

static int copy_ids(const uint32_t *ids, uint32_t n, uint32_t **copy_out)
{
    if (n > ALLOW_MAX)
        return tsi_fail(TSOCKET_EINVAL, "%u users or groups may attach; the limit is %d", n, ALLOW_MAX);
    if (n == 0)
        return TSOCKET_OK;
    *copy_out = malloc(n * sizeof(*ids));
    if (*copy_out == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for the list of users");
    memcpy(*copy_out, ids, n * sizeof(*ids));
    return TSOCKET_OK;
}

/* Nobody holds the lock: threads that copy may still want it. */
static void destroy_streams(struct tsocket_producer *producer)
{
    while (producer->n_streams > 0) {
        struct tsp_stream *last;

        pthread_mutex_lock(&producer->lock);
        last = producer->streams[--producer->n_streams];
        pthread_mutex_unlock(&producer->lock);
        tsp_stream_destroy(last);
    }
}

static void free_producer(struct tsocket_producer *producer)
{
    tsp_ledger_close(producer->ledger);
    tsi_runtime_give_back(&producer->runtime);
    free(producer->libraries);
    free(producer->allow_uids);
    free(producer->allow_gids);
    free(producer);
}

int tsocket_producer_open(const struct tsocket_producer_options *options, struct tsocket_producer **producer_out)
{
    struct tsocket_producer *producer;
    int rc = TSOCKET_OK;

    if (options == NULL || producer_out == NULL || options->size != sizeof(*options) || options->name == NULL)
        return tsi_fail(TSOCKET_EINVAL,
                        "producer options: call tsocket_producer_options_init of this library (%s) first",
                        tsocket_version());
    producer = calloc(1, sizeof(*producer));
    if (producer == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for a producer");
    producer->options = *options;
    producer->runtime.lock_fd = -1;
    producer->listener = producer->epoll_fd = producer->wake_fd = -1;
    if (options->libraries != NULL && (producer->libraries = strdup(options->libraries)) == NULL)
        rc = tsi_fail(TSOCKET_ENOMEM, "no memory for a text");
    if (rc == TSOCKET_OK)
        rc = copy_ids(options->allow_uids, options->n_allow_uids, &producer->allow_uids);
    if (rc == TSOCKET_OK)
        rc = copy_ids(options->allow_gids, options->n_allow_gids, &producer->allow_gids);
    if (rc == TSOCKET_OK)
        rc = init_locks(producer);
    if (rc == TSOCKET_OK)
        rc =
            tsi_runtime_take(options->name, options->n_allow_uids > 0 || options->n_allow_gids > 0, &producer->runtime);
    if (rc == TSOCKET_OK && options->ledger != NULL)
        rc = tsp_ledger_open(options->ledger, &producer->ledger);
    if (rc != TSOCKET_OK) {
        free_producer(producer);
        return rc;
    }
    strcpy(producer->name, options->name);
    *producer_out = producer;
    return TSOCKET_OK;
}

/*
 * The head may move: at once, from this thread. Sending may have swallowed the sign by which the loop would have seen
 * that a message has come; then it has to be woken by hand.
 */
static void publish(struct tsocket_producer *producer, uint64_t now_ns)
{
    tsp_talk_progress(producer, now_ns);
    if (producer->started && tsi_socket_pending(producer->socket))
        tsp_loop_wake(producer);
}

/* A copier's thread: what it has copied may be published. */
static void on_moved(void *context)
{
    struct tsocket_producer *producer = context;

    pthread_mutex_lock(&producer->lock);
    if (producer->outcome == TSOCKET_OK)
        publish(producer, tsi_clock_ns());
    pthread_mutex_unlock(&producer->lock);
}

/* A copier's thread: the GPU fails. */
static void on_failed(void *context, int rc, const char *why)
{
    tsocket_producer_fail(context, rc, why);
}

/* Where a GPU was wanted: what it came to. */
static void log_places(const struct tsp_stream *stream)
{
    char text[TSP_STORE_TEXT_MAX];

    if (stream->options.device == NULL)
        return;
    tsp_store_describe(&stream->store, text);
    tsi_log('I', "stream %s: its ring is in %s", stream->name, text);
}

static void record_stream(const struct tsocket_producer *producer, struct tsp_stream *stream)
{
    const struct tsocket_stream_options *options = &stream->options;

    stream->ledger = producer->ledger;
    for (uint32_t i = 0; i < stream->n_sides; i++)
        stream->sides[i]->ledger = producer->ledger;
    tsp_ledger_stream(producer->ledger, stream->number,
                      &(struct tsp_ledger_stream){.name = stream->name,
                                                  .dataset_id = options->dataset_id,
                                                  .recipe_id = options->recipe_id,
                                                  .seed = options->seed,
                                                  .epoch_samples = options->epoch_samples,
                                                  .resident = options->resident});
}

int tsocket_producer_add_stream(struct tsocket_producer *producer, const struct tsocket_stream_options *options,
                                uint32_t *stream_out)
{
    const struct tsp_store_watcher watcher = {.moved = on_moved, .failed = on_failed, .context = producer};
    uint32_t number = producer->n_streams;
    struct tsp_stream *stream;
    int rc;

    if (options == NULL || options->size != sizeof(*options))
        return tsi_fail(TSOCKET_EINVAL, "stream options: call tsocket_stream_options_init of this library (%s) first",
                        tsocket_version());
    if (producer->started || number == TSOCKET_STREAMS_MAX)
        return tsi_fail(TSOCKET_EINVAL, "streams are added before start, at most %d", TSOCKET_STREAMS_MAX);
    for (uint32_t i = 0; i < number; i++) {
        if (options->name != NULL && strcmp(producer->streams[i]->name, options->name) == 0)
            return tsi_fail(TSOCKET_EINVAL, "there is a stream \"%s\" already", options->name);
    }
    rc = tsp_stream_create(options, number, producer->options.join_grace_ms, &watcher, &stream);
    if (rc != TSOCKET_OK)
        return rc;
    record_stream(producer, stream);
    log_places(stream);
    stream->wait_for = number > 0 ? 0 : producer->options.wait_for;
    stream->open = stream->wait_for == 0;
    stream->collect_ns = stream->open ? COLLECT_MS * TSI_NS_PER_MS : 0;
    pthread_mutex_lock(&producer->lock); /* a copier that fails looks at all streams */
    producer->streams[producer->n_streams++] = stream;
    pthread_mutex_unlock(&producer->lock);
    if (stream_out != NULL)
        *stream_out = number;
    return TSOCKET_OK;
}

/* Signals are the program's business: none is ever delivered to the loop thread. */
static int start_thread(struct tsocket_producer *producer)
{
    sigset_t all, before;
    int error;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    error = pthread_create(&producer->thread, NULL, tsp_loop_run, producer);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error == 0 ? TSOCKET_OK : tsi_fail(TSOCKET_ESYSTEM, "cannot start the loop thread: %s", strerror(error));
}

int tsocket_producer_start(struct tsocket_producer *producer)
{
    int rc;

    if (producer->n_streams == 0 || producer->started)
        return tsi_fail(TSOCKET_EINVAL, "start needs a stream, and happens once");
    rc = tsp_loop_open(producer);
    if (rc != TSOCKET_OK)
        return rc;
    producer->started_ns = tsi_clock_ns();
    rc = start_thread(producer);
    if (rc != TSOCKET_OK)
        tsp_loop_close(producer);
    else
        producer->started = true;
    return rc;
}

static void stop_loop(struct tsocket_producer *producer)
{
    pthread_mutex_lock(&producer->lock);
    tsp_engine_end(producer, TSOCKET_END, "closed");
    producer->stopping = true;
    pthread_mutex_unlock(&producer->lock);
    tsp_loop_wake(producer);
    pthread_join(producer->thread, NULL);
}

/* Consumers learn from the page why the lifeline ends. */
static void tell_consumers(struct tsocket_producer *producer)
{
    for (uint32_t i = 0; i < producer->n_streams; i++) {
        if (tsi_control_state(producer->streams[i]->control) == TSI_RUNNING)
            tsp_stream_set_state(producer->streams[i], TSI_CLOSING);
    }
}

void tsocket_producer_close(struct tsocket_producer *producer)
{
    if (producer == NULL || producer->forked)
        return;
    if (producer->started) {
        stop_loop(producer);
        tell_consumers(producer);
        tsp_loop_part(producer);
        tsp_loop_close(producer);
    }
    destroy_streams(producer);
    pthread_mutex_destroy(&producer->lock);
    pthread_cond_destroy(&producer->room);
    pthread_cond_destroy(&producer->ended);
    free_producer(producer);
}

/* --- claims */

/* Waits on `condition` until the deadline. TSOCKET_EAGAIN: the time is over. */
static int wait_on(struct tsocket_producer *producer, pthread_cond_t *condition, uint64_t deadline_ns)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / TSI_NS_PER_S),
                             .tv_nsec = (long)(deadline_ns % TSI_NS_PER_S)};

    if (deadline_ns == UINT64_MAX)
        return pthread_cond_wait(condition, &producer->lock) == 0 ? TSOCKET_OK : TSOCKET_ESYSTEM;
    return pthread_cond_timedwait(condition, &producer->lock, &until) == ETIMEDOUT ? TSOCKET_EAGAIN : TSOCKET_OK;
}

static bool take_of(struct tsp_stream *ring, uint32_t name, struct tsocket_claim *claim)
{
    if (!tsp_filler_take(&ring->filler, &claim->position, &claim->ordinal))
        return false;
    claim->stream = ring->number;
    claim->ring = name;
    claim->epoch = ring->filler.epoch;
    return true;
}

/*
 * Rings in claims: those of the groups by their stream's number, then the side rings, by stream. (Side rings are few,
 * and nearly always idle.)
 */
static uint32_t side_name(uint32_t stream, uint32_t side)
{
    return TSOCKET_STREAMS_MAX + stream * TSOCKET_SIDE_RINGS_MAX + side;
}

static struct tsp_stream *ring_of(const struct tsocket_producer *producer, const struct tsocket_claim *claim)
{
    uint32_t side = claim->ring - TSOCKET_STREAMS_MAX;

    if (claim->ring < TSOCKET_STREAMS_MAX)
        return producer->streams[claim->ring];
    return producer->streams[side / TSOCKET_SIDE_RINGS_MAX]->sides[side % TSOCKET_SIDE_RINGS_MAX];
}

static bool take_for_group(struct tsocket_producer *producer, struct tsocket_claim *claim)
{
    for (uint32_t i = 0; i < producer->n_streams; i++) {
        uint32_t number = (producer->turn + i) % producer->n_streams;

        if (take_of(producer->streams[number], number, claim)) {
            producer->turn = number + 1;
            return true;
        }
    }
    return false;
}

static bool take_for_side(struct tsocket_producer *producer, struct tsocket_claim *claim)
{
    for (uint32_t i = 0; i < producer->n_streams; i++) {
        const struct tsp_stream *stream = producer->streams[i];

        for (uint32_t n = 0; n < stream->n_sides; n++) {
            uint32_t k = (producer->side_turn + n) % stream->n_sides;

            if (take_of(stream->sides[k], side_name(i, k), claim)) {
                producer->side_turn = k + 1;
                return true;
            }
        }
    }
    return false;
}

/*
 * The next place to fill: of stream `number`, or of all in turn. `side_due` rises by side_share with every claim for a
 * group and falls with every one for a side ring, so that these get their share where both have room; alone, either
 * gets all.
 */
static bool take(struct tsocket_producer *producer, uint32_t number, struct tsocket_claim *claim)
{
    int32_t share = (int32_t)producer->options.side_share;

    if (number != ANY_STREAM)
        return take_of(producer->streams[number], number, claim);
    if (producer->side_due >= 100 && take_for_side(producer, claim)) {
        producer->side_due -= 100 - share;
        return true;
    }
    if (take_for_group(producer, claim)) {
        producer->side_due = producer->side_due + share < 200 ? producer->side_due + share : 200;
        return true;
    }
    return take_for_side(producer, claim);
}

/* With side rings samples may be asked for again as long as anybody is there. */
static bool finished(const struct tsocket_producer *producer, uint32_t number)
{
    if (number != ANY_STREAM)
        return producer->streams[number]->finished;
    for (uint32_t i = 0; i < producer->n_streams; i++) {
        if (!producer->streams[i]->finished || producer->streams[i]->n_sides > 0)
            return false;
    }
    return true;
}

static int claim_of(struct tsocket_producer *producer, uint32_t number, uint64_t deadline_ns,
                    struct tsocket_claim *claim_out)
{
    struct tsocket_claim claim = {.begun_ns = tsi_clock_ns()};
    uint64_t asked_ns = claim.begun_ns;
    const struct tsp_stream *stream;
    int rc = TSOCKET_OK;

    pthread_mutex_lock(&producer->lock);
    while (rc == TSOCKET_OK) {
        if (producer->outcome != TSOCKET_OK || finished(producer, number))
            rc = TSOCKET_END;
        else if (take(producer, number, &claim))
            break;
        else
            rc = wait_on(producer, &producer->room, deadline_ns);
    }
    claim.begun_ns = tsi_clock_ns();
    producer->idle_ns += claim.begun_ns - asked_ns;
    pthread_mutex_unlock(&producer->lock);
    if (rc != TSOCKET_OK)
        return tsi_fail(rc, rc == TSOCKET_END ? "nothing is to be made any more" : "no room within the time");
    TSI_STEP(CLAIMED);
    stream = ring_of(producer, &claim);
    for (uint32_t i = 0; i < stream->layout.n_fields; i++)
        claim.data[i] = tsp_store_at(&stream->store, i, claim.position);
    *claim_out = claim;
    return TSOCKET_OK;
}

int tsocket_producer_claim(struct tsocket_producer *producer, int timeout_ms, struct tsocket_claim *claim_out)
{
    return claim_of(producer, ANY_STREAM, tsi_clock_deadline(tsi_clock_ns(), timeout_ms), claim_out);
}

static void put(struct tsocket_producer *producer, const struct tsocket_claim *claim, enum tsp_slot_state state,
                const char *kind, char *why)
{
    struct tsp_stream *stream = ring_of(producer, claim);
    uint64_t now_ns = tsi_clock_ns();

    if (state != TSP_SLOT_END)
        tsp_store_written(&stream->store, claim->position);
    TSI_STEP(COMMITTED);
    pthread_mutex_lock(&producer->lock);
    producer->claims++;
    producer->busy_ns += now_ns - claim->begun_ns;
    for (uint32_t i = 0; i < TSOCKET_STAGES_MAX; i++)
        producer->stage_ns[i] += claim->stage_ns[i];
    if (tsp_filler_put(&stream->filler, claim->position, state, kind, why) && producer->outcome == TSOCKET_OK)
        publish(producer, now_ns);
    pthread_mutex_unlock(&producer->lock);
}

void tsocket_producer_commit(struct tsocket_producer *producer, const struct tsocket_claim *claim)
{
    put(producer, claim, TSP_SLOT_READY, NULL, NULL);
}

void tsocket_producer_reject(struct tsocket_producer *producer, const struct tsocket_claim *claim, const char *kind,
                             const char *why)
{
    put(producer, claim, TSP_SLOT_BAD, kind, why != NULL ? strdup(why) : NULL);
}

static int check_stream(const struct tsocket_producer *producer, uint32_t number)
{
    return number < producer->n_streams
               ? TSOCKET_OK
               : tsi_fail(TSOCKET_EINVAL, "stream %u; there are %u, counted from 0", number, producer->n_streams);
}

int tsocket_producer_write(struct tsocket_producer *producer, uint32_t stream, int timeout_ms, const void *const data[],
                           uint64_t count, uint64_t *written_out)
{
    uint64_t deadline_ns = tsi_clock_deadline(tsi_clock_ns(), timeout_ms);
    uint64_t written = 0;
    int rc = check_stream(producer, stream);

    while (rc == TSOCKET_OK && written < count) {
        const struct tsi_layout *layout = &producer->streams[stream]->layout;
        struct tsocket_claim claim;

        rc = claim_of(producer, stream, deadline_ns, &claim);
        if (rc != TSOCKET_OK)
            break;
        for (uint32_t i = 0; i < layout->n_fields; i++) {
            uint64_t sample_bytes = layout->fields[i].sample_bytes;

            memcpy(claim.data[i], (const unsigned char *)data[i] + written * sample_bytes, sample_bytes);
        }
        tsocket_producer_commit(producer, &claim);
        written++;
    }
    *written_out = written;
    return rc;
}

int tsocket_producer_end_epoch(struct tsocket_producer *producer, const struct tsocket_claim *claim)
{
    const struct tsp_stream *stream = producer->streams[claim->stream];

    if (stream->options.on_bad == TSOCKET_BAD_SKIP)
        return tsi_fail(TSOCKET_EINVAL,
                        "stream %s: with TSOCKET_BAD_SKIP an epoch ends with its last sample, which may be claimed "
                        "before others; use another on_bad",
                        stream->name);
    put(producer, claim, TSP_SLOT_END, NULL, NULL);
    return TSOCKET_OK;
}

int tsocket_producer_finish(struct tsocket_producer *producer, uint32_t stream)
{
    int rc = check_stream(producer, stream);

    if (rc != TSOCKET_OK)
        return rc;
    if (producer->forked)
        return tsi_fail(TSOCKET_EFORK, "%s", producer->reason);
    pthread_mutex_lock(&producer->lock);
    rc = tsp_stream_finish(producer->streams[stream]);
    if (rc == TSOCKET_OK)
        publish(producer, tsi_clock_ns());
    pthread_mutex_unlock(&producer->lock);
    tsp_loop_wake(producer);
    return rc;
}

/* --- the end */

void tsp_engine_end(struct tsocket_producer *producer, int outcome, const char *reason)
{
    if (producer->outcome != TSOCKET_OK)
        return;
    producer->outcome = outcome;
    snprintf(producer->reason, sizeof(producer->reason), "%s", reason);
    pthread_cond_broadcast(&producer->room);
    pthread_cond_broadcast(&producer->ended);
}

void tsocket_producer_fail(struct tsocket_producer *producer, int error, const char *why)
{
    if (producer->forked)
        return;
    pthread_mutex_lock(&producer->lock);
    for (uint32_t i = 0; i < producer->n_streams; i++)
        tsp_stream_fail(producer->streams[i], why);
    tsp_engine_end(producer, error != TSOCKET_OK ? error : TSOCKET_ESYSTEM, why);
    pthread_mutex_unlock(&producer->lock);
}

void tsocket_producer_change(struct tsocket_producer *producer, const struct tsocket_producer_options *options)
{
    uint64_t before_ns = producer->options.max_hold_ms * TSI_NS_PER_MS;

    pthread_mutex_lock(&producer->lock);
    producer->options.max_hold_ms = options->max_hold_ms;
    producer->options.side_share = options->side_share;
    producer->options.max_crashes = options->max_crashes;
    for (uint32_t i = 0; i < producer->n_streams; i++)
        producer->streams[i]->join_grace_ns = options->join_grace_ms * TSI_NS_PER_MS;
    for (uint32_t i = 0; i < producer->roster.n; i++) {
        if (producer->roster.consumers[i]->max_hold_ns == before_ns)
            producer->roster.consumers[i]->max_hold_ns = options->max_hold_ms * TSI_NS_PER_MS;
    }
    pthread_mutex_unlock(&producer->lock);
    tsp_loop_wake(producer);
}

void tsocket_producer_stop(struct tsocket_producer *producer)
{
    pthread_mutex_lock(&producer->lock);
    tsp_engine_end(producer, TSOCKET_END, "stopped");
    pthread_mutex_unlock(&producer->lock);
}

int tsocket_producer_wait(struct tsocket_producer *producer, int timeout_ms)
{
    uint64_t deadline_ns = tsi_clock_deadline(tsi_clock_ns(), timeout_ms);
    int rc = TSOCKET_OK;

    pthread_mutex_lock(&producer->lock);
    while (producer->outcome == TSOCKET_OK && rc == TSOCKET_OK)
        rc = wait_on(producer, &producer->ended, deadline_ns);
    if (producer->outcome != TSOCKET_OK)
        rc = tsi_fail(producer->outcome, "%s", producer->reason);
    pthread_mutex_unlock(&producer->lock);
    return rc;
}
