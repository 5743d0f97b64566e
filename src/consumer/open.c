/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, describing and closing a handle. */
#include "handle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../ipc/error.h"
#include "../ipc/lifeline.h"
#include "../ipc/log.h"
#include "../ipc/step.h"
#include "places.h"

/* --- open */

void tsocket_options_init(struct tsocket_options *options)
{
    *options =
        (struct tsocket_options){.size = sizeof(*options), .hold = 2, .shard_world = 1, .join = TSOCKET_JOIN_CATCH_UP};
}

/* The caller's struct may be older (shorter) than ours: what it does not have keeps its default. */
static int take_options(const struct tsocket_options *given, struct tsocket_options *options_out)
{
    struct tsocket_options options;

    tsocket_options_init(&options);
    if (given != NULL && (given->size < sizeof(given->size) || given->size > sizeof(options)))
        return tsi_fail(TSOCKET_EINVAL, "options.size is %zu; call tsocket_options_init of this library (%s) first",
                        given->size, tsocket_version());
    if (given != NULL)
        memcpy(&options, given, given->size);
    if (options.hold < 1 || options.hold > TSI_HOLD_MAX)
        return tsi_fail(TSOCKET_EINVAL, "options.hold is %u; 1 to %u are possible", options.hold, TSI_HOLD_MAX);
    if (options.shard_world < 1 || options.shard_world > TSI_WORLD_MAX || options.shard_rank >= options.shard_world)
        return tsi_fail(TSOCKET_EINVAL, "options.shard_rank %u of shard_world %u; rank < world <= %u is needed",
                        options.shard_rank, options.shard_world, TSI_WORLD_MAX);
    if ((unsigned)options.last > TSOCKET_LAST_PAD || (unsigned)options.join > TSOCKET_JOIN_CATCH_UP ||
        (unsigned)options.on_lag > TSOCKET_LAG_DETACH)
        return tsi_fail(TSOCKET_EINVAL,
                        "options.last is %d, options.join %d, options.on_lag %d; see the enums tsocket_last, "
                        "tsocket_join and tsocket_on_lag",
                        (int)options.last, (int)options.join, (int)options.on_lag);
    if (options.shard_world > 1 && options.join == TSOCKET_JOIN_NOW)
        return tsi_fail(TSOCKET_EINVAL,
                        "options.join: the ranks of a shard must begin together; use TSOCKET_JOIN_WAIT");
    if (options.on_lag == TSOCKET_LAG_SKIP && (options.max_lag == 0 || options.max_lag > TSI_NUMBER_MAX))
        return tsi_fail(TSOCKET_EINVAL, "options.max_lag is %" PRIu64 "; with TSOCKET_LAG_SKIP it is 1 to %" PRIu64,
                        options.max_lag, TSI_NUMBER_MAX);
    if (options.on_lag == TSOCKET_LAG_SKIP && options.shard_world > 1)
        return tsi_fail(TSOCKET_EINVAL,
                        "options.on_lag: the ranks of a shard must read in step, none may leave samples out");
    if (options.device != NULL && (strlen(options.device) > TSOCKET_NAME_MAX || !tsc_places_ok(options.device)))
        return tsi_fail(TSOCKET_EINVAL,
                        "options.device is \"%.80s\"; \"host\", \"cuda\", \"cuda:N\" and \"cuda:UUID\" are possible",
                        options.device);
    *options_out = options;
    return TSOCKET_OK;
}

static int take_name(const char *name, char daemon_out[TSOCKET_NAME_MAX + 1], char stream_out[TSOCKET_NAME_MAX + 1])
{
    if (tsc_split_name(name, daemon_out, stream_out))
        return TSOCKET_OK;
    return tsi_fail(TSOCKET_EINVAL, "\"%.200s\": a name is DAEMON or DAEMON/STREAM, each 1 to %d bytes", name,
                    TSOCKET_NAME_MAX);
}

