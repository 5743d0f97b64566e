/* SPDX-License-Identifier: Apache-2.0 */
#include "reading.h"

#include <stdlib.h>
#include <string.h>

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

/* ---- one epoch ---- */

static void find(const struct tsc_reading *reading, struct tsc_findings *findings, enum tsc_what what, uint64_t epoch,
                 uint64_t from, uint64_t to)
{
    tsc_findings_add(findings, &(struct tsc_finding){.what = what,
                                                     .who = reading->who,
                                                     .stream = reading->stream->name,
                                                     .epoch = epoch,
                                                     .from = from,
                                                     .to = to});
}

/* Of the next `n` samples from where windows are counted, how many lie in this reader's. */
static uint64_t own_of_first(const struct tsc_reading *reading, uint64_t n)
{
    uint64_t stride = (uint64_t)reading->batch * reading->world;
    uint64_t before = (uint64_t)reading->rank * reading->batch, rest = n % stride;
    uint64_t part = rest > before ? rest - before : 0;

    return n / stride * reading->batch + (part < reading->batch ? part : reading->batch);
}

/* The same of [from, to), where windows are counted from `begin`. */
static uint64_t own(const struct tsc_reading *reading, uint64_t begin, uint64_t from, uint64_t to)
{
    return from < to ? own_of_first(reading, to - begin) - own_of_first(reading, from - begin) : 0;
}

/* It had [from, to), says its token. What lies before the place where it began was counted from 0. */
static void trust(struct tsc_reading *reading, uint64_t from, uint64_t to)
{
    uint64_t first = reading->first, lap = to < first ? to : first, middle = from < lap ? lap : from;

    reading->who->by_token += own(reading, 0, from, middle) + own(reading, first, middle, to);
}

static uint64_t end_of(const struct tsc_reading *reading, const struct tsc_stretch *stretch)
{
    return stretch->until != TSC_TO_THE_END ? stretch->until : tsc_stream_length(reading->stream, stretch->epoch);
}

static struct tsc_span mark(struct tsc_reading *reading, uint64_t epoch, uint64_t from, uint64_t to,
                            struct tsc_findings *findings)
{
    bool was_full = reading->passed.full;
    struct tsc_span twice = tsc_spans_add(&reading->passed, from, to);

    if (reading->passed.full && !was_full)
        find(reading, findings, TSC_SCATTERED, epoch, 0, 0);
    return twice;
}

/* Everything of the first stretch before `to` is released. */
static void pass(struct tsc_reading *reading, uint64_t to, struct tsc_findings *findings)
{
    struct tsc_stretch *stretch = &reading->stretches[0];
    struct tsc_span twice;

    if (to <= stretch->pos)
        return;
    twice = mark(reading, stretch->epoch, stretch->pos, to, findings);
    if (twice.from < twice.to)
        find(reading, findings, TSC_TWICE, stretch->epoch, twice.from, twice.to);
    reading->who->samples += own(reading, stretch->begin, stretch->pos, to);
    stretch->pos = to;
}

/* What does not fill the last window was not given, where it was not wanted. */
static void drop_tail(struct tsc_reading *reading, const struct tsc_stretch *stretch)
{
    uint64_t stride = (uint64_t)reading->batch * reading->world;
    uint64_t whole = (stretch->pos - stretch->begin) / stride * reading->batch;

    if (reading->last != TSOCKET_LAST_DROP || stretch->until != TSC_TO_THE_END)
        return;
    uint64_t tail = own(reading, stretch->begin, stretch->begin, stretch->pos) - whole;
    reading->who->dropped += tail;
    reading->who->samples -= tail < reading->who->samples ? tail : reading->who->samples;
}

static void count_epoch(struct tsc_consumer *who, uint64_t epoch)
{
    if (epoch < who->next_epoch)
        return;
    who->epochs++;
    who->next_epoch = epoch + 1;
}

/* A rank has completed the epoch. In a resident stream, each rank begins passes when it likes. */
static void add_share(const struct tsc_reading *reading, uint64_t epoch, struct tsc_findings *findings)
{
    const struct tsc_share share = {.epoch = epoch,
                                    .first = reading->first,
                                    .batch = reading->batch,
                                    .rank = reading->rank,
                                    .world = reading->world};

    if (reading->world > 1 && !reading->stream->same->resident)
        tsc_stream_add_share(reading->stream, &share, findings);
}

