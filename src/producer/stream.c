/* SPDX-License-Identifier: Apache-2.0 */
#include "stream.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../ipc/clock.h"
#include "../ipc/error.h"
#include "../ipc/log.h"
#include "../ipc/step.h"
#include "bad.h"
#include "join.h"
#include "side.h"

/* Positions of side rings begin here: an epoch that is begun in its middle has its start before that. */
#define SIDE_BASE TSI_NUMBER_MAX

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* --- life */

static int check_length(const struct tsocket_stream_options *options)
{
    if (options->epoch_samples > TSI_NUMBER_MAX || options->epochs > TSI_NUMBER_MAX ||
        options->first_epoch > TSI_NUMBER_MAX)
        return tsi_fail(TSOCKET_EINVAL, "stream %s: %" PRIu64 " samples, %" PRIu64 " epochs; the limit is %" PRIu64,
                        options->name, options->epoch_samples, options->epochs, TSI_NUMBER_MAX);
    if (options->epoch_samples == 0 && (options->null || options->on_bad == TSOCKET_BAD_SKIP))
        return tsi_fail(
            TSOCKET_EINVAL,
            "stream %s: with epochs of unknown length it can neither be null nor leave samples out (there is "
            "no last one to take their place); set epoch_samples or another on_bad",
            options->name);
    if (options->resident && (options->epoch_samples == 0 || options->capacity < options->epoch_samples))
        return tsi_fail(TSOCKET_EINVAL,
                        "stream %s: resident, so that its ring must hold all %" PRIu64 " samples; it holds %" PRIu64
                        ": use --ring %" PRIu64 ", or no resident",
                        options->name, options->epoch_samples, options->capacity, options->epoch_samples);
    return TSOCKET_OK;
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
    if ((options->dataset_id == NULL) != (options->recipe_id == NULL))
        return tsi_fail(TSOCKET_EINVAL, "stream %s: dataset_id and recipe_id go together", options->name);
    if (options->side_rings > TSOCKET_SIDE_RINGS_MAX)
        return tsi_fail(TSOCKET_EINVAL, "stream %s: %" PRIu32 " side rings; the limit is %d", options->name,
                        options->side_rings, TSOCKET_SIDE_RINGS_MAX);
    if (options->side_rings > 0 && (options->dataset_id == NULL || options->epoch_samples == 0))
        return tsi_fail(TSOCKET_EINVAL,
                        "stream %s: side rings need samples that can be made at any time: epoch_samples, dataset_id "
                        "and recipe_id",
                        options->name);
    return check_length(options);
}

static int reserve(struct tsp_stream *stream, const struct tsp_store_watcher *watcher)
{
    int rc = tsp_store_init(&stream->store, &stream->layout, &stream->options, watcher);

    if (rc == TSOCKET_OK)
        rc = tsp_filler_init(&stream->filler, stream->layout.capacity);
    if (rc == TSOCKET_OK)
        rc = tsi_arena_create("tsocket-control", tsi_control_bytes(stream->layout.capacity), &stream->page);
    return rc;
}

uint64_t tsp_stream_len(const struct tsp_stream *stream, uint64_t removed)
{
    return stream->options.epoch_samples > 0 ? stream->options.epoch_samples - removed : TSI_LEN_OPEN;
}