/* What the status table will show of us: printable, never empty. */
static void set_consumer_name(const char *wanted, char name_out[TSOCKET_NAME_MAX + 1])
{
    const char *from = wanted != NULL && wanted[0] != '\0' ? wanted : program_invocation_short_name;
    size_t i;

    for (i = 0; i < TSOCKET_NAME_MAX && from[i] != '\0'; i++)
        name_out[i] = from[i] >= 0x20 && from[i] <= 0x7e ? from[i] : '?';
    name_out[i] = '\0';
}

static int take_token(const struct tsocket_options *options, struct tsi_hello *hello)
{
    struct tsi_token token;
    int rc;

    if (options->resume == NULL)
        return TSOCKET_OK;
    rc = tsi_token_unpack(options->resume, &token);
    if (rc == TSOCKET_OK)
        strcpy(hello->resume, options->resume); /* its length has just been checked */
    return rc;
}

static int make_hello(const struct tsocket_options *options, uint32_t batch_size, struct tsi_hello *hello)
{
    if (batch_size == 0)
        return tsi_fail(TSOCKET_EINVAL, "a batch of 0 samples; at least 1 is needed");
    if (options->fields != NULL && strlen(options->fields) >= sizeof(hello->fields))
        return tsi_fail(TSOCKET_EINVAL, "options.fields has %zu bytes; %zu are possible", strlen(options->fields),
                        sizeof(hello->fields) - 1);
    strcpy(hello->type, "HELLO");
    set_consumer_name(options->consumer_name, hello->name);
    strcpy(hello->fields, options->fields != NULL ? options->fields : "");
    strcpy(hello->device, options->device != NULL ? options->device : "");
    hello->batch = batch_size;
    hello->hold = options->hold;
    hello->rank = options->shard_rank;
    hello->world = options->shard_world;
    hello->join = options->join;
    hello->last = options->last;
    hello->on_lag = options->on_lag;
    hello->max_lag = options->on_lag == TSOCKET_LAG_SKIP ? options->max_lag : 0;
    return take_token(options, hello);
}

static int add_field(struct tsocket *ts, const char *name, size_t len)
{
    for (uint32_t i = 0; i < ts->welcome.layout.n_fields; i++) {
        if (strlen(ts->welcome.layout.fields[i].name) == len &&
            memcmp(ts->welcome.layout.fields[i].name, name, len) == 0) {
            if (ts->n_fields == TSOCKET_FIELDS_MAX)
                return tsi_fail(TSOCKET_EINVAL, "options.fields names more than %d fields", TSOCKET_FIELDS_MAX);
            ts->fields[ts->n_fields++] = i;
            return TSOCKET_OK;
        }
    }
    return tsi_fail(TSOCKET_ENOTFOUND, "the stream %s has no field \"%.*s\"; it begins with \"%s\"", ts->welcome.stream,
                    (int)len, name, ts->welcome.layout.fields[0].name);
}

static int choose_fields(struct tsocket *ts, const char *list)
{
    int rc = TSOCKET_OK;

    if (list == NULL) {
        for (uint32_t i = 0; i < ts->welcome.layout.n_fields; i++)
            ts->fields[ts->n_fields++] = i;
        return TSOCKET_OK;
    }
    while (rc == TSOCKET_OK && *list != '\0') {
        size_t len = strcspn(list, ",");

        rc = add_field(ts, list, len);
        list += len + (list[len] == ',');
    }
    if (rc == TSOCKET_OK && ts->n_fields == 0)
        rc = tsi_fail(TSOCKET_EINVAL, "options.fields is empty; NULL means all fields");
    return rc;
}

static int reserve_pads(struct tsocket *ts)
{
    if (ts->last != TSOCKET_LAST_PAD && ts->world == 1)
        return TSOCKET_OK;
    return tsc_pad_reserve(&ts->pad, &ts->welcome.layout, ts->fields, ts->n_fields, ts->batch, ts->held.hold, ts->gpu);
}

/* A trainer that asked for a GPU and gets host memory must know: it has to copy for itself. */
static int settle_place(struct tsocket *ts)
{
    const struct tsc_ring *ring = ts->ring;

    ts->kind = ring->memory.kind;
    if (ts->kind != TSI_ARENA_HOST)
        return tsc_gpu_open(&ring->device.uuid, ts->held.hold, &ts->gpu);
    if (ts->hello.device[0] != '\0' && strcmp(ts->hello.device, "host") != 0)
        tsi_log('W', "%s/%s has no ring on %s: batches are in host memory, as tsocket_describe says",
                ts->welcome.daemon, ts->welcome.stream, ts->hello.device);
    return TSOCKET_OK;
}

