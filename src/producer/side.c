/* SPDX-License-Identifier: Apache-2.0 */
#include "side.h"

#include <inttypes.h>

#include "../ipc/clock.h"
#include "../ipc/error.h"
#include "../ipc/log.h"
#include "../ipc/step.h"
#include "join.h"
#include "owed.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* --- places */

/* Whether the ring has the place, between its floor and the end of the epoch that it is in. */
bool tsp_side_find(const struct tsp_stream *ring, const struct tsi_place *place, uint64_t *position_out)
{
    struct tsi_sight sight;

    if (ring->filler.stopped || place->epoch > ring->filler.epoch ||
        place->epoch < MAX(tsp_stream_oldest_epoch(ring), ring->cut_epochs))
        return false;
    sight = tsp_stream_epoch(ring, place->epoch);
    if (sight.start + place->index < ring->floor || place->index > sight.len ||
        sight.start + place->index < ring->begun) /* of a side ring: older content, which its reader may hold still */
        return false;
    *position_out = sight.start + place->index;
    return true;
}

/* As far as the ring knows: of what a side ring had before it was begun anew, it does not. */
static struct tsi_place place_of(const struct tsp_consumer *consumer)
{
    uint64_t position = MAX(consumer->released, consumer->ring->begun);
    uint64_t epoch = tsp_stream_epoch_of(consumer->ring, position);

    return (struct tsi_place){.epoch = epoch, .index = position - tsp_stream_epoch(consumer->ring, epoch).start};
}

/* The epoch behind the one that is being made: waiting for that needs no side ring. */
static bool is_next_epoch(const struct tsp_stream *stream, const struct tsi_place *place)
{
    return place->epoch == stream->filler.epoch + 1 && place->index == 0;
}

/* A producer that cannot go back still tells its consumers of their settings, and evicts: where they read. */
static bool is_in_group(const struct tsp_stream *stream, const struct tsi_place *place)
{
    uint64_t position;

    return tsp_side_find(stream, place, &position) || is_next_epoch(stream, place);
}

/* Whoever stands there has had everything: it only waits to be told so. */
static bool is_behind_the_last(const struct tsp_stream *stream, const struct tsi_place *place)
{
    return stream->options.epochs > 0 && place->epoch == stream->options.epochs && place->index == 0;
}

static int check_place(const struct tsp_stream *stream, const struct tsi_place *place)
{
    const struct tsocket_stream_options *options = &stream->options;

    if (is_in_group(stream, place))
        return TSOCKET_OK;
    if (place->index + place->removed <= options->epoch_samples && stream->origin[0] != '\0' &&
        (options->epochs == 0 || place->epoch < options->epochs || is_behind_the_last(stream, place)))
        return TSOCKET_OK;
    return tsi_fail(TSOCKET_EPROTOCOL, "there is no place %" PRIu64 " (%" PRIu64 " left out) in epoch %" PRIu64,
                    place->index, place->removed, place->epoch);
}

/* --- summons */

static void summon(struct tsp_consumer *consumer, bool on)
{
    consumer->summoned = on;
    tsi_control_summon(consumer->watches->control, consumer->seat, on);
}

/* From now on it looks at the page of that ring. */
static void watch(struct tsp_consumer *consumer, struct tsp_stream *ring)
{
    summon(consumer, false);
    consumer->watches = ring;
    consumer->ring = ring;
    consumer->state = TSP_READING;
    consumer->fresh = false;
    consumer->asks = false;
}

static const char *const words[] = {
    [TSP_LEDGER_PAUSED] = "paused", [TSP_LEDGER_HELD] = "held the group", [TSP_LEDGER_SIDE] = "reads elsewhere"};

void tsp_side_park(struct tsp_consumer *consumer, enum tsp_ledger_why why, uint64_t now_ns)
{
    if (consumer->ring != NULL && consumer->state == TSP_READING && !consumer->asks)
        consumer->place = place_of(consumer); /* as far as is known; it will say, unless it has */
    tsp_owed_note_reach(consumer);
    if (consumer->ring == consumer->side)
        consumer->side_released = consumer->released;
    consumer->state = TSP_PARKED;
    consumer->ring = NULL;
    consumer->parked_for = words[why];
    consumer->parked_ns = now_ns;
    consumer->parked++;
    summon(consumer, true);
    if (consumer->stream != NULL) /* it is not recorded yet when it comes */
        tsp_ledger_parked(consumer->stream->ledger, consumer->id, why);
    TSI_STEP(PARKED);
}

