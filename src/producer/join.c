/* SPDX-License-Identifier: Apache-2.0 */
#include "join.h"

#include <inttypes.h>
#include <string.h>

#include "../ipc/clock.h"
#include "../ipc/error.h"
#include "side.h"

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
uint64_t tsp_join_room(const struct tsp_stream *stream, const struct tsi_hello *hello)
{
    uint64_t stride = (uint64_t)hello->batch * hello->world;
    uint64_t tails = hello->last == TSOCKET_LAST_DROP ? ends_held(stream, hello) * (stride - 1) : 0;

    return hello->hold * stride + tails + (hello->world > 1 ? 1 : 0);
}

static int check_fit(const struct tsp_stream *stream, const struct tsi_hello *hello)
{
    uint64_t needed = tsp_join_room(stream, hello);

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
    return TSOCKET_OK;
}

/* Those who come back, to a daemon that has come back, come all at once. */
static uint64_t grace_for(const struct tsp_stream *stream, const struct tsp_consumer *consumer)
{
    bool resumes = consumer->hello.resume[0] != '\0';

    return resumes && stream->join_grace_ns > TSI_NS_PER_S ? TSI_NS_PER_S : stream->join_grace_ns;
}

/* The first of a group keeps its epoch in the ring for those who come later. */
void tsp_join_activate(struct tsp_stream *stream, const struct tsp_roster *roster, struct tsp_consumer *consumer,
                       uint64_t epoch, uint64_t position, uint64_t now_ns)
{
    bool comes_back = consumer->state == TSP_READING || (consumer->state == TSP_PARKED && !consumer->fresh);

    if (!comes_back && tsp_roster_slowest(roster, stream) == NULL) {
        stream->keep_position = position;
        stream->keep_until_ns = now_ns + grace_for(stream, consumer);
    }
    consumer->state = TSP_READING;
    consumer->ring = stream;
    consumer->epoch = epoch;
    consumer->released = position;
}

void tsp_join_start_waiting(struct tsp_stream *stream, const struct tsp_roster *roster, uint64_t now_ns)
{
    for (uint32_t i = 0; i < roster->n; i++) {
        struct tsp_consumer *consumer = roster->consumers[i];

        if (consumer->stream == stream && consumer->state == TSP_JOINING && consumer->epoch <= stream->filler.epoch) {
            tsp_join_activate(stream, roster, consumer, stream->filler.epoch, stream->filler.start, now_ns);
            if (!consumer->again)
                tsp_ledger_place(stream->ledger, consumer->id, stream->filler.epoch, 0, UINT64_MAX);
        }
    }
}

/* The oldest epoch whose start is still in the ring. */
static bool find_whole_epoch(const struct tsp_stream *stream, uint64_t *epoch_out, uint64_t *start_out)
{
    for (uint64_t epoch = tsp_stream_oldest_epoch(stream); epoch <= stream->filler.epoch; epoch++) {
        uint64_t start = tsp_stream_epoch(stream, epoch).start;

        if (start >= stream->floor) {
            *epoch_out = epoch;
            *start_out = start;
            return true;
        }
    }
    return false;
}

/*
 * In the middle of an epoch, where the slowest of the group reads. Who catches up begins a little later, where what is
 * left of the epoch makes whole batches: only the last one, behind what it has missed, is smaller then.
 */
static bool join_now(struct tsp_stream *stream, const struct tsp_roster *roster, struct tsp_consumer *consumer,
                     bool catch_up, uint64_t now_ns)
{
    uint64_t position = tsp_roster_slowest(roster, stream)->released;
    uint64_t epoch = tsp_stream_epoch_of(stream, position);
    struct tsi_sight sight = tsp_stream_epoch(stream, epoch);
    uint64_t index = position - sight.start;

    consumer->place = (struct tsi_place){.epoch = epoch, .index = index};
    if (index > 0)
        consumer->place.removed = tsi_control_removed(stream->control, stream->layout.capacity, position - 1);
    if (catch_up) {
        index += (sight.len - index) % consumer->hello.batch;
        if (index == sight.len)
            return false;
        consumer->wrap = index;
        consumer->wrap_epoch = epoch;
    }
    tsp_join_activate(stream, roster, consumer, epoch, sight.start + index, now_ns);
    return true;
}

/* Not where the epoch has been read to its end: what is left of it is nothing. */
static bool can_join_now(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    const struct tsp_consumer *slowest = tsp_roster_slowest(roster, stream);

    return slowest != NULL && !(tsp_filler_decided(&stream->filler) && slowest->released == stream->filler.head);
}

