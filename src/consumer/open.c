/* SPDX-License-Identifier: Apache-2.0 */
/* Opening, describing and closing a handle. */
#include "handle.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../ipc/error.h"
#include "../ipc/lifeline.h"
#include "../ipc/log.h"

/* --- open */

void tsocket_options_init(struct tsocket_options *options)
{
    *options = (struct tsocket_options){.size = sizeof(*options), .hold = 2, .shard_world = 1};
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
    if ((unsigned)options.last > TSOCKET_LAST_PAD || (unsigned)options.join > TSOCKET_JOIN_NOW)
        return tsi_fail(TSOCKET_EINVAL,
                        "options.last is %d and options.join %d; see enum tsocket_last and tsocket_join",
                        (int)options.last, (int)options.join);
    if (options.shard_world > 1 && options.join == TSOCKET_JOIN_NOW)
        return tsi_fail(TSOCKET_EINVAL,
                        "options.join: the ranks of a shard must begin together; use TSOCKET_JOIN_WAIT");
    if (options.resume != NULL)
        return tsi_fail(TSOCKET_EINVAL, "options.resume: this version cannot resume; it must be NULL");
    if (options.device != NULL && strcmp(options.device, "host") != 0)
        return tsi_fail(TSOCKET_EINVAL, "options.device is \"%s\"; this version knows \"host\" only", options.device);
    *options_out = options;
    return TSOCKET_OK;
}

/* "DAEMON" or "DAEMON/STREAM". */
static int split_name(const char *name, char daemon_out[TSOCKET_NAME_MAX + 1], char stream_out[TSOCKET_NAME_MAX + 1])
{
    const char *slash = strchr(name, '/');
    size_t daemon_len = slash != NULL ? (size_t)(slash - name) : strlen(name);

    if (daemon_len > TSOCKET_NAME_MAX || (slash != NULL && (strlen(slash + 1) > TSOCKET_NAME_MAX || slash[1] == '\0')))
        return tsi_fail(TSOCKET_EINVAL, "\"%.200s\": a name is DAEMON or DAEMON/STREAM, each 1 to %d bytes", name,
                        TSOCKET_NAME_MAX);
    memcpy(daemon_out, name, daemon_len);
    daemon_out[daemon_len] = '\0';
    strcpy(stream_out, slash != NULL ? slash + 1 : "");
    return TSOCKET_OK;
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
    return TSOCKET_OK;
}

static int add_field(struct tsocket *ts, const char *name, size_t len)
{
    for (uint32_t i = 0; i < ts->layout->n_fields; i++) {
        if (strlen(ts->layout->fields[i].name) == len && memcmp(ts->layout->fields[i].name, name, len) == 0) {
            if (ts->n_fields == TSOCKET_FIELDS_MAX)
                return tsi_fail(TSOCKET_EINVAL, "options.fields names more than %d fields", TSOCKET_FIELDS_MAX);
            ts->fields[ts->n_fields++] = i;
            return TSOCKET_OK;
        }
    }
    return tsi_fail(TSOCKET_ENOTFOUND, "the stream %s has no field \"%.*s\"; it begins with \"%s\"",
                    ts->attachment.welcome.stream, (int)len, name, ts->layout->fields[0].name);
}