/*
 * An eighth of the ring, but nothing of the room that this consumer and others like it were promised: they may wait for
 * it while this one does something else.
 */
uint64_t tsc_handle_save_up(const struct tsocket *ts)
{
    uint64_t capacity = ts->ring->layout.capacity;
    uint64_t stride = (uint64_t)ts->batch * ts->world;
    uint64_t windows = (uint64_t)ts->held.hold + (ts->last == TSOCKET_LAST_DROP ? 1 : 0); /* a tail is less than one */
    uint64_t promised = windows * stride + (ts->world > 1 ? 1 : 0);
    uint64_t spare = capacity > promised ? capacity - promised : 0;

    return spare < capacity / 8 ? spare : capacity / 8;
}

/* Where it begins: as the daemon says, or behind the batch of its token. */
static void begin_walk(struct tsocket *ts)
{
    const struct tsi_welcome *welcome = &ts->welcome;
    struct tsi_token token;

    ts->walk = (struct tsc_walk){
        .epoch = welcome->epoch,
        .begin = welcome->first,
        .wrap = welcome->catch_up ? welcome->first : 0,
        .from = welcome->from,
    };
    if (ts->hello.resume[0] == '\0' || tsi_token_unpack(ts->hello.resume, &token) != TSOCKET_OK)
        return;
    ts->walk.begin = token.from.index + token.ahead;
    ts->walk.wrap = token.wrap;
    ts->walk.until = token.until;
    ts->walk.whole = token.until > 0 ? welcome->epoch_samples : 0;
    ts->walk.from = token.from;
}

/* Of the epoch in which it began, all laps of it; without knowing the epoch's length none. */
static uint64_t count_first(const struct tsocket *ts)
{
    const struct tsc_walk *walk = &ts->walk;
    uint64_t samples = ts->welcome.epoch_samples;
    uint64_t end = walk->until > 0 && walk->until < samples ? walk->until : samples;

    return tsc_handle_windows(ts, end > walk->begin ? end - walk->begin : 0) +
           tsc_handle_windows(ts, samples > 0 ? walk->wrap : 0);
}