/* The whole stream is there: a pass can begin at any time, at any place, and counts nowhere. */
static int join_resident(struct tsp_stream *stream, struct tsp_consumer *consumer)
{
    consumer->state = TSP_READING;
    consumer->ring = stream;
    consumer->epoch = consumer->place.epoch;
    consumer->released = stream->floor;
    return TSOCKET_OK;
}

static int check_token(const struct tsp_stream *stream, const struct tsi_token *token)
{
    const char *difference = tsi_origin_difference(token->origin, stream->origin);
    uint64_t samples = stream->options.epoch_samples;

    if (difference != NULL)
        return tsi_fail(TSOCKET_EREFUSED,
                        "stream %s: the token belongs to another run: %s differs (token %s, stream %s; dataset, recipe "
                        "and seed); start tsocketd as it was started then, or open without a token",
                        stream->name, difference, token->origin, stream->origin);
    if (token->from.removed > 0 && stream->options.on_bad != TSOCKET_BAD_SKIP)
        return tsi_fail(TSOCKET_EREFUSED,
                        "stream %s: by the token %" PRIu64 " samples were left out, and none are here", stream->name,
                        token->from.removed);
    if (token->until > samples || token->wrap > token->from.index + token->ahead ||
        (token->until > 0 && token->from.index > token->until))
        return tsi_fail(TSOCKET_EREFUSED, "stream %s: the token's two parts of an epoch do not fit together",
                        stream->name);
    if (token->from.index + token->from.removed > samples)
        return tsi_fail(TSOCKET_EREFUSED,
                        "stream %s: the token's place %" PRIu64 " (%" PRIu64
                        " left out) is beyond the end of an epoch of %" PRIu64 " samples",
                        stream->name, token->from.index, token->from.removed, samples);
    if (stream->options.epochs > 0 && !stream->options.resident && token->from.epoch >= stream->options.epochs)
        return tsi_fail(TSOCKET_EREFUSED,
                        "stream %s: the token's epoch is %" PRIu64 ", and there are %" PRIu64
                        " in all; use more --epochs",
                        stream->name, token->from.epoch, stream->options.epochs);
    return TSOCKET_OK;
}

/* Fills in the place that the consumer's token names. */
static int take_token(const struct tsp_stream *stream, struct tsp_consumer *consumer)
{
    struct tsi_token token;
    int rc;

    if (stream->origin[0] == '\0')
        return tsi_fail(TSOCKET_EREFUSED, "stream %s: its producer cannot go back, so that nobody can resume",
                        stream->name);
    rc = tsi_token_unpack(consumer->hello.resume, &token);
    if (rc == TSOCKET_OK)
        rc = check_token(stream, &token);
    if (rc != TSOCKET_OK)
        return rc;
    consumer->place = token.from;
    consumer->wrap = token.wrap > 0 ? token.wrap : token.until;
    consumer->wrap_epoch = token.from.epoch;
    consumer->second_lap = token.until > 0;
    consumer->reach = token.until > 0
                          ? (struct tsi_place){.epoch = token.from.epoch + 1}
                          : (struct tsi_place){.epoch = token.from.epoch, .index = token.from.index + token.ahead};
    return TSOCKET_OK;
}

static int join_by_token(struct tsp_stream *stream, const struct tsp_roster *roster, struct tsp_consumer *consumer,
                         uint64_t now_ns)
{
    uint64_t position;

    if (!tsp_side_is_free(stream, roster) && tsp_side_find(stream, &consumer->place, &position)) {
        tsp_join_activate(stream, roster, consumer, consumer->place.epoch, position, now_ns);
        return TSOCKET_OK;
    }
    if (!tsp_side_is_free(stream, roster) && !tsp_side_fits(stream, &consumer->hello))
        return tsi_fail(TSOCKET_EREFUSED,
                        "stream %s: the token's place is not in the ring, and there is no side ring that is large "
                        "enough for %" PRIu32 " batches of %" PRIu32
                        "; start tsocketd with --side-rings 1 (and a larger "
                        "--side-ring), or --wait-for as many trainers as resume",
                        stream->name, consumer->hello.hold, consumer->hello.batch);
    tsp_side_park(consumer, TSP_LEDGER_SIDE, now_ns);
    consumer->epoch = consumer->place.epoch;
    consumer->fresh = true;
    return TSOCKET_OK;
}

