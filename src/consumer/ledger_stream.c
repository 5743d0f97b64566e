/* SPDX-License-Identifier: Apache-2.0 */
#include "ledger_stream.h"

#include <stdlib.h>
#include <string.h>

/* Room for one more item. False: no memory. */
static bool grow(void **items, size_t n, size_t *room, size_t size)
{
    size_t more = *room > 0 ? 2 * *room : 16;
    void *grown;

    if (n < *room)
        return true;
    grown = realloc(*items, more * size);
    if (grown == NULL)
        return false;
    *items = grown;
    *room = more;
    return true;
}

size_t tsc_stream_length_from(const struct tsc_stream *stream, uint64_t epoch)
{
    size_t low = 0, high = stream->n_lengths;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (stream->lengths[middle].epoch < epoch)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t tsc_stream_length(const struct tsc_stream *of, uint64_t epoch)
{
    const struct tsc_stream *stream = of->same;
    uint64_t like = stream->resident ? 0 : epoch;
    size_t i = tsc_stream_length_from(stream, like);

    return i < stream->n_lengths && stream->lengths[i].epoch == like ? stream->lengths[i].len : TSC_TO_THE_END;
}

void tsc_stream_set_length(struct tsc_stream *of, uint64_t epoch, uint64_t len, struct tsc_findings *findings)
{
    struct tsc_stream *stream = of->same;
    uint64_t before = tsc_stream_length(stream, epoch);
    size_t i = tsc_stream_length_from(stream, epoch);
    void *items = stream->lengths;

    if (before != TSC_TO_THE_END) {
        if (before != len)
            tsc_findings_add(
                findings,
                &(struct tsc_finding){
                    .what = TSC_TWO_LENGTHS, .stream = stream->name, .epoch = epoch, .from = before, .to = len});
        return;
    }
    if (!grow(&items, stream->n_lengths, &stream->lengths_room, sizeof(*stream->lengths))) {
        findings->no_memory = true;
        return;
    }
    stream->lengths = items;
    memmove(&stream->lengths[i + 1], &stream->lengths[i], (stream->n_lengths - i) * sizeof(*stream->lengths));
    stream->lengths[i] = (struct tsc_length){epoch, len};
    stream->n_lengths++;
}

void tsc_stream_add_share(struct tsc_stream *of, const struct tsc_share *share, struct tsc_findings *findings)
{
    struct tsc_stream *stream = of->same;
    void *items = stream->shares;

    if (!grow(&items, stream->n_shares, &stream->shares_room, sizeof(*stream->shares))) {
        findings->no_memory = true;
        return;
    }
    stream->shares = items;
    stream->shares[stream->n_shares++] = *share;
}

void tsc_stream_destroy(struct tsc_stream *stream)
{
    free(stream->name);
    free(stream->dataset);
    free(stream->recipe);
    free(stream->lengths);
    free(stream->shares);
    free(stream);
}