void tsp_side_tell(struct tsp_consumer *consumer)
{
    if (consumer->state == TSP_READING && !consumer->stream->options.resident)
        summon(consumer, true);
}

/* Whether it may have been given anything before it was parked. */
static bool has_read(const struct tsp_consumer *consumer)
{
    return consumer->reach.epoch > 0 || consumer->reach.index > 0;
}

/*
 * For the ledger. Who has been given a lap to its end says so by asking for what comes behind it. (Ranks count their
 * windows from where they began: that stays.)
 */
static void record(struct tsp_consumer *consumer, const struct tsi_place *place)
{
    struct tsp_ledger *ledger = consumer->stream->ledger;
    bool late = consumer->wrap > 0 && place->epoch == consumer->wrap_epoch;
    uint64_t index = place->index;
    bool begins = late && index == 0 && !consumer->second_lap, wraps;

    if (consumer->hello.world > 1)
        return;
    consumer->second_lap |= begins;
    if (late && consumer->second_lap && index >= consumer->wrap)
        return; /* at its second lap's end, behind which its place has led it to the next epoch all along */
    wraps = late && consumer->second_lap;
    if (late && !consumer->second_lap)
        index = MAX(index, consumer->wrap); /* it may be able to say only a place before its first sample */
    if (begins && consumer->ring != NULL && place->epoch >= tsp_stream_oldest_epoch(consumer->ring))
        tsp_ledger_released(ledger, consumer->id, place->epoch, tsp_stream_epoch(consumer->ring, place->epoch).len);
    if (consumer->wrap > 0 && place->epoch == consumer->wrap_epoch + 1 && place->index == 0)
        tsp_ledger_released(ledger, consumer->id, consumer->wrap_epoch, consumer->wrap);
    /* what it released meanwhile was about a ring that it had left */
    if (!late && consumer->state == TSP_PARKED && has_read(consumer))
        tsp_ledger_released(ledger, consumer->id, place->epoch, 0);
    tsp_ledger_place(ledger, consumer->id, place->epoch, index, wraps ? consumer->wrap : UINT64_MAX);
}

int tsp_side_ask(struct tsp_consumer *consumer, const struct tsi_place *place, bool again, uint64_t now_ns)
{
    uint64_t position;
    int rc = consumer->evicted ? TSOCKET_OK : check_place(consumer->stream, place);

    if (rc != TSOCKET_OK)
        return rc;
    consumer->asks = true;
    if (consumer->evicted) /* wherever it is: it is told so */
        return TSOCKET_OK;
    tsp_owed_note_reach(consumer);
    consumer->again = again;
    if (!again)
        record(consumer, place);
    if (consumer->state == TSP_READING && consumer->ring == consumer->stream &&
        !tsp_side_find(consumer->stream, place, &position) &&
        !is_next_epoch(consumer->stream, place)) /* the group does not wait until there is a side ring */
        tsp_side_park(consumer, TSP_LEDGER_SIDE, now_ns);
    consumer->place = *place;
    return TSOCKET_OK;
}

int tsp_side_pause(struct tsp_consumer *consumer, const struct tsi_place *place, uint64_t now_ns)
{
    int rc = check_place(consumer->stream, place);

    if (rc != TSOCKET_OK)
        return rc;
    if (consumer->state != TSP_PARKED)
        tsp_side_park(consumer, TSP_LEDGER_PAUSED, now_ns);
    consumer->place = *place;
    consumer->asks = false;
    return TSOCKET_OK;
}

/* --- side rings */

bool tsp_side_fits(const struct tsp_stream *stream, const struct tsi_hello *hello)
{
    return stream->n_sides > 0 && tsp_join_room(stream, hello) <= stream->sides[0]->layout.capacity;
}