/* The epoch is behind it: all of it must have been passed. */
static void complete(struct tsc_reading *reading, uint64_t epoch, struct tsc_findings *findings)
{
    struct tsc_consumer *who = reading->who;
    uint64_t len = tsc_stream_length(reading->stream, epoch);
    struct tsc_span gap;

    if (len == TSC_TO_THE_END) {
        find(reading, findings, TSC_NO_LENGTH, epoch, 0, 0);
        return;
    }
    gap = tsc_spans_missing(&reading->passed, reading->late, len);
    for (; gap.from < gap.to; gap = tsc_spans_missing(&reading->passed, gap.to, len)) {
        if (reading->vouched)
            trust(reading, gap.from, gap.to);
        else
            find(reading, findings, TSC_MISSING, epoch, gap.from, gap.to);
    }
    gap = tsc_spans_missing(&reading->passed, MAX(len, reading->told), TSC_TO_THE_END);
    if (gap.from != MAX(len, reading->told))
        find(reading, findings, TSC_BEYOND, epoch, gap.from, len);
    count_epoch(who, epoch);
    add_share(reading, epoch, findings);
}

static void begin_epoch(struct tsc_reading *reading)
{
    reading->passed = (struct tsc_spans){0};
    reading->first = reading->stretches[0].begin;
    reading->told = 0;
    reading->late = 0;
    reading->vouched = false;
    reading->carried = false;
}

/* The first stretch is read to its end; the next one begins: of this epoch, or of the one after it. */
static void finish_stretch(struct tsc_reading *reading, struct tsc_findings *findings)
{
    struct tsc_stretch done = reading->stretches[0];
    uint64_t end = end_of(reading, &done);

    if (end != TSC_TO_THE_END) {
        pass(reading, end, findings);
        drop_tail(reading, &reading->stretches[0]);
    }
    reading->n_stretches--;
    memmove(&reading->stretches[0], &reading->stretches[1], reading->n_stretches * sizeof(done));
    if (reading->n_stretches > 0 && reading->stretches[0].epoch == done.epoch)
        return;
    complete(reading, done.epoch, findings);
    if (reading->n_stretches == 0)
        reading->stretches[reading->n_stretches++] =
            (struct tsc_stretch){.epoch = done.epoch + 1, .until = TSC_TO_THE_END};
    else if (reading->stretches[0].epoch > done.epoch + 1)
        find(reading, findings, TSC_MISSING, done.epoch + 1, 0, tsc_stream_length(reading->stream, done.epoch + 1));
    begin_epoch(reading);
}

/*
 * A resident stream has epochs without end, all of one length: after this one, those that lie whole before `epoch` are
 * passed by counting.
 */
static void leap(struct tsc_reading *reading, uint64_t epoch)
{
    struct tsc_consumer *who = reading->who;
    struct tsc_stretch *front = &reading->stretches[0];
    uint64_t samples = who->samples, dropped = who->dropped, n = epoch - front->epoch;

    if (!reading->stream->same->resident || epoch <= front->epoch || reading->n_stretches > 1 || front->begin > 0 ||
        front->until != TSC_TO_THE_END)
        return;
    front->pos = end_of(reading, front);
    who->samples += own(reading, 0, 0, front->pos);
    drop_tail(reading, front);
    who->samples += (n - 1) * (who->samples - samples);
    who->dropped += (n - 1) * (who->dropped - dropped);
    who->epochs += epoch > who->next_epoch ? epoch - who->next_epoch : 0;
    who->next_epoch = epoch > who->next_epoch ? epoch : who->next_epoch;
    *front = (struct tsc_stretch){.epoch = epoch, .until = TSC_TO_THE_END};
}

/* ---- records ---- */

static bool is_within(const struct tsc_stretch *stretch, uint64_t epoch, uint64_t index)
{
    return stretch->epoch == epoch && index >= stretch->pos && index < stretch->until;
}

/* Not yet about anybody: who it is shows with its first place. */
static void stray(const struct tsc_reading *reading, struct tsc_findings *findings)
{
    tsc_findings_add(findings, &(struct tsc_finding){.what = TSC_STRAY, .from = reading->id});
}

