/* SPDX-License-Identifier: Apache-2.0 */
#include "bad.h"

#include <inttypes.h>
#include <string.h>

#include "../ipc/error.h"
#include "../ipc/log.h"

enum {
    BAD_LINES_PER_EPOCH = 20, /* log lines about single samples; the epoch's end sums up */
};

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

static void leave_out(struct tsp_stream *stream)
{
    tsp_filler_skip(&stream->filler);
    tsi_control_shorten(stream->control, stream->filler.epoch, stream->filler.len);
}

static void redecide(struct tsp_stream *side)
{
    if (side->options.on_bad == TSOCKET_BAD_SKIP)
        leave_out(side);
    else
        tsp_filler_pass(&side->filler);
}

int tsp_bad_decide(struct tsp_stream *stream)
{
    struct tsp_filler *filler = &stream->filler;
    const struct tsp_slot *slot = &filler->slots[filler->head % filler->capacity];

    if (stream->home != NULL) { /* has been counted, or will be, where the group reads */
        redecide(stream);
        return TSOCKET_OK;
    }
    count_bad(stream, slot->kind);
    if (stream->options.on_bad == TSOCKET_BAD_FAIL ||
        (stream->options.max_bad > 0 && stream->bad_in_epoch > stream->options.max_bad))
        return too_many_bad(stream, slot);
    log_bad(stream, slot);
    if (stream->options.on_bad == TSOCKET_BAD_MASK) {
        tsp_filler_pass(filler);
        return TSOCKET_OK;
    }
    leave_out(stream);
    if (filler->len == 0)
        return tsi_fail(TSOCKET_EBAD_SAMPLE, "stream %s: not one sample of epoch %" PRIu64 " can be used", stream->name,
                        filler->epoch);
    return TSOCKET_OK;
}

void tsp_bad_sum_up(struct tsp_stream *stream)
{
    if (stream->bad_in_epoch > BAD_LINES_PER_EPOCH)
        tsi_log('W', "stream %s, epoch %" PRIu64 ": %" PRIu64 " samples could not be used", stream->name,
                stream->filler.epoch, stream->bad_in_epoch);
    stream->bad_in_epoch = 0;
}