uint32_t tsp_side_used(const struct tsp_stream *stream)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < stream->n_sides; i++)
        n += stream->sides[i]->assigned;
    return n;
}

static void assign(struct tsp_stream *stream, struct tsp_consumer *consumer)
{
    for (uint32_t i = 0; i < stream->n_sides && consumer->side == NULL; i++) {
        struct tsp_stream *side = stream->sides[i];

        if (side->assigned || side->filler.out > 0)
            continue;
        side->assigned = true;
        side->serial += TSOCKET_SIDE_RINGS_MAX; /* it began with i: unlike those of the others */
        consumer->side = side;
        consumer->side_released = side->filler.head;
    }
}

static void give_up_side(struct tsp_consumer *consumer)
{
    tsp_filler_stop(&consumer->side->filler);
    consumer->side->assigned = false;
    consumer->side = NULL;
    TSI_STEP(SIDE_GIVEN_UP);
}

void tsp_side_left(struct tsp_consumer *consumer, uint32_t serial)
{
    if (consumer->side != NULL && consumer->side->serial == serial && consumer->ring != consumer->side)
        give_up_side(consumer);
}

void tsp_side_forget(struct tsp_consumer *consumer)
{
    if (consumer->side != NULL)
        give_up_side(consumer);
    if (consumer->watches != NULL)
        summon(consumer, false);
}

/* Whether the filler has stopped, and nothing is on its way into the ring any more. */
static bool is_at_rest(const struct tsp_stream *ring)
{
    return ring->filler.stopped && ring->filler.out == 0 && tsp_store_is_idle(&ring->store);
}

/*
 * Whether the ring can go on at that position, for what its reader may still hold of it. One that is given lost windows
 * again leaves out those between that it had: then what it holds may reach further than it was promised room for.
 */
static bool has_room_from(const struct tsp_consumer *consumer, uint64_t position)
{
    const struct tsp_stream *side = consumer->side;
    uint64_t held = consumer->ring == side ? consumer->released : consumer->side_released;
    uint64_t room = MIN(tsp_join_room(side, &consumer->hello), side->layout.capacity);
    uint64_t stride = (uint64_t)consumer->hello.batch * consumer->hello.world;
    uint64_t kept = MAX(side->layout.capacity - room, room);

    return position + stride <= held + room || position + room <= held + kept;
}

/* Begins its side ring at its place, unless that is there already. False: samples are still on their way. */
static bool begin_side(struct tsp_consumer *consumer)
{
    struct tsp_stream *side = consumer->side;
    struct tsp_filler *filler = &side->filler;
    uint64_t position;

    if (tsp_side_find(side, &consumer->place, &position) && position <= filler->head &&
        has_room_from(consumer, position))
        return true;
    tsp_filler_stop(filler);
    if (!is_at_rest(side))
        return false;
    tsp_stream_restart(side, &consumer->place, filler->head - consumer->place.index);
    TSI_STEP(SIDE_BEGUN);
    return true;
}

/* --- moving */

static void move_to_group(struct tsp_stream *stream, const struct tsp_roster *roster, struct tsp_consumer *consumer,
                          uint64_t position, uint64_t now_ns)
{
    /* what it holds of the group's ring it holds further on, unless it was parked meanwhile */
    uint64_t released = consumer->ring == stream ? MIN(consumer->released, position) : position;

    if (consumer->side != NULL) {
        if (consumer->ring == consumer->side)
            consumer->side_released = consumer->released;
        tsp_filler_stop(&consumer->side->filler);
    }
    tsp_join_activate(stream, roster, consumer, consumer->place.epoch, released, now_ns);
    watch(consumer, stream);
}

/*
 * It waits for an epoch that has not begun. Where it has read the group's ring so far, nothing changes, unless its lap
 * ended so soon that the ring would never come to the epoch's end if it counted.
 */