static void first_place(struct tsc_reading *reading, const struct tsc_stretch *stretch, struct tsc_findings *findings)
{
    reading->placed = true;
    reading->stretches[0] = *stretch;
    reading->n_stretches = 1;
    if (!reading->carried)
        reading->first = stretch->begin;
    if (stretch->begin > 0 && !reading->resumed && reading->join == TSOCKET_JOIN_NOW) {
        reading->late = stretch->begin;
        find(reading, findings, TSC_PARTIAL, stretch->epoch, stretch->begin, 0);
    }
}

/* Whether something of the epoch that it reads has not been passed. */
static bool is_missing(const struct tsc_reading *reading)
{
    uint64_t len = tsc_stream_length(reading->stream, tsc_reading_epoch(reading));
    struct tsc_span gap = tsc_spans_missing(&reading->passed, reading->late, len);

    return gap.from < gap.to;
}

/* It has had all of that epoch, and nothing of the next: it stands between the two. */
static bool is_through(const struct tsc_reading *reading, uint64_t epoch)
{
    const struct tsc_stretch *front = &reading->stretches[0];

    if (front->epoch == epoch + 1)
        return front->pos == 0;
    return front->epoch == epoch && !reading->vouched && !is_missing(reading);
}

void tsc_reading_place(struct tsc_reading *reading, uint64_t epoch, uint64_t index, uint64_t until,
                       struct tsc_findings *findings)
{
    const struct tsc_stretch stretch = {.epoch = epoch, .begin = index, .pos = index, .until = until};
    struct tsc_stretch *front = &reading->stretches[0];

    if (!reading->placed) {
        first_place(reading, &stretch, findings);
        return;
    }
    for (uint32_t i = 0; i < reading->n_stretches; i++) {
        if (is_within(&reading->stretches[i], epoch, index)) { /* it goes on where it is, or will come to it */
            reading->stretches[i].until = until;
            return;
        }
    }
    if (epoch == reading->stretches[reading->n_stretches - 1].epoch + 1 && until == TSC_TO_THE_END)
        return; /* it comes to it anyway; what lies before it may be released yet */
    if (is_through(reading, epoch)) {
        reading->stands = true;
        reading->stand = (struct tsc_length){epoch, index};
        return;
    }
    if (epoch == front->epoch && index < front->pos && until > front->begin)
        *front = stretch; /* back to what it had released */
    else if (epoch == front->epoch && index > 0 && until <= front->begin)
        return; /* a ring is made from a little before its first window on: a second lap begins at 0 */
    else if (epoch < front->epoch || reading->n_stretches == TSC_STRETCHES_MAX)
        find(reading, findings, TSC_SCATTERED, epoch, 0, 0);
    else
        reading->stretches[reading->n_stretches++] = stretch;
}

/* Whether a later stretch of the epoch begins before that index. */
static bool comes_later(const struct tsc_reading *reading, uint64_t epoch, uint64_t index)
{
    for (uint32_t i = 1; i < reading->n_stretches; i++) {
        if (reading->stretches[i].epoch == epoch && index > reading->stretches[i].pos)
            return true;
    }
    return false;
}

/*
 * Within the epoch that it reads. Who leaves a side ring gives back what was made there beyond its place as well: a
 * release behind the end of a place is of all of it.
 */
static bool release_here(struct tsc_reading *reading, uint64_t index, struct tsc_findings *findings)
{
    const struct tsc_stretch *front = &reading->stretches[0];

    if (index > front->pos && index <= front->until)
        pass(reading, index, findings);
    else if (comes_later(reading, front->epoch, index))
        return false;
    else if (index > front->until)
        pass(reading, front->until, findings);
    return true; /* or it is old news */
}

void tsc_reading_released(struct tsc_reading *reading, uint64_t epoch, uint64_t index, struct tsc_findings *findings)
{
    struct tsc_stretch *front = &reading->stretches[0];

    if (!reading->placed) {
        stray(reading, findings);
        return;
    }
    if (reading->stands && epoch == reading->stand.epoch && index > reading->stand.len &&
        index < tsc_stream_length(reading->stream, epoch))
        find(reading, findings, TSC_TWICE, epoch, reading->stand.len, index);
    if (epoch == front->epoch + 1 && index == 0 && end_of(reading, front) != TSC_TO_THE_END) {
        pass(reading, end_of(reading, front), findings); /* it may have to go on in this epoch before the next */
        return;
    }
    while (epoch >= front->epoch) {
        if (epoch == front->epoch && release_here(reading, index, findings))
            return;
        if (epoch > front->epoch && end_of(reading, front) == TSC_TO_THE_END) { /* nothing can be said of it */
            find(reading, findings, TSC_NO_LENGTH, front->epoch, 0, 0);
            *front = (struct tsc_stretch){.epoch = epoch, .until = TSC_TO_THE_END};
            reading->n_stretches = 1;
            begin_epoch(reading);
        } else {
            finish_stretch(reading, findings);
            leap(reading, epoch);
        }
    }
}

