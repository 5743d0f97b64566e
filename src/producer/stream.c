/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../ipc/clock.h"
#include "../ipc/error.h"
#include "../ipc/log.h"
#include "machine.h"

enum {
    BAD_LINES_PER_EPOCH = 20, /* log lines about single samples; the epoch's end sums up */
    CHUNK = 1,                /* samples that become readable together; more where a copy to a GPU is the unit */
};

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* --- life */

static int check_memory(const struct tsp_stream *stream)
{
    uint64_t available = tsp_machine_memory_bytes();

    if (stream->layout.bytes <= available)
        return TSOCKET_OK;
    return tsi_fail(TSOCKET_ENOMEM,
                    "stream %s: the ring needs %" PRIu64 " bytes (%" PRIu64 " + %" PRIu64 " samples of %" PRIu64
                    " bytes), %" PRIu64
                    " are available (free memory, cgroup limit); use a smaller --ring or --max-batch",
                    stream->name, stream->layout.bytes, stream->layout.capacity, stream->layout.mirror,
                    stream->layout.sample_bytes, available);
}

static int check_options(const struct tsocket_stream_options *options)
{
    if (options->name == NULL || !tsi_name_ok(options->name))
        return tsi_fail(
            TSOCKET_EINVAL,
            "the stream's name \"%s\" is not possible: 1 to %d of A-Z a-z 0-9 . _ - and no dot at the start",
            options->name != NULL ? options->name : "", TSOCKET_NAME_MAX);
    if (options->fields == NULL)
        return tsi_fail(TSOCKET_EINVAL, "stream %s: no fields", options->name);
    if (options->epoch_samples > TSI_NUMBER_MAX || options->epochs > TSI_NUMBER_MAX)
        return tsi_fail(TSOCKET_EINVAL, "stream %s: %" PRIu64 " samples, %" PRIu64 " epochs; the limit is %" PRIu64,
                        options->name, options->epoch_samples, options->epochs, TSI_NUMBER_MAX);
    if (options->epoch_samples == 0 && (options->null || options->on_bad == TSOCKET_BAD_SKIP))
        return tsi_fail(
            TSOCKET_EINVAL,
            "stream %s: with epochs of unknown length it can neither be null nor leave samples out (there is "
            "no last one to take their place); set epoch_samples or another on_bad",
            options->name);
    return TSOCKET_OK;
}

static int reserve(struct tsp_stream *stream)
{
    int rc = check_memory(stream);

    if (rc == TSOCKET_OK)
        rc = tsp_filler_init(&stream->filler, stream->layout.capacity);
    if (rc == TSOCKET_OK)
        rc = tsi_arena_create("tsocket-control", TSI_CONTROL_BYTES, &stream->page);
    if (rc == TSOCKET_OK)
        rc = tsi_arena_create("tsocket-ring", stream->layout.bytes, &stream->ring);
    return rc;
}

static uint64_t nominal_len(const struct tsp_stream *stream)
{
    return stream->options.epoch_samples > 0 ? stream->options.epoch_samples : TSI_LEN_OPEN;
}

int tsp_stream_create(const struct tsocket_stream_options *options, uint32_t number, uint32_t join_grace_ms,
                      struct tsp_stream **stream_out)
{
    struct tsp_stream *stream;
    int rc = check_options(options);