static void wait_in_group(struct tsp_stream *stream, struct tsp_consumer *consumer)
{
    uint64_t end = stream->filler.start + stream->filler.len;
    bool stays = consumer->ring == stream && consumer->released + stream->layout.capacity >= end;

    if (consumer->ring != NULL && consumer->ring == consumer->side) {
        consumer->side_released = consumer->released;
        tsp_filler_stop(&consumer->side->filler);
    }
    watch(consumer, stream);
    if (stays)
        return;
    consumer->state = TSP_JOINING;
    consumer->epoch = consumer->place.epoch;
}

static bool move_to_side(struct tsp_stream *stream, struct tsp_consumer *consumer)
{
    uint64_t position;

    if (consumer->side == NULL)
        assign(stream, consumer);
    if (consumer->side == NULL || !begin_side(consumer))
        return false;
    if (consumer->ring != consumer->side)
        consumer->released = consumer->side_released;
    if (tsp_side_find(consumer->side, &consumer->place, &position))
        consumer->released = MIN(consumer->released, position);
    watch(consumer, consumer->side);
    return true;
}

bool tsp_side_answer(struct tsp_stream *stream, const struct tsp_roster *roster, struct tsp_consumer *consumer,
                     uint64_t now_ns, struct tsi_move *move_out, bool *same_out)
{
    uint64_t position;

    *move_out = (struct tsi_move){.number = consumer->place_number, .max_lag = consumer->max_lag};
    if (consumer->evicted) {
        consumer->asks = false;
        move_out->refused = tsi_fail(TSOCKET_ELAPPED, "detached: the group has waited for it for too long");
        return true;
    }
    if (consumer->fresh && !stream->open)
        return false;
    if (tsp_side_find(stream, &consumer->place, &position) &&
        !(tsp_side_is_free(stream, roster) && position > stream->filler.head)) {
        move_to_group(stream, roster, consumer, position, now_ns);
    } else if (is_behind_the_last(stream, &consumer->place)) {
        wait_in_group(stream, consumer);
    } else if (tsp_side_is_free(stream, roster)) {
        return false; /* the group's ring begins at a token: see begin_at_token */
    } else if (is_next_epoch(stream, &consumer->place) && (consumer->ring == NULL || consumer->ring == stream)) {
        wait_in_group(stream, consumer);
    } else if (!tsp_side_fits(stream, &consumer->hello) || !move_to_side(stream, consumer)) {
        return false;
    }
    move_out->ring = consumer->ring->home != NULL ? consumer->ring->serial : 0;
    move_out->capacity = consumer->ring->layout.capacity;
    *same_out = move_out->ring == 0 || move_out->ring == consumer->side_sent;
    if (move_out->ring != 0)
        consumer->side_sent = move_out->ring;
    return true;
}

/* --- beginning at a token */

bool tsp_side_is_free(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    for (uint32_t i = 0; i < roster->n; i++) {
        const struct tsp_consumer *consumer = roster->consumers[i];

        if (consumer->stream == stream && !(consumer->state == TSP_PARKED && consumer->fresh))
            return false;
    }
    return true;
}

/* Of all that have come with a token and not begun, the one with the first place; and since when the first waits. */
static const struct tsp_consumer *first_of_fresh(const struct tsp_stream *stream, const struct tsp_roster *roster,
                                                 uint64_t *since_ns_out)
{
    const struct tsp_consumer *first = NULL;

    *since_ns_out = UINT64_MAX;
    for (uint32_t i = 0; i < roster->n; i++) {
        const struct tsp_consumer *consumer = roster->consumers[i];

        if (consumer->stream != stream || !consumer->fresh)
            continue;
        if (consumer->parked_ns < *since_ns_out)
            *since_ns_out = consumer->parked_ns;
        if (first == NULL || consumer->place.epoch < first->place.epoch ||
            (consumer->place.epoch == first->place.epoch && consumer->place.index < first->place.index))
            first = consumer;
    }
    return first;
}

/* Where the group's ring should begin anew, or NULL: nowhere, or not yet. */
static const struct tsi_place *wanted_place(const struct tsp_stream *stream, const struct tsp_roster *roster,
                                            uint64_t now_ns)
{
    uint64_t since_ns;
    const struct tsp_consumer *first = first_of_fresh(stream, roster, &since_ns);

    if (first == NULL || !stream->open || !tsp_side_is_free(stream, roster) || now_ns < since_ns + stream->collect_ns)
        return NULL;
    return &first->place;
}