static int reserve_lost(struct tsocket *ts)
{
    ts->lost = calloc(ts->held.hold, sizeof(*ts->lost));
    ts->unsaid = calloc(ts->held.hold, 2 * sizeof(*ts->unsaid));
    if (ts->lost == NULL || ts->unsaid == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for %u windows", ts->held.hold);
    return TSOCKET_OK;
}

static void leave_to_parent(void *context)
{
    struct tsocket *ts = context;

    if (!ts->forked)
        close(ts->link.lifeline);
    ts->forked = true;
}

int tsc_handle_guard(struct tsocket *ts)
{
    ts->guard = (struct tsi_fork_guard){.in_child = leave_to_parent, .context = ts};
    return tsi_fork_watch(&ts->guard);
}

static int settle(struct tsocket *ts, const struct tsocket_options *options, uint32_t batch_size)
{
    const struct tsi_welcome *welcome = &ts->welcome;
    int rc;

    ts->batch = batch_size;
    ts->rank = options->shard_rank;
    ts->world = options->shard_world;
    ts->epochs = options->epochs;
    ts->last = options->last;
    ts->reconnect_ms = options->reconnect_ms;
    ts->max_lag = ts->hello.max_lag;
    begin_walk(ts);
    ts->first_batches = count_first(ts);
    if (ts->last == TSOCKET_LAST_DROP && welcome->epoch_samples > 0 && welcome->epoch_samples < batch_size)
        tsi_log('W',
                "%s/%s: an epoch has %" PRIu64 " samples, fewer than a batch of %u: with last = drop there is none",
                welcome->daemon, welcome->stream, welcome->epoch_samples, batch_size);
    rc = choose_fields(ts, options->fields);
    if (rc == TSOCKET_OK)
        rc = tsc_held_init(&ts->held, options->hold);
    if (rc == TSOCKET_OK)
        rc = tsc_witness_open(ts, options->hold);
    if (rc == TSOCKET_OK)
        rc = reserve_lost(ts);
    ts->save_up = tsc_handle_save_up(ts);
    if (rc == TSOCKET_OK)
        rc = settle_place(ts);
    if (rc == TSOCKET_OK)
        rc = reserve_pads(ts);
    if (rc == TSOCKET_OK)
        rc = tsc_handle_guard(ts);
    return rc;
}

static void free_handle(struct tsocket *ts)
{
    tsc_pad_free(&ts->pad);
    tsc_held_fini(&ts->held);
    free(ts->evidence);
    free(ts->lost);
    free(ts->unsaid);
    tsc_link_close(&ts->link);
    while (ts->rings != NULL) {
        struct tsc_ring *ring = ts->rings;

        ts->rings = ring->next;
        tsc_ring_close(ring);
    }
    tsc_convert_gpu_close(ts->convert);
    tsc_gpu_close(ts->gpu);
    free(ts);
}

int tsocket_open(const char *name, uint32_t batch_size, const struct tsocket_options *options, struct tsocket **ts_out)
{
    struct tsi_hello hello = {.type = ""};
    struct tsc_attachment attachment = {.ring = NULL};
    char daemon[TSOCKET_NAME_MAX + 1];
    struct tsocket_options own = {.size = 0};
    struct tsocket *ts;
    int rc;

    if (name == NULL || ts_out == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_open: name and ts_out must not be NULL");
    rc = take_options(options, &own);
    if (rc == TSOCKET_OK)
        rc = take_name(name, daemon, hello.stream);
    if (rc == TSOCKET_OK)
        rc = make_hello(&own, batch_size, &hello);
    if (rc != TSOCKET_OK)
        return rc;
    ts = calloc(1, sizeof(*ts));
    if (ts == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for a handle");
    rc = tsc_attach(daemon, &hello, own.connect_timeout_ms, TSC_ANSWER_MS, &attachment);
    if (rc != TSOCKET_OK) {
        free(ts);
        return rc;
    }
    ts->hello = hello;
    ts->link = attachment.link;
    ts->welcome = attachment.welcome;
    ts->rings = ts->group = ts->ring = attachment.ring;
    rc = settle(ts, &own, batch_size);
    if (rc == TSOCKET_OK)
        *ts_out = ts;
    else
        free_handle(ts);
    return rc;
}

/* --- close */

static void say(const struct tsocket *ts, const struct tsi_hot *hot)
{
    unsigned char packet[TSI_HOT_BYTES];

    tsi_hot_pack(hot, packet);
    tsi_lifeline_send(ts->link.lifeline, packet, sizeof(packet), NULL, 0);
}

/* How far it came, over the lifeline, where nothing overtakes it: the daemon counts what was delivered. */
static void say_goodbye(struct tsocket *ts)
{
    struct tsi_hot passed = {.kind = TSI_PASSED};

    tsc_handle_tell_release(ts, true);
    tsc_move_say_lost(ts);
    if (tsc_move_passed(ts, &passed))
        say(ts, &passed);
    say(ts, &(struct tsi_hot){.kind = TSI_RELEASE, .ring = ts->ring->name, .a = ts->released, .b = ts->received_all});
    TSI_STEP(GOODBYE_SAID);
}

/* In a child process: the driver is the parent's, and so is what was made with it. */
static void forget_gpu(struct tsocket *ts)
{
    if (ts->kind == TSI_ARENA_HOST)
        return;
    for (struct tsc_ring *ring = ts->rings; ring != NULL; ring = ring->next) {
        ring->memory = (struct tsi_arena){.fd = -1};
        ring->device = (struct tsi_device){.context = NULL};
    }
    ts->pad.base = NULL;
    ts->convert = NULL;
    ts->gpu = NULL;
}

void tsocket_close(struct tsocket *ts)
{
    if (ts == NULL)
        return;
    if (!ts->forked) {
        tsc_release_await(ts);
        for (struct tsc_ring *ring = ts->rings; ring != NULL; ring = ring->next)
            tsc_ring_unmap(ring); /* a daemon that has heard us go may give the memory back */
        say_goodbye(ts);
    }
    tsi_fork_forget(&ts->guard);
    if (ts->forked) { /* the lifeline is closed, and the socket is the parent's: leave it in peace */
        forget_gpu(ts);
        tsi_socket_forget(ts->link.socket);
        ts->link = (struct tsc_link){.lifeline = -1};
    }
    free_handle(ts);
}

/* --- what is where */

int tsc_handle_check(const struct tsocket *ts)
{
    return ts->forked ? tsi_fail(TSOCKET_EFORK, "the handle was opened before a fork; open one in the child")
                      : TSOCKET_OK;
}

/* Where the next window of this rank begins, counted from the epoch's start. */
uint64_t tsc_handle_next_index(const struct tsocket *ts)
{
    return tsc_handle_index(ts, &ts->walk);
}

uint64_t tsc_handle_index(const struct tsocket *ts, const struct tsc_walk *walk)
{
    return walk->begin + (walk->round * ts->world + ts->rank) * ts->batch;
}

/* Windows that each rank gets of `samples` samples; as good as endless for an epoch whose end is not known yet. */
uint64_t tsc_handle_windows(const struct tsocket *ts, uint64_t samples)
{
    uint64_t stride = (uint64_t)ts->batch * ts->world;

    /* without a sum that could overflow: the length of an epoch that is not known yet is the largest number */
    return samples / stride + (ts->last != TSOCKET_LAST_DROP && samples % stride > 0 ? 1 : 0);
}

static void describe_memory(const struct tsocket *ts, struct tsocket_info *info)
{
    static const enum tsocket_memory kinds[] = {[TSI_ARENA_HOST] = TSOCKET_MEMORY_HOST,
                                                [TSI_ARENA_CUDA_IPC] = TSOCKET_MEMORY_CUDA_IPC,
                                                [TSI_ARENA_CUDA_VMM] = TSOCKET_MEMORY_CUDA_VMM};
    const struct tsi_device *device = tsc_gpu_device(ts->gpu);

    info->memory = kinds[ts->kind];
    if (device == NULL)
        return;
    info->device = device->number;
    strcpy(info->device_uuid, device->uuid_text);
}

int tsocket_describe(const struct tsocket *ts, struct tsocket_info *info_out)
{
    const struct tsi_welcome *welcome;

    if (ts == NULL || info_out == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_describe: NULL");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    welcome = &ts->welcome;
    *info_out = (struct tsocket_info){
        .n_fields = ts->n_fields,
        .batch_size = ts->batch,
        .epoch_samples = welcome->epoch_samples,
        .epoch = welcome->epoch,
        .position = welcome->position,
        .first = welcome->first,
        .capacity = welcome->layout.capacity,
        .resident = welcome->resident,
        .catch_up = welcome->catch_up,
        .device = -1,
    };
    describe_memory(ts, info_out);
    strcpy(info_out->daemon, welcome->daemon);
    strcpy(info_out->stream, welcome->stream);
    for (uint32_t i = 0; i < ts->n_fields; i++)
        info_out->fields[i] = ts->welcome.layout.fields[ts->fields[i]];
    info_out->batches = tsc_handle_windows(ts, welcome->epoch_samples);
    info_out->first_batches = ts->first_batches;
    return TSOCKET_OK;
}

int tsocket_position(const struct tsocket *ts, uint64_t *epoch_out, uint64_t *first_out)
{
    if (ts == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_position: NULL");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    if (epoch_out != NULL)
        *epoch_out = tsc_move_next(ts)->epoch;
    if (first_out != NULL)
        *first_out = tsc_handle_index(ts, tsc_move_next(ts));
    return TSOCKET_OK;
}

int tsocket_ended_epoch(const struct tsocket *ts, struct tsocket_epoch *epoch_out)
{
    if (ts == NULL || epoch_out == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_ended_epoch: NULL");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    if (ts->walk.own_epoch == 0)
        return tsi_fail(TSOCKET_EAGAIN, "no epoch has ended yet");
    *epoch_out = ts->ended;
    return TSOCKET_OK;
}