static int join_epoch(struct tsp_stream *stream, const struct tsp_roster *roster, struct tsp_consumer *consumer,
                      uint64_t now_ns, bool *catch_up_out)
{
    const struct tsi_hello *hello = &consumer->hello;
    bool catch_up = hello->join == TSOCKET_JOIN_CATCH_UP && hello->world == 1 && tsp_side_fits(stream, hello);
    uint64_t epoch, start;

    if (find_whole_epoch(stream, &epoch, &start)) {
        consumer->place = (struct tsi_place){.epoch = epoch};
        tsp_join_activate(stream, roster, consumer, epoch, start, now_ns);
        return TSOCKET_OK;
    }
    if ((catch_up || hello->join == TSOCKET_JOIN_NOW) && can_join_now(stream, roster) &&
        join_now(stream, roster, consumer, catch_up, now_ns)) {
        *catch_up_out = catch_up;
        return TSOCKET_OK;
    }
    epoch = stream->filler.epoch + 1;
    if (stream->options.epochs > 0 && epoch >= stream->options.epochs)
        return tsi_fail(TSOCKET_EREFUSED,
                        "stream %s: its last epoch (%" PRIu64 " of %" PRIu64 ") has begun without this consumer; "
                        "start tsocketd again, or join with TSOCKET_JOIN_NOW while others read it",
                        stream->name, epoch, stream->options.epochs);
    consumer->state = TSP_JOINING;
    consumer->place = (struct tsi_place){.epoch = epoch};
    consumer->ring = stream;
    consumer->epoch = epoch;
    return TSOCKET_OK;
}

/* What it begins with, where that is known: one that waits for an epoch is placed when that begins. */
static void record(const struct tsp_stream *stream, const struct tsp_consumer *consumer)
{
    const struct tsi_hello *hello = &consumer->hello;
    struct tsi_token token = {.until = 0};
    struct tsi_welcome place = {.first = 0};
    uint64_t until = UINT64_MAX;

    tsp_ledger_attach(stream->ledger, consumer->id,
                      &(struct tsp_ledger_consumer){.stream = stream->number,
                                                    .name = hello->name,
                                                    .pid = (int32_t)consumer->peer.pid,
                                                    .batch = hello->batch,
                                                    .rank = hello->rank,
                                                    .world = hello->world,
                                                    .last = hello->last,
                                                    .join = hello->join,
                                                    .resumed = hello->resume[0] != '\0'});
    if (consumer->state == TSP_JOINING)
        return;
    tsp_stream_describe_place(stream, consumer, &place);
    if (hello->resume[0] != '\0' && tsi_token_unpack(hello->resume, &token) == TSOCKET_OK) {
        place.epoch = token.from.epoch; /* in its own words: the end of an epoch is not the begin of the next */
        place.first = token.from.index + token.ahead;
        if (place.first >= stream->options.epoch_samples &&
            token.wrap == 0) { /* of a rank that has had its last window */
            place.epoch++;
            place.first = 0;
        }
        until = token.until > 0 ? token.until : UINT64_MAX;
    }
    tsp_ledger_place(stream->ledger, consumer->id, place.epoch, place.first, until);
}

int tsp_join_attach(struct tsp_stream *stream, const struct tsp_roster *roster, struct tsp_consumer *consumer,
                    uint64_t now_ns, bool *catch_up_out)
{
    int rc = check_fit(stream, &consumer->hello);

    if (rc == TSOCKET_OK)
        rc = tsp_store_choose(&stream->store, stream->name, consumer->hello.device, &consumer->memory);
    *catch_up_out = false;
    consumer->place = (struct tsi_place){.epoch = 0};
    consumer->watches = stream;
    if (rc == TSOCKET_OK && consumer->hello.resume[0] != '\0')
        rc = take_token(stream, consumer);
    if (rc != TSOCKET_OK)
        return rc;
    if (stream->options.resident)
        rc = join_resident(stream, consumer);
    else if (consumer->hello.resume[0] != '\0')
        rc = join_by_token(stream, roster, consumer, now_ns);
    else
        rc = join_epoch(stream, roster, consumer, now_ns, catch_up_out);
    if (rc != TSOCKET_OK) {
        consumer->watches = NULL;
        return rc;
    }
    consumer->stream = stream;
    consumer->max_lag = consumer->hello.max_lag;
    stream->visited = true;
    record(stream, consumer);
    return TSOCKET_OK;
}