    if (rc != TSOCKET_OK)
        return rc;
    stream = calloc(1, sizeof(*stream));
    if (stream == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for a stream");
    stream->number = number;
    stream->options = *options;
    stream->join_grace_ns = join_grace_ms * TSI_NS_PER_MS;
    stream->page.fd = -1;
    stream->ring.fd = -1;
    strcpy(stream->name, options->name);
    tsi_log_quote(options->source != NULL ? options->source : "", stream->source, sizeof(stream->source));
    rc = tsi_layout_init(options->fields, options->n_fields, options->capacity, options->max_batch, &stream->layout);
    if (rc == TSOCKET_OK)
        rc = reserve(stream);
    if (rc != TSOCKET_OK) {
        tsp_stream_destroy(stream);
        return rc;
    }
    stream->control = stream->page.base;
    stream->open = true;
    tsi_control_init(stream->control);
    tsi_control_begin(stream->control, 0, 0, nominal_len(stream));
    tsp_filler_begin(&stream->filler, 0, 0, nominal_len(stream));
    *stream_out = stream;
    return TSOCKET_OK;
}

void tsp_stream_destroy(struct tsp_stream *stream)
{
    if (stream == NULL)
        return;
    tsi_arena_close(&stream->ring);
    tsi_arena_close(&stream->page);
    tsp_filler_fini(&stream->filler);
    free(stream);
}

/* --- epochs in the ring */

static struct tsi_sight epoch_at(const struct tsp_stream *stream, uint64_t epoch)
{
    return tsi_control_look(stream->control, epoch);
}

static uint64_t oldest_epoch(const struct tsp_stream *stream)
{
    uint64_t begun = stream->filler.epoch + 1;

    return begun > TSI_EPOCHS ? begun - TSI_EPOCHS : 0;
}

/* The epoch that a position at or above the floor belongs to. */
static uint64_t epoch_of(const struct tsp_stream *stream, uint64_t position)
{
    uint64_t epoch = stream->filler.epoch;

    while (epoch > oldest_epoch(stream) && epoch_at(stream, epoch).start > position)
        epoch--;
    return epoch;
}

static void raise_floor(struct tsp_stream *stream, uint64_t floor)
{
    if (floor <= stream->floor)
        return;
    stream->floor = floor;
    tsi_control_raise_floor(stream->control, floor);
}

/* --- joining */

/*
 * How many ends of epochs may lie between the first and the last window that a consumer holds. Bad samples make epochs
 * shorter: only the half of one is taken for sure.
 */
static uint64_t ends_held(const struct tsp_stream *stream, const struct tsi_hello *hello)
{
    uint64_t samples = stream->options.epoch_samples;
    uint64_t stride = (uint64_t)hello->batch * hello->world;
    uint64_t windows = samples / 2 / stride;

    if (hello->last == TSOCKET_LAST_DROP && samples > 0 && samples < stride)
        return 0; /* it never gets one */
    return windows > 1 ? (hello->hold - 1 + windows - 1) / windows : hello->hold - 1;
}

/* Samples from the first to the last of those windows, with the tails in between that `drop` leaves out. */
static uint64_t room_for(const struct tsp_stream *stream, const struct tsi_hello *hello)
{
    uint64_t stride = (uint64_t)hello->batch * hello->world;
    uint64_t tails = hello->last == TSOCKET_LAST_DROP ? ends_held(stream, hello) * (stride - 1) : 0;

    return hello->hold * stride + tails + CHUNK - 1 + (hello->world > 1 ? 1 : 0);
}

static int check_fit(const struct tsp_stream *stream, const struct tsi_hello *hello)
{
    uint64_t needed = room_for(stream, hello);

    if (hello->batch > stream->layout.mirror)
        return tsi_fail(TSOCKET_EREFUSED,
                        "stream %s: a batch of %" PRIu32 " is larger than --max-batch %" PRIu64
                        "; use a smaller batch, or start tsocketd with --max-batch %" PRIu32,
                        stream->name, hello->batch, stream->layout.mirror, hello->batch);
    if (needed > stream->layout.capacity)
        return tsi_fail(TSOCKET_EREFUSED,
                        "stream %s: holding %" PRIu32 " batches of %" PRIu32 " in each of %" PRIu32
                        " ranks needs a ring "
                        "of %" PRIu64 " samples, it has %" PRIu64 "; hold less, or start tsocketd with --ring %" PRIu64,
                        stream->name, hello->hold, hello->batch, hello->world, needed, stream->layout.capacity, needed);
    if (ends_held(stream, hello) >= TSI_EPOCHS)
        return tsi_fail(TSOCKET_EREFUSED,
                        "stream %s: %" PRIu32 " batches may lie in more than %u epochs, as many as can be in the ring; "
                        "hold less",
                        stream->name, hello->hold, TSI_EPOCHS);
    if (hello->world > 1 && stream->options.epoch_samples == 0)
        return tsi_fail(TSOCKET_EREFUSED, "stream %s: its epochs are of unknown length, ranks cannot share them",
                        stream->name);
    if (hello->device[0] != '\0' && strcmp(hello->device, "host") != 0)
        return tsi_fail(TSOCKET_EREFUSED, "stream %s: its data is in host memory, not on \"%s\"; ask for \"host\"",
                        stream->name, hello->device);
    return TSOCKET_OK;
}

/* From here on the consumer counts in the floor. The first of a group keeps its epoch there for those who come later.
 */
static void activate(struct tsp_stream *stream, const struct tsp_roster *roster, struct tsp_consumer *consumer,
                     uint64_t epoch, uint64_t position, uint64_t now_ns)
{
    if (tsp_roster_slowest(roster, stream) == NULL) {
        stream->keep_position = position;
        stream->keep_until_ns = now_ns + stream->join_grace_ns;
    }
    consumer->state = TSP_READING;
    consumer->epoch = epoch;
    consumer->released = position;
}

/* The oldest epoch whose start is still in the ring. */
static bool find_whole_epoch(const struct tsp_stream *stream, uint64_t *epoch_out, uint64_t *start_out)
{
    for (uint64_t epoch = oldest_epoch(stream); epoch <= stream->filler.epoch; epoch++) {
        uint64_t start = epoch_at(stream, epoch).start;

        if (start >= stream->floor) {
            *epoch_out = epoch;
            *start_out = start;
            return true;
        }
    }
    return false;
}

/* The group is in the middle of an epoch whose start is gone: begin where the slowest of the group reads. */
static void join_now(struct tsp_stream *stream, const struct tsp_roster *roster, struct tsp_consumer *consumer,
                     uint64_t now_ns)
{
    uint64_t position = tsp_roster_slowest(roster, stream)->released;

    activate(stream, roster, consumer, epoch_of(stream, position), position, now_ns);
}

/* Not where the epoch has been read to its end: what is left of it is nothing. */
static bool can_join_now(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    const struct tsp_consumer *slowest = tsp_roster_slowest(roster, stream);

    return slowest != NULL && !(tsp_filler_decided(&stream->filler) && slowest->released == stream->filler.head);
}

int tsp_stream_attach(struct tsp_stream *stream, const struct tsp_roster *roster, struct tsp_consumer *consumer,
                      uint64_t now_ns)
{
    uint64_t epoch, start;
    int rc = check_fit(stream, &consumer->hello);

    if (rc != TSOCKET_OK)
        return rc;
    if (find_whole_epoch(stream, &epoch, &start)) {
        activate(stream, roster, consumer, epoch, start, now_ns);
    } else if (consumer->hello.join == TSOCKET_JOIN_NOW && can_join_now(stream, roster)) {
        join_now(stream, roster, consumer, now_ns);
    } else {
        epoch = stream->filler.epoch + 1;
        if (stream->options.epochs > 0 && epoch >= stream->options.epochs)
            return tsi_fail(TSOCKET_EREFUSED,
                            "stream %s: its last epoch (%" PRIu64 " of %" PRIu64 ") has begun without this consumer; "
                            "start tsocketd again, or join with TSOCKET_JOIN_NOW while others read it",
                            stream->name, epoch, stream->options.epochs);
        consumer->state = TSP_JOINING;
        consumer->epoch = epoch;
    }
    consumer->stream = stream;
    stream->visited = true;
    return TSOCKET_OK;
}

void tsp_stream_detach(struct tsp_stream *stream, const struct tsp_consumer *consumer)
{
    stream->delivered += consumer->received;
}

void tsp_stream_describe_place(const struct tsp_stream *stream, const struct tsp_consumer *consumer,
                               struct tsi_welcome *welcome)
{
    const struct tsp_filler *filler = &stream->filler;