static bool is_behind_head(const struct tsp_stream *stream, const struct tsi_place *place)
{
    uint64_t position;

    return tsp_side_find(stream, place, &position) && position <= stream->filler.head;
}

/* The ring is at rest: begins at a token's place. */
static void restart_group(struct tsp_stream *stream, const struct tsi_place *place)
{
    const struct tsp_filler *filler = &stream->filler;
    bool ahead = place->epoch == filler->epoch && filler->start + place->index >= filler->head;

    tsp_stream_restart(stream, place, ahead ? filler->start : filler->next);
    stream->keep_until_ns = 0;
    tsi_log('I', "stream %s: goes on in epoch %" PRIu64 " at sample %" PRIu64, stream->name, place->epoch,
            place->index);
}

/* From here on all that have come count whose place is in the ring, whether they have asked for a batch yet or not. */
static void admit_fresh(struct tsp_stream *stream, const struct tsp_roster *roster, uint64_t now_ns)
{
    for (uint32_t i = 0; i < roster->n; i++) {
        struct tsp_consumer *consumer = roster->consumers[i];
        uint64_t position;

        if (consumer->stream == stream && consumer->fresh && tsp_side_find(stream, &consumer->place, &position)) {
            tsp_join_activate(stream, roster, consumer, consumer->place.epoch, position, now_ns);
            consumer->fresh = false;
        }
    }
}

static void begin_at_token(struct tsp_stream *stream, const struct tsp_roster *roster, uint64_t now_ns)
{
    const struct tsi_place *place = wanted_place(stream, roster, now_ns);

    if (place != NULL && !stream->filler.stopped && !is_behind_head(stream, place))
        tsp_filler_stop(&stream->filler);
    if (stream->filler.stopped && place == NULL) /* whoever it was for is gone, or somebody else has come */
        tsp_filler_go_on(&stream->filler);
    else if (is_at_rest(stream))
        restart_group(stream, place);
    if ((place != NULL || !tsp_side_is_free(stream, roster)) && !stream->filler.stopped)
        admit_fresh(stream, roster, now_ns);
}

/* --- progress */

static void overstay(struct tsp_stream *stream, struct tsp_consumer *consumer, uint64_t now_ns)
{
    const char *what = "parked";

    if (consumer->hello.on_lag == TSOCKET_LAG_DETACH) {
        consumer->evicted = true;
        what = "detached";
    } else if (!tsp_side_fits(stream, &consumer->hello)) {
        stream->holder_ns = now_ns; /* nothing can be done; said again after the same time */
        tsi_log('W',
                "stream %s: consumer %s (process %d) keeps the others waiting for %.1f s, and there is no side ring of "
                "%" PRIu64 " samples on which it could go on; see --side-rings and --side-ring",
                stream->name, consumer->hello.name, (int)consumer->peer.pid,
                (double)consumer->max_hold_ns / (double)TSI_NS_PER_S, tsp_join_room(stream, &consumer->hello));
        return;
    }
    tsi_log('W', "stream %s: consumer %s (process %d) is %s: the others have waited for it for %.1f s", stream->name,
            consumer->hello.name, (int)consumer->peer.pid, what, (double)consumer->max_hold_ns / (double)TSI_NS_PER_S);
    tsp_side_park(consumer, TSP_LEDGER_HELD, now_ns);
}

/* Who keeps the others waiting, since when; longer than it may: the group goes on without it. */
static void watch_holder(struct tsp_stream *stream, const struct tsp_roster *roster, uint64_t now_ns)
{
    struct tsp_consumer *holder = tsp_stream_held_by(stream, roster);

    if (holder == NULL || holder->wants ||
        tsp_roster_readers(roster, stream) + tsp_roster_count(roster, stream, TSP_JOINING) < 2) {
        stream->holder_id = 0;
    } else if (stream->holder_id != holder->id || stream->holder_at != holder->released) {
        stream->holder_id = holder->id;
        stream->holder_at = holder->released;
        stream->holder_ns = now_ns;
    } else if (holder->max_hold_ns > 0 && now_ns >= stream->holder_ns + holder->max_hold_ns) {
        overstay(stream, holder, now_ns);
    }
}

