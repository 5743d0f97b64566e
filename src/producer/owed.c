/* SPDX-License-Identifier: Apache-2.0 */
#include "owed.h"

#include <inttypes.h>

#include "../ipc/error.h"

static bool is_behind(uint64_t epoch, uint64_t index, const struct tsi_place *place)
{
    return epoch > place->epoch || (epoch == place->epoch && index > place->index);
}

void tsp_owed_note_reach(struct tsp_consumer *consumer)
{
    const struct tsp_stream *ring = consumer->ring;
    uint64_t epoch, index;

    if (ring == NULL || consumer->state != TSP_READING)
        return;
    epoch = tsp_stream_epoch_of(ring, ring->published);
    index = ring->published - tsp_stream_epoch(ring, epoch).start;
    if (is_behind(epoch, index, &consumer->reach))
        consumer->reach = (struct tsi_place){.epoch = epoch, .index = index};
}

/* A part of one window, and of what it was given. */
static bool is_within(const struct tsp_consumer *consumer, const struct tsi_hot *hot)
{
    uint64_t epoch_samples = consumer->stream->options.epoch_samples, end;

    if (hot->a > TSI_NUMBER_MAX || hot->b > TSI_NUMBER_MAX || hot->ring == 0 || hot->ring > consumer->hello.batch)
        return false;
    end = hot->b + hot->ring;
    return (epoch_samples == 0 || end <= epoch_samples) && !is_behind(hot->a, end, &consumer->reach);
}

int tsp_owed_hear(struct tsp_consumer *consumer, const struct tsi_hot *hot)
{
    bool lost = hot->kind == TSI_LOST;

    if (!is_within(consumer, hot) || consumer->owed == (lost ? consumer->hello.hold : 0))
        return tsi_fail(TSOCKET_EPROTOCOL,
                        "it cannot have %s %" PRIu32 " samples at %" PRIu64 " of epoch %" PRIu64 "; it is owed %" PRIu32
                        " windows",
                        lost ? "lost" : "been given again", hot->ring, hot->b, hot->a, consumer->owed);
    if (lost) {
        consumer->owed++;
        tsp_ledger_owed(consumer->stream->ledger, consumer->id, hot->a, hot->b, hot->b + hot->ring);
    } else {
        consumer->owed--;
        tsp_ledger_again(consumer->stream->ledger, consumer->id, hot->a, hot->b, hot->b + hot->ring);
    }
    return TSOCKET_OK;
}

void tsp_owed_hear_passed(struct tsp_consumer *consumer, const struct tsi_hot *hot)
{
    tsp_owed_note_reach(consumer);
    if (hot->a > TSI_NUMBER_MAX || hot->b > TSI_NUMBER_MAX || consumer->hello.world > 1 ||
        consumer->stream->options.resident || is_behind(hot->a, hot->b, &consumer->reach))
        return;
    tsp_ledger_released(consumer->stream->ledger, consumer->id, hot->a, hot->b);
}