static int choose_fields(struct tsocket *ts, const char *list)
{
    int rc = TSOCKET_OK;

    if (list == NULL) {
        for (uint32_t i = 0; i < ts->layout->n_fields; i++)
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

/* Room for padded batches: only addresses until one is really padded. */
static int reserve_pads(struct tsocket *ts)
{
    if (ts->last != TSOCKET_LAST_PAD && ts->world == 1)
        return TSOCKET_OK;
    for (uint32_t i = 0; i < ts->n_fields; i++) {
        uint64_t bytes = ts->layout->fields[ts->fields[i]].sample_bytes * ts->batch;

        ts->pad_offset[i] = ts->pad_bytes;
        ts->pad_bytes += (bytes + TSI_FIELD_ALIGN - 1) / TSI_FIELD_ALIGN * TSI_FIELD_ALIGN;
    }
    ts->pad = mmap(NULL, ts->pad_bytes * ts->held.hold, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ts->pad != MAP_FAILED)
        return TSOCKET_OK;
    ts->pad = NULL;
    return tsi_fail_errno(TSOCKET_ENOMEM, "no memory for %u padded batches of %" PRIu64 " bytes", ts->held.hold,
                          ts->pad_bytes);
}

/*
 * An eighth of the ring, but nothing of the room that this consumer and others like it were promised: they may wait for
 * it while this one does something else.
 */
static uint64_t samples_to_save_up(const struct tsocket *ts)
{
    uint64_t stride = (uint64_t)ts->batch * ts->world;
    uint64_t windows = (uint64_t)ts->held.hold + (ts->last == TSOCKET_LAST_DROP ? 1 : 0); /* a tail is less than one */
    uint64_t promised = windows * stride + (ts->world > 1 ? 1 : 0);
    uint64_t spare = ts->layout->capacity > promised ? ts->layout->capacity - promised : 0;

    return spare < ts->layout->capacity / 8 ? spare : ts->layout->capacity / 8;
}

static int settle(struct tsocket *ts, const struct tsocket_options *options, uint32_t batch_size)
{
    const struct tsi_welcome *welcome = &ts->attachment.welcome;
    int rc;

    ts->control = ts->attachment.control.base;
    ts->layout = &welcome->layout;
    ts->batch = batch_size;
    ts->rank = options->shard_rank;
    ts->world = options->shard_world;
    ts->epochs = options->epochs;
    ts->last = options->last;
    ts->epoch = welcome->epoch;
    ts->skip = welcome->first;
    if (ts->last == TSOCKET_LAST_DROP && welcome->epoch_samples > 0 && welcome->epoch_samples < batch_size)
        tsi_log('W',
                "%s/%s: an epoch has %" PRIu64 " samples, fewer than a batch of %u: with last = drop there is none",
                welcome->daemon, welcome->stream, welcome->epoch_samples, batch_size);
    rc = choose_fields(ts, options->fields);
    if (rc == TSOCKET_OK)
        rc = tsc_held_init(&ts->held, options->hold);
    ts->save_up = samples_to_save_up(ts);
    if (rc == TSOCKET_OK)
        rc = reserve_pads(ts);
    if (rc == TSOCKET_OK)
        rc = tsc_fork_watch(&ts->guard, ts->attachment.link.lifeline);
    return rc;
}

static void free_handle(struct tsocket *ts)
{
    if (ts->pad != NULL)
        munmap(ts->pad, ts->pad_bytes * ts->held.hold);
    tsc_held_fini(&ts->held);
    tsc_detach(&ts->attachment);
    free(ts);
}

int tsocket_open(const char *name, uint32_t batch_size, const struct tsocket_options *options, struct tsocket **ts_out)
{
    struct tsi_hello hello = {.type = ""};
    char daemon[TSOCKET_NAME_MAX + 1];
    struct tsocket_options own = {.size = 0};
    struct tsocket *ts;
    int rc;

    if (name == NULL || ts_out == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_open: name and ts_out must not be NULL");
    rc = take_options(options, &own);
    if (rc == TSOCKET_OK)
        rc = split_name(name, daemon, hello.stream);
    if (rc == TSOCKET_OK)
        rc = make_hello(&own, batch_size, &hello);
    if (rc != TSOCKET_OK)
        return rc;
    ts = calloc(1, sizeof(*ts));
    if (ts == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for a handle");
    rc = tsc_attach(daemon, &hello, own.connect_timeout_ms, &ts->attachment);
    if (rc != TSOCKET_OK) {
        free(ts);
        return rc;
    }
    rc = settle(ts, &own, batch_size);
    if (rc == TSOCKET_OK)
        *ts_out = ts;
    else
        free_handle(ts);
    return rc;
}

/* --- close */

/* How far it came, over the lifeline, where nothing overtakes it: the daemon counts what was delivered. */
static void say_goodbye(const struct tsocket *ts)
{
    struct tsi_hot hot = {.kind = TSI_RELEASE, .a = ts->released, .b = ts->received_all};
    unsigned char packet[TSI_HOT_BYTES];

    tsi_hot_pack(&hot, packet);
    tsi_lifeline_send(ts->attachment.link.lifeline, packet, sizeof(packet), NULL, 0);
}

void tsocket_close(struct tsocket *ts)
{
    if (ts == NULL)
        return;
    if (!ts->guard.forked)
        say_goodbye(ts);
    tsc_fork_forget(&ts->guard);
    if (ts->guard.forked) { /* the lifeline is closed, and the socket is the parent's: leave it in peace */
        tsi_socket_forget(ts->attachment.link.socket);
        ts->attachment.link = (struct tsc_link){.lifeline = -1};
    }
    free_handle(ts);
}

/* --- what is where */

int tsc_handle_check(const struct tsocket *ts)
{
    return ts->guard.forked ? tsi_fail(TSOCKET_EFORK, "the handle was opened before a fork; open one in the child")
                            : TSOCKET_OK;
}

/* Where the next window of this rank begins, counted from the epoch's start. */
uint64_t tsc_handle_next_index(const struct tsocket *ts)
{
    return ts->skip + (ts->round * ts->world + ts->rank) * ts->batch;
}

/* Windows that each rank gets of `samples` samples; as good as endless for an epoch whose end is not known yet. */
uint64_t tsc_handle_windows(const struct tsocket *ts, uint64_t samples)
{
    uint64_t stride = (uint64_t)ts->batch * ts->world;

    /* without a sum that could overflow: the length of an epoch that is not known yet is the largest number */
    return samples / stride + (ts->last != TSOCKET_LAST_DROP && samples % stride > 0 ? 1 : 0);
}

int tsocket_describe(const struct tsocket *ts, struct tsocket_info *info_out)
{
    const struct tsi_welcome *welcome;

    if (ts == NULL || info_out == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_describe: NULL");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    welcome = &ts->attachment.welcome;
    *info_out = (struct tsocket_info){
        .n_fields = ts->n_fields,
        .batch_size = ts->batch,
        .epoch_samples = welcome->epoch_samples,
        .epoch = welcome->epoch,
        .position = welcome->position,
        .first = welcome->first,
        .capacity = welcome->layout.capacity,
    };
    strcpy(info_out->daemon, welcome->daemon);
    strcpy(info_out->stream, welcome->stream);
    for (uint32_t i = 0; i < ts->n_fields; i++)
        info_out->fields[i] = ts->layout->fields[ts->fields[i]];
    info_out->batches = tsc_handle_windows(ts, welcome->epoch_samples);
    return TSOCKET_OK;
}

int tsocket_position(const struct tsocket *ts, uint64_t *epoch_out, uint64_t *first_out)
{
    if (ts == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_position: NULL");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    if (epoch_out != NULL)
        *epoch_out = ts->epoch;
    if (first_out != NULL)
        *first_out = tsc_handle_next_index(ts);
    return TSOCKET_OK;
}

int tsocket_ended_epoch(const struct tsocket *ts, struct tsocket_epoch *epoch_out)
{
    if (ts == NULL || epoch_out == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_ended_epoch: NULL");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    if (ts->own_epoch == 0)
        return tsi_fail(TSOCKET_EAGAIN, "no epoch has ended yet");
    *epoch_out = ts->ended;
    return TSOCKET_OK;
}