static bool somebody_waits_for_a_side(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    for (uint32_t i = 0; i < roster->n && tsp_side_used(stream) == stream->n_sides; i++) {
        const struct tsp_consumer *consumer = roster->consumers[i];

        if (consumer->stream == stream && consumer->asks && consumer->side == NULL && !consumer->evicted)
            return true;
    }
    return false;
}

/* Whether the reader of a side ring stands still, and may not for longer. */
static bool overstays_on_side(struct tsp_consumer *consumer, uint64_t now_ns)
{
    struct tsp_stream *side = consumer->side;

    if (consumer->state == TSP_PARKED)
        return !consumer->asks; /* it only holds some of it, and has been parked for that */
    if (consumer->ring != side || consumer->wants)
        return false;
    if (side->holder_id != consumer->id || side->holder_at != consumer->released) {
        side->holder_id = consumer->id;
        side->holder_at = consumer->released;
        side->holder_ns = now_ns;
    }
    return consumer->max_hold_ns > 0 && now_ns >= side->holder_ns + consumer->max_hold_ns;
}

/* While others wait for a side ring, whoever has one and stands still must give it up, as it must the group's. */
static void watch_sides(const struct tsp_stream *stream, const struct tsp_roster *roster, uint64_t now_ns)
{
    if (stream->n_sides == 0 || !somebody_waits_for_a_side(stream, roster))
        return;
    for (uint32_t i = 0; i < roster->n; i++) {
        struct tsp_consumer *consumer = roster->consumers[i];

        if (consumer->stream != stream || consumer->side == NULL || !overstays_on_side(consumer, now_ns))
            continue;
        tsi_log('W', "stream %s: consumer %s (process %d) gives up its side ring, for which others wait", stream->name,
                consumer->hello.name, (int)consumer->peer.pid);
        if (consumer->state != TSP_PARKED)
            tsp_side_park(consumer, TSP_LEDGER_HELD, now_ns);
        give_up_side(consumer);
    }
}

/* Near enough to the newest sample of the group that it will still be there when the consumer answers. */
static bool can_merge(const struct tsp_stream *stream, const struct tsp_roster *roster,
                      const struct tsp_consumer *consumer)
{
    struct tsi_place place = place_of(consumer);
    uint64_t position;

    return tsp_side_find(stream, &place, &position) &&
           (position >= stream->floor + (stream->filler.head - stream->floor) / 2 ||
            tsp_roster_readers(roster, stream) == 0);
}

void tsp_side_progress(struct tsp_stream *stream, const struct tsp_roster *roster, uint64_t now_ns)
{
    watch_holder(stream, roster, now_ns);
    watch_sides(stream, roster, now_ns);
    begin_at_token(stream, roster, now_ns);
    if (tsp_side_used(stream) == 0)
        return;
    for (uint32_t i = 0; i < roster->n; i++) {
        struct tsp_consumer *consumer = roster->consumers[i];

        if (consumer->stream == stream && consumer->state == TSP_READING && consumer->ring != stream &&
            !consumer->summoned && can_merge(stream, roster, consumer))
            summon(consumer, true);
    }
}

uint64_t tsp_side_deadline_ns(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    uint64_t deadline_ns = UINT64_MAX, since_ns;

    for (uint32_t i = 0; i < roster->n && stream->holder_id != 0; i++) {
        if (roster->consumers[i]->id == stream->holder_id && roster->consumers[i]->max_hold_ns > 0)
            deadline_ns = stream->holder_ns + roster->consumers[i]->max_hold_ns;
    }
    if (tsp_side_is_free(stream, roster) && first_of_fresh(stream, roster, &since_ns) != NULL &&
        since_ns + stream->collect_ns < deadline_ns)
        deadline_ns = since_ns + stream->collect_ns;
    return deadline_ns;
}