/* A ring with its page, at the start of `epoch`, which is at position `start`. */
static int create_ring(const struct tsocket_stream_options *options, uint64_t start,
                       const struct tsp_store_watcher *watcher, struct tsp_stream **ring_out)
{
    struct tsp_stream *ring = calloc(1, sizeof(*ring));
    int rc;

    if (ring == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for a stream");
    ring->options = *options;
    ring->page.fd = -1;
    strcpy(ring->name, options->name);
    rc = tsi_layout_init(options->fields, options->n_fields, options->capacity, options->max_batch, &ring->layout);
    if (rc == TSOCKET_OK)
        rc = reserve(ring, watcher);
    if (rc != TSOCKET_OK) {
        tsp_stream_destroy(ring);
        return rc;
    }
    ring->control = ring->page.base;
    ring->open = true;
    tsi_control_init(ring->control);
    tsp_stream_restart(ring, &(struct tsi_place){.epoch = options->first_epoch}, start);
    *ring_out = ring;
    return TSOCKET_OK;
}

/* Who fits into the group's ring shall fit into a side ring, unless that is so large that it would take the memory. */
static uint64_t side_capacity(const struct tsocket_stream_options *options)
{
    uint64_t least = 4 * (uint64_t)options->max_batch;

    if (options->side_capacity > 0)
        return options->side_capacity;
    return MAX(least, MIN(options->capacity, 4 * least));
}

static int add_sides(struct tsp_stream *stream, const struct tsp_store_watcher *watcher)
{
    struct tsocket_stream_options options = stream->options;
    int rc = TSOCKET_OK;

    options.device = tsp_store_devices(&stream->store, options.device);
    options.capacity = side_capacity(&stream->options);
    while (rc == TSOCKET_OK && stream->n_sides < options.side_rings) {
        struct tsp_stream *side;

        rc = create_ring(&options, SIDE_BASE, watcher, &side);
        if (rc != TSOCKET_OK)
            break;
        side->number = stream->number;
        side->home = stream;
        side->serial = stream->n_sides;
        tsp_filler_stop(&side->filler);
        stream->sides[stream->n_sides++] = side;
    }
    return rc;
}

int tsp_stream_create(const struct tsocket_stream_options *given, uint32_t number, uint32_t join_grace_ms,
                      const struct tsp_store_watcher *watcher, struct tsp_stream **stream_out)
{
    struct tsocket_stream_options options = *given;
    struct tsp_stream *stream;
    int rc = check_options(given);

    if (rc != TSOCKET_OK)
        return rc;
    if (options.resident) { /* whoever comes passes over all of it at will: nobody is ever behind */
        if (options.epochs > 0)
            tsi_log('I', "stream %s: resident, so that its --epochs %" PRIu64 " is not looked at", options.name,
                    options.epochs);
        options.side_rings = 0;
        options.first_epoch = 0;
        options.epochs = 1;
    }
    rc = create_ring(&options, 0, watcher, &stream);
    if (rc != TSOCKET_OK)
        return rc;
    stream->number = number;
    stream->join_grace_ns = join_grace_ms * TSI_NS_PER_MS;
    tsi_log_quote(options.source != NULL ? options.source : "", stream->source, sizeof(stream->source));
    if (options.recipe != NULL && (stream->recipe = strdup(options.recipe)) == NULL)
        rc = tsi_fail(TSOCKET_ENOMEM, "no memory for a recipe");
    if (rc == TSOCKET_OK && options.dataset_id != NULL)
        rc = tsi_origin_make(options.dataset_id, options.recipe_id, options.seed, stream->origin);
    if (rc == TSOCKET_OK)
        rc = add_sides(stream, watcher);
    if (rc == TSOCKET_OK)
        *stream_out = stream;
    else
        tsp_stream_destroy(stream);
    return rc;
}

void tsp_stream_destroy(struct tsp_stream *stream)
{
    if (stream == NULL)
        return;
    for (uint32_t i = 0; i < stream->n_sides; i++)
        tsp_stream_destroy(stream->sides[i]);
    tsp_store_fini(&stream->store);
    tsi_arena_close(&stream->page);
    tsp_filler_fini(&stream->filler);
    free(stream->recipe);
    free(stream);
}

/* --- epochs in the ring */

struct tsi_sight tsp_stream_epoch(const struct tsp_stream *stream, uint64_t epoch)
{
    return tsi_control_look(stream->control, epoch);
}

uint64_t tsp_stream_oldest_epoch(const struct tsp_stream *stream)
{
    uint64_t begun = stream->filler.epoch + 1;

    return MAX(stream->first_epoch, begun > TSI_EPOCHS ? begun - TSI_EPOCHS : 0);
}

uint64_t tsp_stream_epoch_of(const struct tsp_stream *stream, uint64_t position)
{
    uint64_t epoch = stream->filler.epoch;

    while (epoch > tsp_stream_oldest_epoch(stream) && tsp_stream_epoch(stream, epoch).start > position)
        epoch--;
    return epoch;
}

/* Makes known what is where consumers read. What lies below `wanted` is to be there soon. */
static void publish(struct tsp_stream *stream, uint64_t wanted)
{
    uint64_t done;

    tsp_store_push(&stream->store, stream->filler.head, wanted);
    done = tsp_store_done(&stream->store);
    if (!stream->open || done == stream->published)
        return;
    stream->published = done;
    tsi_control_publish(stream->control, done);
    TSI_STEP(PUBLISHED);
}

static void raise_floor(struct tsp_stream *stream, uint64_t floor)
{
    if (floor <= stream->floor)
        return;
    stream->floor = floor;
    tsi_control_raise_floor(stream->control, floor);
}

/* Beside the slot, what the epoch had lost when head passed it. */
static void note_removed(struct tsp_stream *stream, uint64_t position, uint64_t removed)
{
    if (stream->options.on_bad == TSOCKET_BAD_SKIP && !stream->options.null)
        tsi_control_note_removed(stream->control, stream->layout.capacity, position, removed);
}

void tsp_stream_restart(struct tsp_stream *stream, const struct tsi_place *place, uint64_t start)
{
    uint64_t len = tsp_stream_len(stream, place->removed);

    tsi_control_restart(stream->control, place->epoch, start, len);
    tsp_filler_begin(&stream->filler, place->epoch, start, len, place->index);
    if (place->index > 0) /* who begins here must know it */
        note_removed(stream, stream->filler.head - 1, place->removed);
    tsp_store_restart(&stream->store, stream->filler.head);
    stream->begun = stream->filler.head;
    stream->first_epoch = place->epoch;
    stream->cut_epochs = MIN(stream->cut_epochs, place->epoch); /* this one is whole again */
    stream->bad_in_epoch = 0;
    if (stream->finished)
        tsi_control_set_state(stream->control, TSI_RUNNING);
    stream->finished = false;
    if (stream->home == NULL) /* what lies before is nobody's; a side ring's reader may still hold some */
        raise_floor(stream, stream->filler.head);
    publish(stream, 0);
}

void tsp_stream_detach(struct tsp_stream *stream, const struct tsp_consumer *consumer)
{
    stream->delivered += consumer->received;
}

void tsp_stream_describe_place(const struct tsp_stream *stream, const struct tsp_consumer *consumer,
                               struct tsi_welcome *welcome)
{
    const struct tsp_filler *filler = &stream->filler;
    uint64_t position;

    welcome->from = consumer->place;
    if (consumer->state == TSP_READING && consumer->ring == stream &&
        tsp_side_find(stream, &consumer->place, &position) && position == consumer->released) {
        welcome->epoch = consumer->place.epoch; /* in its own words: an epoch's end is not the next one's begin */
        welcome->first = consumer->place.index;
        welcome->position = position;
    } else if (consumer->state == TSP_PARKED || stream->options.resident) { /* it knows best where it is */
        welcome->epoch = consumer->place.epoch;
        welcome->first = consumer->place.index;
        welcome->position = welcome->first;
    } else if (consumer->state == TSP_JOINING) { /* expected: the epoch before may still lose samples */
        welcome->epoch = consumer->epoch;
        welcome->position = filler->len == TSI_LEN_OPEN ? filler->head : filler->start + filler->len;
        welcome->first = 0;
    } else {
        position = MAX(consumer->released, consumer->ring->begun);
        welcome->epoch = tsp_stream_epoch_of(consumer->ring, position);
        welcome->first = position - tsp_stream_epoch(consumer->ring, welcome->epoch).start;
        welcome->position = consumer->ring == stream ? consumer->released : welcome->first;
    }
}

/* --- moving on */

static void cut(struct tsp_stream *stream)
{
    uint64_t before = stream->filler.len;

    tsp_filler_cut(&stream->filler);
    if (stream->filler.len < before)
        tsi_control_shorten(stream->control, stream->filler.epoch, stream->filler.len);
}

/* Moves head over what is ready, and notes at each slot what the epoch had lost by then. */
static enum tsp_slot_state pass_ready(struct tsp_stream *stream)
{
    struct tsp_filler *filler = &stream->filler;
    uint64_t from = filler->head;
    enum tsp_slot_state state = tsp_filler_advance(filler);

    for (uint64_t position = from; position < filler->head; position++)
        note_removed(stream, position, stream->options.epoch_samples - filler->len);
    return state;
}

/* The position at which what a consumer sleeps for has come; UINT64_MAX: it is not known yet. */
static uint64_t wanted_position(const struct tsp_stream *stream, const struct tsp_consumer *consumer)
{
    struct tsi_sight sight;

    if (consumer->want_epoch > stream->filler.epoch)
        return UINT64_MAX;
    if (consumer->want_epoch < tsp_stream_oldest_epoch(stream))
        return 0;
    sight = tsp_stream_epoch(stream, consumer->want_epoch);
    return sight.start + MIN(consumer->want_index, sight.len);
}

/* Nothing more is written for now: the epoch is over, the filler stops, or the ring is full. */
static bool is_resting(const struct tsp_stream *stream)
{
    const struct tsp_filler *filler = &stream->filler;

    return filler->stopped || tsp_filler_decided(filler) ||
           (filler->head == filler->limit && filler->limit < tsp_store_limit(&stream->store));
}

/* What must be copied to GPUs without waiting for a full chunk: what somebody sleeps for, once that is written. */
static uint64_t wanted_below(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    const struct tsp_filler *filler = &stream->filler;
    uint64_t wanted = 0;

    if (is_resting(stream))
        return filler->head;
    for (uint32_t i = 0; i < roster->n && !tsp_store_is_idle(&stream->store); i++) {
        const struct tsp_consumer *consumer = roster->consumers[i];

        if (consumer->ring != stream || !consumer->wants)
            continue;
        if (wanted_position(stream, consumer) <= filler->head)
            wanted = MAX(wanted, wanted_position(stream, consumer));
    }
    return wanted;
}

static int advance(struct tsp_stream *stream, const struct tsp_roster *roster)
{
    struct tsp_filler *filler = &stream->filler;
    uint64_t before = filler->head;
    enum tsp_slot_state state;
    int rc = TSOCKET_OK;

    while (rc == TSOCKET_OK && (state = pass_ready(stream)) == TSP_SLOT_BAD)
        rc = tsp_bad_decide(stream);
    if (rc == TSOCKET_OK && state == TSP_SLOT_END) {
        cut(stream);
        if (filler->len == 0)
            rc = tsi_fail(TSOCKET_EBAD_SAMPLE, "stream %s: epoch %" PRIu64 " ended without a sample", stream->name,
                          filler->epoch);
    }
    stream->made += filler->head - before;
    publish(stream, wanted_below(stream, roster));
    return rc;
}

/* The position below which nobody reads any more. */
static uint64_t needed_from(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    const struct tsp_consumer *slowest = tsp_roster_slowest(roster, stream);
    uint64_t position = stream->floor; /* nobody is there: keep everything for whoever comes */

    if (stream->options.resident)
        return stream->floor;
    if (slowest != NULL)
        position = MIN(slowest->released, stream->published); /* it may be ahead, having resumed there */
    else if (tsp_roster_count(roster, stream, TSP_JOINING) > 0)
        position = stream->published; /* nobody wants this epoch any more */
    if (stream->keep_until_ns != 0)
        position = MIN(position, stream->keep_position);
    return MAX(position, stream->floor);
}

static bool is_last_epoch(const struct tsp_stream *stream)
{
    return stream->options.epochs > 0 && stream->filler.epoch + 1 >= stream->options.epochs;
}

/* The group's last reader has left while others wait for the next epoch: this one is abandoned. */
static void abandon(struct tsp_stream *stream, const struct tsp_roster *roster)
{
    if (tsp_roster_slowest(roster, stream) != NULL || tsp_roster_count(roster, stream, TSP_JOINING) == 0 ||
        tsp_filler_decided(&stream->filler) || is_last_epoch(stream))
        return;
    stream->keep_until_ns = 0;
    stream->cut_epochs = stream->filler.epoch + 1;
    cut(stream);
}

static void finish(struct tsp_stream *stream)
{
    stream->finished = true;
    tsi_control_set_state(stream->control, TSI_FINISHED);
}

/* The epoch is decided. What is cut off an abandoned one may be read on a side ring: its length is not recorded. */
static void sum_up(struct tsp_stream *stream)
{
    if (stream->filler.epoch >= stream->cut_epochs)
        tsp_ledger_epoch(stream->ledger, stream->number, stream->filler.epoch, stream->filler.len);
    tsp_bad_sum_up(stream);
}

/* Begins the next epoch if this one is over. Its entry on the page must not be one that somebody still reads. */
static bool turn(struct tsp_stream *stream, const struct tsp_roster *roster, uint64_t now_ns)
{
    struct tsp_filler *filler = &stream->filler;
    uint64_t next = filler->epoch + 1;
    uint64_t start;

    if (stream->finished || !tsp_filler_decided(filler) || filler->out > 0)
        return false;
    if (is_last_epoch(stream)) {
        sum_up(stream);
        finish(stream);
        return false;
    }
    start = filler->start + filler->len;
    if (next >= TSI_EPOCHS) {
        struct tsi_sight oldest = tsp_stream_epoch(stream, next - TSI_EPOCHS);

        if (needed_from(stream, roster) < oldest.start + oldest.len)
            return false;
        raise_floor(stream, oldest.start + oldest.len);
    }
    sum_up(stream);
    TSI_STEP(EPOCH_DECIDED);
    tsi_control_begin(stream->control, next, start, tsp_stream_len(stream, 0));
    tsp_filler_begin(filler, next, start, tsp_stream_len(stream, 0), 0);
    TSI_STEP(EPOCH_BEGUN);
    tsp_join_start_waiting(stream, roster, now_ns);
    return true;
}

/*
 * How far claims may go. A side ring may have to be begun anew while its reader still holds some of it: so much of it
 * stays free that there is room for all that the reader may hold behind that, if the ring is large enough at all.
 */
static uint64_t limit_of(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    const struct tsp_consumer *reader = stream->home != NULL ? tsp_roster_slowest(roster, stream) : NULL;
    uint64_t capacity = stream->layout.capacity;
    uint64_t from = needed_from(stream, roster), room;

    if (stream->home == NULL)
        return from + capacity;
    if (reader == NULL)
        return stream->filler.limit;
    room = MIN(tsp_join_room(stream, &reader->hello), capacity);
    return MIN(from + capacity, MAX(from + MAX(capacity - room, room), stream->begun + room));
}

static bool make_room(struct tsp_stream *stream, const struct tsp_roster *roster)
{
    struct tsp_filler *filler = &stream->filler;
    uint64_t capacity = stream->layout.capacity;
    uint64_t ring = limit_of(stream, roster);
    uint64_t store = tsp_store_limit(&stream->store); /* looked at once: copies go on meanwhile, and MIN looks twice */

    if (!tsp_filler_allow(filler, MIN(ring, store)))
        return false;
    assert(filler->limit <= ring);
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
    if (stream->filler.stopped) {
        publish(stream, wanted_below(stream, roster));
        return TSOCKET_OK;
    }
    do {
        rc = advance(stream, roster);
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
    sum_up(stream);
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

void tsp_stream_set_state(struct tsp_stream *stream, enum tsi_state state)
{
    tsi_control_set_state(stream->control, state);
    for (uint32_t i = 0; i < stream->n_sides; i++)
        tsi_control_set_state(stream->sides[i]->control, state);
}

void tsp_stream_fail(struct tsp_stream *stream, const char *why)
{
    tsi_control_fail(stream->control, why);
    for (uint32_t i = 0; i < stream->n_sides; i++)
        tsi_control_fail(stream->sides[i]->control, why);
}

void tsp_stream_drain(struct tsp_stream *stream)
{
    uint64_t last = stream->filler.epoch;

    if (!stream->options.resident && (stream->options.epochs == 0 || stream->options.epochs > last + 1))
        stream->options.epochs = last + 1;
    for (uint32_t i = 0; i < stream->n_sides; i++)
        stream->sides[i]->options.epochs = stream->options.epochs;
}

bool tsp_stream_want_is_met(const struct tsp_stream *stream, const struct tsp_consumer *consumer)
{
    if (!stream->open) /* epochs may have been made, but none is published */
        return false;
    return (stream->finished && stream->published == stream->filler.head) ||
           wanted_position(stream, consumer) <= stream->published;
}

bool tsp_stream_is_over(const struct tsp_stream *stream)
{
    if (stream->keep_until_ns != 0) /* those who come within the grace are still to be served */
        return false;
    return stream->finished || (is_last_epoch(stream) && stream->filler.start < stream->floor);
}

bool tsp_stream_held_by_grace(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    const struct tsp_consumer *slowest = tsp_roster_slowest(roster, stream);

    return stream->keep_until_ns != 0 && slowest != NULL && slowest->released > stream->keep_position;
}

struct tsp_consumer *tsp_stream_held_by(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    const struct tsp_filler *filler = &stream->filler;
    bool full = tsp_filler_decided(filler) ? !stream->finished /* as many epochs as there can be */
                                           : filler->next == filler->limit;

    if (filler->out > 0 || !tsp_store_is_idle(&stream->store) || !full || stream->options.resident ||
        tsp_stream_held_by_grace(stream, roster))
        return NULL;
    return tsp_roster_slowest(roster, stream);
}
