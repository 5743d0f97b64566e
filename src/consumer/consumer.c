/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer: walks one stream window by window.
 *
 *     next:    look at the control page -- window ready? --> hand it out (no system call)
 *                   ^                          | no
 *                   +-- READY -- sleep <-- WANT
 *     release: mark the window; tell the daemon how far nothing of ours is held
 *
 * With a shard, rank r of W reads the windows [start + (k W + r) b, + b) for k = 0, 1, ... of every epoch; alone it is
 * the same with W = 1.
 */
#include <tsocket/tsocket.h>

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "../ipc/clock.h"
#include "../ipc/control.h"
#include "../ipc/error.h"
#include "../ipc/lifeline.h"
#include "../ipc/log.h"
#include "attach.h"
#include "fork.h"
#include "held.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

struct tsocket {
    struct tsc_attachment attachment;
    struct tsc_fork_guard guard;
    const struct tsi_control *control; /* in attachment */
    const struct tsi_layout *layout;   /* in attachment */

    /* what was asked for; constant */
    uint32_t batch;
    uint32_t rank;
    uint32_t world;
    uint64_t epochs; /* 0: no limit */
    enum tsocket_last last;
    uint32_t n_fields;
    uint32_t fields[TSOCKET_FIELDS_MAX]; /* batch.data[i] is field fields[i] of the layout */
    uint64_t pad_offset[TSOCKET_FIELDS_MAX];
    unsigned char *pad; /* hold private batches, each pad_bytes, or NULL */
    uint64_t pad_bytes;

    /* where it is */
    uint64_t epoch;
    uint64_t own_epoch;
    uint64_t start; /* position of the epoch's first sample; only once `placed` */
    bool placed;
    uint64_t round;             /* windows of this rank handed out in this epoch */
    uint64_t skip;              /* place in the epoch at which the rounds begin: > 0 after joining in the middle */
    uint64_t received;          /* real samples, this epoch */
    uint64_t received_all;      /* real samples since open */
    struct tsocket_epoch ended; /* the last one, if own_epoch > 0 */
    struct tsc_held held;

    /* what the daemon knows */
    uint64_t head_seen;   /* as of the last look, */
    uint64_t len_seen;    /* and the length of this epoch */
    uint64_t released;    /* cumulative position that it was told */
    bool release_due;     /* not told yet: the queue was full */
    uint64_t asked_epoch; /* the WANT that waits for its answer, */
    uint64_t asked_index; /* or 0 */
    bool gone;            /* the lifeline has ended */
};

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

/* --- what is where */

static int forked(const struct tsocket *ts)
{
    return ts->guard.forked ? tsi_fail(TSOCKET_EFORK, "the handle was opened before a fork; open one in the child")
                            : TSOCKET_OK;
}

/* Where the next window of this rank begins, counted from the epoch's start. */
static uint64_t next_index(const struct tsocket *ts)
{
    return ts->skip + (ts->round * ts->world + ts->rank) * ts->batch;
}

/* Windows that each rank gets of `samples` samples. */
static uint64_t count_windows(const struct tsocket *ts, uint64_t samples)
{
    uint64_t stride = (uint64_t)ts->batch * ts->world;

    return ts->last == TSOCKET_LAST_DROP ? samples / stride : (samples + stride - 1) / stride;
}

/*
 * The same for the current epoch, now `len` samples long. A shard counts by the length without bad samples, so that all
 * ranks agree whenever they look: what is missing in the end is padded.
 */
static uint64_t rounds(const struct tsocket *ts, uint64_t len)
{
    uint64_t samples = ts->world > 1 ? ts->attachment.welcome.epoch_samples : len;

    return count_windows(ts, samples > ts->skip ? samples - ts->skip : 0);
}