void tsc_reading_skipped(struct tsc_reading *reading, uint64_t epoch, uint64_t from, uint64_t to,
                         struct tsc_findings *findings)
{
    struct tsc_stretch *front = &reading->stretches[0], *last, rest;

    if (!reading->placed || from >= to) {
        stray(reading, findings);
        return;
    }
    if (epoch == front->epoch + 1 && front->pos == end_of(reading, front)) /* the first that is heard of that epoch */
        finish_stretch(reading, findings);
    last = &reading->stretches[reading->n_stretches > 0 ? reading->n_stretches - 1 : 0];
    rest = *last;
    find(reading, findings, TSC_SKIPPED, epoch, from, to);
    reading->who->skipped += to - from;
    if (last->epoch != epoch || from < last->pos || to > last->until)
        return;
    if (epoch == reading->stretches[0].epoch)
        mark(reading, epoch, from, to, findings);
    rest.begin = rest.pos = to;
    if (from == last->pos) {
        *last = rest;
    } else if (reading->n_stretches < TSC_STRETCHES_MAX) {
        last->until = from;
        reading->stretches[reading->n_stretches++] = rest;
    } else {
        find(reading, findings, TSC_SCATTERED, epoch, 0, 0);
    }
}

/* Whether it can have been given that: not what no epoch has. */
static bool is_sound(const struct tsc_reading *reading, const struct tsc_debt *window)
{
    return reading->placed && window->from < window->to &&
           window->to <= tsc_stream_length(reading->stream, window->epoch);
}

void tsc_reading_owed(struct tsc_reading *reading, const struct tsc_debt *window, struct tsc_findings *findings)
{
    if (!is_sound(reading, window)) {
        stray(reading, findings);
        return;
    }
    reading->who->lost += window->to - window->from;
    if (!tsc_debts_add(&reading->owed, window))
        findings->no_memory = true;
}

void tsc_reading_again(struct tsc_reading *reading, const struct tsc_debt *window, struct tsc_findings *findings)
{
    if (!is_sound(reading, window))
        stray(reading, findings);
    else if (!tsc_debts_settle(&reading->owed, window))
        find(reading, findings, TSC_TWICE, window->epoch, window->from, window->to);
}

static bool is_first_of_epoch(const struct tsc_debts *owed, size_t i)
{
    for (size_t k = 0; k < i; k++) {
        if (owed->items[k].epoch == owed->items[i].epoch)
            return false;
    }
    return true;
}

void tsc_reading_settle(const struct tsc_reading *reading, struct tsc_findings *findings)
{
    for (size_t i = 0; i < reading->owed.n; i++) {
        const struct tsc_debt *window = &reading->owed.items[i];

        if (window->epoch >= tsc_reading_epoch(reading))
            continue;
        find(reading, findings, reading->left ? TSC_MISSING : TSC_OWED, window->epoch, window->from, window->to);
        reading->who->epochs -= is_first_of_epoch(&reading->owed, i) && reading->who->epochs > 0;
    }
}

/* ---- attachments in a row ---- */

/* In the order in which the epoch was read: what lies before the place where it began, comes last. */
static bool comes_after(const struct tsc_reading *reading, uint64_t a, uint64_t b)
{
    bool a_lap = a < reading->first, b_lap = b < reading->first;

    return a_lap != b_lap ? a_lap : a > b;
}

/* In the epoch in which the one before had ended: the token is newer than the last release, or older. */
static void continue_here(struct tsc_reading *reading, const struct tsc_reading *before, uint64_t index,
                          struct tsc_findings *findings)
{
    uint64_t was = tsc_reading_index(before), epoch = tsc_reading_epoch(before);
    uint64_t len = tsc_stream_length(before->stream, epoch);
    bool other_lap = (was < before->first) != (index < before->first);