    if (consumer->state == TSP_JOINING) { /* expected: the epoch before may still lose samples */
        welcome->epoch = consumer->epoch;
        welcome->position = filler->len == TSI_LEN_OPEN ? filler->head : filler->start + filler->len;
        welcome->first = 0;
    } else {
        welcome->epoch = epoch_of(stream, consumer->released);
        welcome->position = consumer->released;
        welcome->first = consumer->released - epoch_at(stream, welcome->epoch).start;
    }
}

/* --- samples that cannot be used */

static void count_bad(struct tsp_stream *stream, const char *kind)
{
    uint32_t i = 0;

    stream->bad++;
    stream->bad_in_epoch++;
    while (i < TSP_KINDS_MAX - 1 && stream->kinds[i].kind != NULL && strcmp(stream->kinds[i].kind, kind) != 0)
        i++;
    if (stream->kinds[i].kind == NULL)
        stream->kinds[i].kind = kind;
    stream->kinds[i].count++;
}

static int too_many_bad(const struct tsp_stream *stream, const struct tsp_slot *slot)
{
    char why[TSI_REASON_MAX];

    tsi_log_quote(slot->why != NULL ? slot->why : "no reason given", why, sizeof(why));
    if (stream->options.on_bad == TSOCKET_BAD_FAIL)
        return tsi_fail(TSOCKET_EBAD_SAMPLE, "stream %s: %s (%s); --on-bad skip would leave such samples out",
                        stream->name, why, slot->kind);
    return tsi_fail(TSOCKET_EBAD_SAMPLE,
                    "stream %s: %" PRIu64 " samples of epoch %" PRIu64 " cannot be used, --max-bad is %" PRIu64
                    "; the last: %s (%s)",
                    stream->name, stream->bad_in_epoch, stream->filler.epoch, stream->options.max_bad, why, slot->kind);
}

static void log_bad(const struct tsp_stream *stream, const struct tsp_slot *slot)
{
    char why[TSI_REASON_MAX];

    if (stream->bad_in_epoch > BAD_LINES_PER_EPOCH)
        return;
    tsi_log('W', "stream %s, epoch %" PRIu64 ": %s: %s (%s)", stream->name, stream->filler.epoch,
            stream->options.on_bad == TSOCKET_BAD_MASK ? "masked" : "left out",
            tsi_log_quote(slot->why != NULL ? slot->why : "no reason given", why, sizeof(why)), slot->kind);
    if (stream->bad_in_epoch == BAD_LINES_PER_EPOCH)
        tsi_log('W', "stream %s, epoch %" PRIu64 ": further ones are only counted", stream->name, stream->filler.epoch);
}

static int decide_bad(struct tsp_stream *stream)
{
    struct tsp_filler *filler = &stream->filler;
    const struct tsp_slot *slot = &filler->slots[filler->head % filler->capacity];

    count_bad(stream, slot->kind);
    if (stream->options.on_bad == TSOCKET_BAD_FAIL ||
        (stream->options.max_bad > 0 && stream->bad_in_epoch > stream->options.max_bad))
        return too_many_bad(stream, slot);
    log_bad(stream, slot);
    if (stream->options.on_bad == TSOCKET_BAD_MASK) {
        tsp_filler_pass(filler);
        return TSOCKET_OK;
    }
    tsp_filler_skip(filler);
    tsi_control_shorten(stream->control, filler->epoch, filler->len);
    if (filler->len == 0)
        return tsi_fail(TSOCKET_EBAD_SAMPLE, "stream %s: not one sample of epoch %" PRIu64 " can be used", stream->name,
                        filler->epoch);
    return TSOCKET_OK;
}

/* --- moving on */

static void publish(struct tsp_stream *stream)
{
    if (!stream->open || stream->filler.head == stream->published)
        return;
    stream->published = stream->filler.head;
    tsi_control_publish(stream->control, stream->published);
}

static void cut(struct tsp_stream *stream)
{
    uint64_t before = stream->filler.len;

    tsp_filler_cut(&stream->filler);
    if (stream->filler.len < before)
        tsi_control_shorten(stream->control, stream->filler.epoch, stream->filler.len);
}

static int advance(struct tsp_stream *stream)
{
    struct tsp_filler *filler = &stream->filler;
    uint64_t before = filler->head;
    enum tsp_slot_state state;
    int rc = TSOCKET_OK;

    while (rc == TSOCKET_OK && (state = tsp_filler_advance(filler)) == TSP_SLOT_BAD)
        rc = decide_bad(stream);
    if (rc == TSOCKET_OK && state == TSP_SLOT_END) {
        cut(stream);
        if (filler->len == 0)
            rc = tsi_fail(TSOCKET_EBAD_SAMPLE, "stream %s: epoch %" PRIu64 " ended without a sample", stream->name,
                          filler->epoch);
    }
    stream->made += filler->head - before;
    publish(stream);
    return rc;
}

/* The position below which nobody reads any more. */
static uint64_t needed_from(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    const struct tsp_consumer *slowest = tsp_roster_slowest(roster, stream);
    uint64_t position = stream->floor; /* nobody is there: keep everything for whoever comes */

    if (slowest != NULL)
        position = slowest->released;
    else if (tsp_roster_count(roster, stream, TSP_JOINING) > 0)
        position = stream->filler.head; /* nobody wants this epoch any more */
    if (stream->keep_until_ns != 0)
        position = MIN(position, stream->keep_position);
    return MAX(position, stream->floor);
}

/* The group's last reader has left while others wait for the next epoch: this one is abandoned. */
static void abandon(struct tsp_stream *stream, const struct tsp_roster *roster)
{
    if (tsp_roster_slowest(roster, stream) != NULL || tsp_roster_count(roster, stream, TSP_JOINING) == 0 ||
        tsp_filler_decided(&stream->filler))
        return;
    stream->keep_until_ns = 0;
    cut(stream);
}

static void start_waiting(struct tsp_stream *stream, const struct tsp_roster *roster, uint64_t now_ns)
{
    for (uint32_t i = 0; i < roster->n; i++) {
        struct tsp_consumer *consumer = roster->consumers[i];

        if (consumer->stream == stream && consumer->state == TSP_JOINING && consumer->epoch <= stream->filler.epoch)
            activate(stream, roster, consumer, stream->filler.epoch, stream->filler.start, now_ns);
    }
}

static void finish(struct tsp_stream *stream)
{
    stream->finished = true;
    tsi_control_set_state(stream->control, TSI_FINISHED);
}

static void sum_up_bad(struct tsp_stream *stream)
{
    if (stream->bad_in_epoch > BAD_LINES_PER_EPOCH)
        tsi_log('W', "stream %s, epoch %" PRIu64 ": %" PRIu64 " samples could not be used", stream->name,
                stream->filler.epoch, stream->bad_in_epoch);
    stream->bad_in_epoch = 0;
}

/* Begins the next epoch if this one is over. Its entry on the page must not be one that somebody still reads. */
static bool turn(struct tsp_stream *stream, const struct tsp_roster *roster, uint64_t now_ns)
{
    struct tsp_filler *filler = &stream->filler;
    uint64_t next = filler->epoch + 1;
    uint64_t start;

    if (stream->finished || !tsp_filler_decided(filler) || filler->out > 0)
        return false;
    if (stream->options.epochs > 0 && next >= stream->options.epochs) {
        sum_up_bad(stream);
        finish(stream);
        return false;
    }
    start = filler->start + filler->len;
    if (next >= TSI_EPOCHS) {
        struct tsi_sight oldest = epoch_at(stream, next - TSI_EPOCHS);

        if (needed_from(stream, roster) < oldest.start + oldest.len)
            return false;
        raise_floor(stream, oldest.start + oldest.len);
    }
    sum_up_bad(stream);
    tsi_control_begin(stream->control, next, start, nominal_len(stream));
    tsp_filler_begin(filler, next, start, nominal_len(stream));
    start_waiting(stream, roster, now_ns);
    return true;
}

static bool make_room(struct tsp_stream *stream, const struct tsp_roster *roster)
{
    struct tsp_filler *filler = &stream->filler;
    uint64_t capacity = stream->layout.capacity;

    if (!tsp_filler_allow(filler, needed_from(stream, roster) + capacity))
        return false;
    raise_floor(stream, filler->limit > capacity ? filler->limit - capacity : 0);
    if (stream->options.null)
        tsp_filler_jump(filler);
    return true;
}

int tsp_stream_progress(struct tsp_stream *stream, const struct tsp_roster *roster, uint64_t now_ns, bool *wake_out)
{
    bool was_finished = stream->finished;
    bool moved;
    int rc;

    if (now_ns >= stream->keep_until_ns)
        stream->keep_until_ns = 0;
    do {
        rc = advance(stream);
        if (rc != TSOCKET_OK)
            return rc;
        abandon(stream, roster);
        moved = turn(stream, roster, now_ns);
        if (make_room(stream, roster)) {
            *wake_out = true;
            moved = moved || stream->options.null;
        }
    } while (moved);
    *wake_out = *wake_out || stream->filler.redo || stream->finished != was_finished;
    return TSOCKET_OK;
}

int tsp_stream_finish(struct tsp_stream *stream)
{
    struct tsp_filler *filler = &stream->filler;
    bool untouched = filler->head == filler->start;

    if (filler->out > 0)
        return tsi_fail(TSOCKET_EINVAL, "stream %s: finished while %" PRIu64 " claims are out", stream->name,
                        filler->out);
    if (stream->finished)
        return TSOCKET_OK;
    sum_up_bad(stream);
    finish(stream);
    stream->options.epochs = filler->epoch + (untouched ? 0 : 1);
    if (untouched) { /* it shall not be seen as an epoch without samples */
        tsi_control_take_back(stream->control, filler->epoch);
        tsp_filler_cut(filler);
    } else {
        cut(stream);
    }
    return TSOCKET_OK;
}

bool tsp_stream_want_is_met(const struct tsp_stream *stream, const struct tsp_consumer *consumer)
{
    const struct tsp_filler *filler = &stream->filler;

    if (!stream->open) /* epochs may have been made, but none is published */
        return false;
    if ((stream->finished && stream->published == filler->head) || consumer->want_epoch < filler->epoch)
        return true;
    if (consumer->want_epoch > filler->epoch || stream->published < filler->start)
        return false;
    return stream->published - filler->start >= consumer->want_index ||
           (tsp_filler_decided(filler) && stream->published == filler->head);
}

bool tsp_stream_is_over(const struct tsp_stream *stream)
{
    bool last = stream->options.epochs > 0 && stream->filler.epoch + 1 >= stream->options.epochs;

    if (stream->keep_until_ns != 0) /* those who come within the grace are still to be served */
        return false;
    return stream->finished || (last && stream->filler.start < stream->floor);
}

bool tsp_stream_held_by_grace(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    const struct tsp_consumer *slowest = tsp_roster_slowest(roster, stream);

    return stream->keep_until_ns != 0 && slowest != NULL && slowest->released > stream->keep_position;
}

const struct tsp_consumer *tsp_stream_held_by(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    const struct tsp_filler *filler = &stream->filler;

    if (filler->out > 0 || filler->next < filler->limit || tsp_filler_decided(filler) ||
        tsp_stream_held_by_grace(stream, roster))
        return NULL;
    return tsp_roster_slowest(roster, stream);
}