int tsocket_describe(const struct tsocket *ts, struct tsocket_info *info_out)
{
    const struct tsi_welcome *welcome;

    if (ts == NULL || info_out == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_describe: NULL");
    if (forked(ts) != TSOCKET_OK)
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
    info_out->batches = count_windows(ts, welcome->epoch_samples);
    return TSOCKET_OK;
}

int tsocket_position(const struct tsocket *ts, uint64_t *epoch_out, uint64_t *first_out)
{
    if (ts == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_position: NULL");
    if (forked(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    if (epoch_out != NULL)
        *epoch_out = ts->epoch;
    if (first_out != NULL)
        *first_out = next_index(ts);
    return TSOCKET_OK;
}

int tsocket_ended_epoch(const struct tsocket *ts, struct tsocket_epoch *epoch_out)
{
    if (ts == NULL || epoch_out == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_ended_epoch: NULL");
    if (forked(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    if (ts->own_epoch == 0)
        return tsi_fail(TSOCKET_EAGAIN, "no epoch has ended yet");
    *epoch_out = ts->ended;
    return TSOCKET_OK;
}

/* --- telling the daemon */

static int send_hot(struct tsocket *ts, enum tsi_kind kind, uint64_t a, uint64_t b)
{
    struct tsi_hot hot = {.kind = kind, .a = a, .b = b};
    unsigned char message[TSI_HOT_BYTES];

    tsi_hot_pack(&hot, message);
    return tsi_socket_send(ts->attachment.link.socket, 0, message, sizeof(message));
}

/*
 * The position below which this consumer reads nothing any more. Never past the head, for the daemon takes it as room,
 * nor past the epoch's end, where the next window does not follow the stride. A rank keeps the newest sample it knows
 * of: the epoch's last one, from which a window beyond the end is padded, is that or a later one.
 */
static uint64_t release_position(const struct tsocket *ts)
{
    uint64_t limit = ts->head_seen;
    uint64_t next;

    if (!ts->placed)
        return ts->released;
    next = ts->start + MIN(next_index(ts), ts->len_seen);
    if (ts->world > 1 && limit > ts->start && next >= limit)
        limit--;
    return tsc_held_floor(&ts->held, MIN(next, limit));
}

static void tell_release(struct tsocket *ts)
{
    uint64_t position = release_position(ts);

    if (position <= ts->released && !ts->release_due)
        return;
    if (position > ts->released)
        ts->released = position;
    ts->release_due = send_hot(ts, TSI_RELEASE, ts->released, ts->received_all) == TSOCKET_EAGAIN;
}

int tsocket_flush(struct tsocket *ts)
{
    if (ts == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_flush: NULL");
    if (forked(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    tell_release(ts);
    return ts->release_due ? tsi_fail(TSOCKET_EAGAIN, "the queue to the daemon is full") : TSOCKET_OK;
}

/* --- handing out */

static int elapped(uint64_t position)
{
    return tsi_fail(TSOCKET_ELAPPED,
                    "the daemon has reused the memory at position %" PRIu64
                    ": this consumer no longer counts; close it and open again",
                    position);
}

/* A window is whole only if the floor has not passed it after we looked: invariant 3. */
static int hand_out(struct tsocket *ts, const struct tsocket_batch *batch, uint64_t floor_position, bool private,
                    struct tsocket_batch *batch_out)
{
    if (!tsi_control_still_holds(ts->control, floor_position))
        return elapped(floor_position);
    *batch_out = *batch;
    batch_out->id = tsc_held_add(&ts->held, floor_position, private);
    ts->round++;
    ts->received += batch->valid;
    ts->received_all += batch->valid;
    return TSOCKET_OK;
}

static struct tsocket_batch describe_window(const struct tsocket *ts, uint32_t count, uint32_t valid)
{
    return (struct tsocket_batch){
        .epoch = ts->epoch,
        .own_epoch = ts->own_epoch,
        .first = next_index(ts),
        .position = ts->start + next_index(ts),
        .count = count,
        .valid = valid,
    };
}

static int give_window(struct tsocket *ts, uint32_t count, struct tsocket_batch *batch_out)
{
    struct tsocket_batch batch = describe_window(ts, count, count);

    for (uint32_t i = 0; i < ts->n_fields; i++)
        batch.data[i] = tsi_layout_at(ts->layout, ts->attachment.ring.base, ts->fields[i], batch.position);
    return hand_out(ts, &batch, batch.position, false, batch_out);
}

/* A full batch of private memory: the window's own samples, repeated; of none, the epoch's last. */
static int give_padded(struct tsocket *ts, uint32_t valid, uint64_t end, struct tsocket_batch *batch_out)
{
    struct tsocket_batch batch = describe_window(ts, ts->batch, valid);
    uint64_t from = valid > 0 ? batch.position : end - 1;
    uint32_t cycle = valid > 0 ? valid : 1;
    unsigned char *pad = ts->pad + ts->pad_bytes * (ts->held.next % ts->held.hold);

    for (uint32_t i = 0; i < ts->n_fields; i++) {
        uint64_t sample_bytes = ts->layout->fields[ts->fields[i]].sample_bytes;

        for (uint32_t n = 0; n < batch.count; n++)
            memcpy(pad + ts->pad_offset[i] + n * sample_bytes,
                   tsi_layout_at(ts->layout, ts->attachment.ring.base, ts->fields[i], from + n % cycle), sample_bytes);
        batch.data[i] = pad + ts->pad_offset[i];
    }
    return hand_out(ts, &batch, from, true, batch_out);
}

static int end_epoch(struct tsocket *ts, uint64_t len)
{
    ts->ended = (struct tsocket_epoch){
        .epoch = ts->epoch, .own_epoch = ts->own_epoch, .samples = len, .received = ts->received};
    ts->epoch++;
    ts->own_epoch++;
    ts->start += len;
    ts->len_seen = TSI_LEN_OPEN;
    ts->round = 0;
    ts->skip = 0;
    ts->received = 0;
    tell_release(ts); /* what `drop` left out, and what other ranks read, must not be waited for */
    return TSOCKET_EPOCH_END;
}

/* The epoch is decided, and what is left of it does not fill a window. */
static int give_tail(struct tsocket *ts, uint64_t len, struct tsocket_batch *batch_out)
{
    uint64_t index = next_index(ts);
    uint32_t valid = (uint32_t)(index < len ? len - index : 0);

    if (ts->round >= rounds(ts, len) || len == 0)
        return end_epoch(ts, len);
    if (tsc_held_full(&ts->held))
        return TSOCKET_EHELD;
    if (ts->world > 1 || ts->last == TSOCKET_LAST_PAD)
        return give_padded(ts, valid, ts->start + len, batch_out);
    return give_window(ts, valid, batch_out);
}

static bool no_more_epochs(const struct tsocket *ts)
{
    uint64_t limit = ts->attachment.welcome.epochs;

    return (ts->epochs > 0 && ts->own_epoch >= ts->epochs) || (limit > 0 && ts->epoch >= limit);
}

/* One look. TSOCKET_EAGAIN: not ready. */
static int try_next(struct tsocket *ts, struct tsocket_batch *batch_out)
{
    struct tsi_sight sight;
    uint64_t index = next_index(ts);
    uint64_t ready;

    if (no_more_epochs(ts))
        return TSOCKET_END;
    sight = tsi_control_look(ts->control, ts->epoch);
    ts->head_seen = sight.head;
    if (sight.begun <= ts->epoch)
        return tsi_control_state(ts->control) == TSI_FINISHED ? TSOCKET_END : TSOCKET_EAGAIN;
    if (!ts->placed) {
        ts->start = sight.start;
        ts->placed = true;
    }
    ts->len_seen = sight.len;
    if (!tsi_control_still_holds(ts->control, MIN(ts->start + index, sight.head)))
        return elapped(ts->start + index);
    ready = sight.head > ts->start ? MIN(sight.head - ts->start, sight.len) : 0; /* head may be older than start */
    if (ready >= index + ts->batch && ts->round < rounds(ts, sight.len))
        return tsc_held_full(&ts->held) ? TSOCKET_EHELD : give_window(ts, ts->batch, batch_out);
    if (ready == sight.len)
        return give_tail(ts, sight.len, batch_out);
    return TSOCKET_EAGAIN;
}

/* --- waiting */

/* Takes in what the daemon said: all it ever says is "look again". */
static void hear(struct tsocket *ts)
{
    unsigned char message[TSI_HOT_BYTES];
    size_t len;

    while (tsi_socket_recv(ts->attachment.link.socket, NULL, message, sizeof(message), &len) != TSOCKET_EAGAIN)
        ts->asked_index = 0;
}

static int gone(const struct tsocket *ts)
{
    static const char *const why[] = {
        [0] = "has died",
        [TSI_RUNNING] = "has died",
        [TSI_FINISHED] = "has ended",
        [TSI_CLOSING] = "is closing: it was told to stop",
        [TSI_FAILED] = "has given up; its log says why",
    };
    enum tsi_state state = tsi_control_state(ts->control);

    return tsi_fail(TSOCKET_GONE, "the daemon %s %s", ts->attachment.welcome.daemon,
                    (size_t)state < sizeof(why) / sizeof(why[0]) ? why[state] : why[0]);
}

/* Asks to be woken when the next window may be there; once, until an answer has come. */
static void ask(struct tsocket *ts)
{
    uint64_t index = next_index(ts) + ts->batch;

    if (ts->asked_epoch == ts->epoch && ts->asked_index == index)
        return;
    if (send_hot(ts, TSI_WANT, ts->epoch, index) != TSOCKET_OK)
        return;
    ts->asked_epoch = ts->epoch;
    ts->asked_index = index;
}

/* Sleeps until something has happened that is worth another look, or the time is over. */
static int sleep_once(struct tsocket *ts, int left_ms)
{
    int rc = tsi_socket_wait(ts->attachment.link.socket, ts->attachment.link.lifeline, left_ms);

    if (rc == TSOCKET_EINTR)
        return tsi_fail(rc, "a signal arrived while waiting");
    hear(ts);
    ts->gone = ts->gone || tsi_lifeline_hung_up(ts->attachment.link.lifeline);
    return left_ms == 0 && !ts->gone ? TSOCKET_EAGAIN : TSOCKET_OK;
}

/* Sleeps and looks again until there is something, or the time is over. */
static int wait_next(struct tsocket *ts, int timeout_ms, struct tsocket_batch *batch_out)
{
    uint64_t deadline_ns = tsi_clock_deadline(tsi_clock_ns(), timeout_ms);
    int rc;

    do {
        if (ts->gone)
            return gone(ts);
        tell_release(ts);
        ask(ts);
        rc = sleep_once(ts, tsi_clock_left_ms(tsi_clock_ns(), deadline_ns));
        if (rc == TSOCKET_EINTR)
            return rc;
        if (rc == TSOCKET_EAGAIN)
            return tsi_fail(rc, "nothing is ready within %d ms", timeout_ms);
        rc = try_next(ts, batch_out);
    } while (rc == TSOCKET_EAGAIN);
    return rc;
}

int tsocket_next(struct tsocket *ts, int timeout_ms, struct tsocket_batch *batch_out)
{
    int rc;

    if (ts == NULL || batch_out == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_next: NULL");
    if (forked(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    rc = try_next(ts, batch_out);
    if (rc == TSOCKET_EAGAIN)
        rc = wait_next(ts, timeout_ms, batch_out);
    if (rc == TSOCKET_EHELD)
        return tsi_fail(rc, "%u batches are held, as many as announced at open (options.hold)", ts->held.hold);
    if (rc == TSOCKET_END)
        return tsi_fail(rc, "the stream %s/%s has ended", ts->attachment.welcome.daemon, ts->attachment.welcome.stream);
    return rc;
}

int tsocket_release(struct tsocket *ts, const struct tsocket_batch *batch)
{
    const struct tsc_window *window;
    bool whole;

    if (ts == NULL || batch == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_release: NULL");
    if (forked(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    window = tsc_held_find(&ts->held, batch->id);
    if (window == NULL)
        return tsi_fail(TSOCKET_EINVAL, "batch %" PRIu64 " is not held by this handle", batch->id);
    whole = window->private || tsi_control_still_holds(ts->control, window->position);
    tsc_held_release(&ts->held, batch->id);
    tell_release(ts);
    return whole ? TSOCKET_OK : elapped(batch->position);
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