    reading->carried = true;
    reading->passed = before->passed;
    reading->first = before->first;
    reading->late = before->late;
    reading->vouched = before->vouched || (other_lap && len == TSC_TO_THE_END);
    if (comes_after(before, index, was)) {
        uint64_t to = !other_lap ? index : len != TSC_TO_THE_END ? len : was, lap = other_lap ? index : 0;

        mark(reading, epoch, was, to, findings);
        mark(reading, epoch, 0, lap, findings);
        trust(reading, was, to);
        trust(reading, 0, lap);
    } else {
        reading->who->again += tsc_spans_remove(&reading->passed, index, other_lap ? TSC_TO_THE_END : was);
        reading->who->again += other_lap ? tsc_spans_remove(&reading->passed, 0, was) : 0;
    }
}

/* The token is from a later epoch than the last release: it says that all between was had. */
static void continue_later(struct tsc_reading *reading, struct tsc_reading *before, uint64_t epoch, uint64_t index,
                           struct tsc_findings *findings)
{
    const struct tsc_stream *stream = before->stream->same;
    struct tsc_consumer *who = reading->who;
    uint64_t begun = tsc_reading_epoch(before);

    before->vouched = true;
    if (tsc_stream_length(stream, begun) != TSC_TO_THE_END) {
        complete(before, begun, findings);
    } else {
        count_epoch(who, begun);
        add_share(before, begun, findings);
    }
    for (size_t i = tsc_stream_length_from(stream, begun + 1);
         i < stream->n_lengths && stream->lengths[i].epoch < epoch; i++) {
        count_epoch(who, stream->lengths[i].epoch);
        add_share(reading, stream->lengths[i].epoch, findings);
        trust(reading, 0, stream->lengths[i].len);
    }
    trust(reading, 0, index);
    reading->carried = true;
    mark(reading, epoch, 0, index, findings);
}

/* The token is from an epoch that was completed since: what it gets from there on, it gets once more. */
static void continue_earlier(struct tsc_reading *reading, const struct tsc_reading *before, uint64_t epoch,
                             uint64_t index)
{
    const struct tsc_stream *stream = before->stream->same;
    uint64_t again = 0;

    for (size_t i = tsc_stream_length_from(stream, epoch);
         i < stream->n_lengths && stream->lengths[i].epoch < before->stretches[0].epoch; i++)
        again += stream->lengths[i].len;
    for (uint32_t i = 0; i < before->passed.n; i++)
        again += before->passed.items[i].to - before->passed.items[i].from;
    reading->who->again += again > index ? again - index : 0;
    reading->vouched = true;
}

void tsc_reading_continue(struct tsc_reading *reading, struct tsc_reading *before, uint64_t epoch, uint64_t index,
                          struct tsc_findings *findings)
{
    uint64_t begun = tsc_reading_epoch(before);

    before->continued = true;
    index = MIN(index, tsc_stream_length(before->stream, epoch)); /* behind the end there is nothing to be had */
    reading->told = index;
    if (epoch == begun)
        continue_here(reading, before, index, findings);
    else if (epoch > begun)
        continue_later(reading, before, epoch, index, findings);
    else
        continue_earlier(reading, before, epoch, index);
}

void tsc_reading_end(struct tsc_reading *reading, struct tsc_findings *findings)
{
    reading->ended = true;
    if (!reading->placed)
        return;
    for (uint32_t i = 0; i < reading->n_stretches; i++) {
        const struct tsc_stretch *stretch = &reading->stretches[i];

        if (stretch->epoch == reading->stretches[0].epoch && stretch->pos < end_of(reading, stretch))
            return;
    }
    if ((!reading->vouched && is_missing(reading)) || tsc_debts_until(&reading->owed, tsc_reading_epoch(reading)))
        return; /* it had not been told yet where the rest is */
    while (reading->stretches[0].pos > 0 && end_of(reading, &reading->stretches[0]) <= reading->stretches[0].pos)
        finish_stretch(reading, findings);
}

/* ---- where it is ---- */

uint64_t tsc_reading_epoch(const struct tsc_reading *reading)
{
    return reading->stretches[0].epoch;
}

uint64_t tsc_reading_index(const struct tsc_reading *reading)
{
    return reading->stretches[0].pos;
}

bool tsc_reading_in_the_middle(const struct tsc_reading *reading)
{
    const struct tsc_stretch *front = &reading->stretches[0];

    return reading->placed && (reading->passed.n > 0 || front->begin > 0 || reading->owed.n > 0);
}

void tsc_reading_destroy(struct tsc_reading *reading)
{
    tsc_debts_fini(&reading->owed);
    free(reading->name);
    free(reading);
}
