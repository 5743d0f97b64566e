/* SPDX-License-Identifier: Apache-2.0 */
#include "audit.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../ipc/wire.h"

enum {
    NAME,
    DATASET,
    RECIPE,
};

static_assert(TSI_RECORD_OF_NAME == NAME + 1 && TSI_RECORD_OF_DATASET == DATASET + 1 &&
                  TSI_RECORD_OF_RECIPE == RECIPE + 1,
              "texts are kept by their numbers");

static void find(struct tsc_audit *audit, enum tsc_what what, uint64_t from, uint64_t to)
{
    tsc_findings_add(&audit->findings, &(struct tsc_finding){.what = what, .from = from, .to = to});
}

/* ---- texts, which come before what they belong to ---- */

static void hear_text(struct tsc_audit *audit, const struct tsi_record *record)
{
    uint32_t which = record->detail - 1u;
    size_t used;

    if (which > RECIPE)
        return;
    used = strlen(audit->texts[which]);
    if (used + record->stream >= TSC_AUDIT_TEXT_MAX)
        return;
    memcpy(audit->texts[which] + used, record->piece, record->stream);
    audit->texts[which][used + record->stream] = '\0';
}

static void forget_texts(struct tsc_audit *audit)
{
    memset(audit->texts, 0, sizeof(audit->texts));
}

/* ---- streams ---- */

static bool is_same(const struct tsc_stream *a, const struct tsc_stream *b)
{
    return strcmp(a->name, b->name) == 0 && strcmp(a->dataset, b->dataset) == 0 && strcmp(a->recipe, b->recipe) == 0 &&
           a->seed == b->seed;
}

static struct tsc_stream *find_same(const struct tsc_audit *audit, struct tsc_stream *stream)
{
    if (stream->dataset[0] == '\0') /* of a generator, whose epochs may be others each time */
        return stream;
    for (struct tsc_stream *other = audit->streams; other != NULL; other = other->next) {
        if (is_same(other, stream))
            return other->same;
    }
    return stream;
}

static void hear_stream(struct tsc_audit *audit, const struct tsi_record *record)
{
    struct tsc_stream *stream = calloc(1, sizeof(*stream));

    if (record->stream >= TSOCKET_STREAMS_MAX) {
        find(audit, TSC_STRAY, record->stream, 0);
        free(stream);
        return;
    }
    if (stream != NULL) {
        stream->name = strdup(audit->texts[NAME]);
        stream->dataset = strdup(audit->texts[DATASET]);
        stream->recipe = strdup(audit->texts[RECIPE]);
        stream->seed = record->a;
        stream->resident = record->detail == TSI_RECORD_RESIDENT;
    }
    if (stream == NULL || stream->name == NULL || stream->dataset == NULL || stream->recipe == NULL) {
        audit->findings.no_memory = true;
        if (stream != NULL)
            tsc_stream_destroy(stream);
        return;
    }
    stream->same = find_same(audit, stream);
    stream->next = audit->streams;
    audit->streams = stream;
    audit->numbered[record->stream] = stream;
}

static struct tsc_stream *stream_of(struct tsc_audit *audit, uint32_t number)
{
    struct tsc_stream *stream = number < TSOCKET_STREAMS_MAX ? audit->numbered[number] : NULL;

    if (stream == NULL)
        find(audit, TSC_STRAY, number, 0);
    return stream;
}

/* ---- attachments ---- */

static struct tsc_reading *reading_of(struct tsc_audit *audit, uint64_t id)
{
    for (struct tsc_reading *reading = audit->live; reading != NULL; reading = reading->next) {
        if (reading->id == id)
            return reading;
    }
    find(audit, TSC_STRAY, id, 0);
    return NULL;
}

static struct tsc_consumer *add_consumer(struct tsc_audit *audit, const struct tsc_reading *reading)
{
    struct tsc_consumer *who = calloc(1, sizeof(*who));

    if (who == NULL)
        return NULL;
    *who = (struct tsc_consumer){.name = reading->name,
                                 .stream = reading->stream->name,
                                 .rank = reading->rank,
                                 .world = reading->world,
                                 .next = audit->consumers};
    audit->consumers = who;
    audit->n_consumers++;
    return who;
}

/* It has become part of another one: the one that it goes on from. */
static void remove_consumer(struct tsc_audit *audit, struct tsc_consumer *who)
{
    struct tsc_consumer **at = &audit->consumers;

    while (*at != who)
        at = &(*at)->next;
    *at = who->next;
    audit->n_consumers--;
    free(who);
}

static bool is_sane(const struct tsc_reading *reading)
{
    return reading->batch > 0 && reading->world > 0 && reading->world <= TSI_WORLD_MAX &&
           reading->rank < reading->world;
}

static void hear_attach(struct tsc_audit *audit, const struct tsi_record *record)
{
    struct tsc_stream *stream = stream_of(audit, record->stream);
    struct tsc_reading *reading = stream != NULL ? calloc(1, sizeof(*reading)) : NULL;

    if (reading == NULL)
        return;
    reading->id = record->consumer;
    reading->stream = stream;
    reading->pid = (int32_t)(uint32_t)record->a;
    reading->batch = (uint32_t)(record->a >> 32);
    reading->rank = (uint32_t)record->b;
    reading->world = (uint32_t)(record->b >> 32);
    reading->last = (enum tsocket_last)(record->detail & TSI_RECORD_LAST_MASK);
    reading->join = (enum tsocket_join)(record->detail >> TSI_RECORD_JOIN_SHIFT & TSI_RECORD_JOIN_MASK);
    reading->resumed = (record->detail & TSI_RECORD_RESUMED) != 0;
    reading->name = strdup(audit->texts[NAME]);
    reading->who = reading->name != NULL && is_sane(reading) ? add_consumer(audit, reading) : NULL;
    if (reading->who == NULL) {
        find(audit, TSC_STRAY, reading->id, 0);
        tsc_reading_destroy(reading);
        return;
    }
    reading->who->attachments = 1;
    reading->who->state = "attached";
    reading->next = audit->live;
    audit->live = reading;
}

static uint64_t distance(uint64_t a, uint64_t b)
{
    return a > b ? a - b : b - a;
}

/* Whether `a` is likelier than `b` to be the one that the reading goes on from. */
static bool is_nearer(const struct tsc_reading *reading, const struct tsc_reading *a, const struct tsc_reading *b,
                      const struct tsi_record *place)
{
    uint64_t a_epochs = distance(tsc_reading_epoch(a), place->a), b_epochs = distance(tsc_reading_epoch(b), place->a);

    if ((a->pid == reading->pid) != (b->pid == reading->pid))
        return a->pid == reading->pid;
    if (a_epochs != b_epochs)
        return a_epochs < b_epochs;
    return distance(tsc_reading_index(a), place->b) < distance(tsc_reading_index(b), place->b);
}

/* The attachment that had ended where this one, which came with a token, begins; NULL if the ledger has none. */
static struct tsc_reading *find_before(const struct tsc_audit *audit, const struct tsc_reading *reading,
                                       const struct tsi_record *place)
{
    struct tsc_reading *best = NULL;

    for (struct tsc_reading *other = audit->ended; other != NULL; other = other->next) {
        if (!other->continued && other->placed && other->stream->same == reading->stream->same &&
            other->rank == reading->rank && other->world == reading->world && strcmp(other->name, reading->name) == 0 &&
            (best == NULL || is_nearer(reading, other, best, place)))
            best = other;
    }
    return best;
}

/* At the end of a second lap is at the start of the next epoch. (At the end of a first one the second is to come.) */
static struct tsi_record settle(const struct tsi_record *place)
{
    struct tsi_record settled = *place;

    if (place->b >= place->c) {
        settled.a++;
        settled.b = 0;
        settled.c = TSC_TO_THE_END;
    }
    return settled;
}

static void hear_place(struct tsc_audit *audit, const struct tsi_record *record)
{
    struct tsc_reading *reading = reading_of(audit, record->consumer);

    if (reading == NULL)
        return;
    const struct tsi_record place = settle(record);
    if (!reading->placed && reading->resumed) {
        struct tsc_reading *before = find_before(audit, reading, &place);

        if (before != NULL) {
            remove_consumer(audit, reading->who);
            reading->who = before->who;
            reading->who->attachments++;
            reading->who->state = "attached";
            tsc_reading_continue(reading, before, place.a, place.b, &audit->findings);
        } else {
            reading->vouched = true;
        }
    }
    tsc_reading_place(reading, place.a, place.b, place.c, &audit->findings);
}

/* Moves it to those that have ended. */
static void end_reading(struct tsc_audit *audit, struct tsc_reading *reading, const char *state)
{
    struct tsc_reading **at = &audit->live;

    tsc_reading_end(reading, &audit->findings);
    reading->who->state = state;
    while (*at != reading)
        at = &(*at)->next;
    *at = reading->next;
    reading->next = audit->ended;
    audit->ended = reading;
}

static void hear_left(struct tsc_audit *audit, const struct tsi_record *record)
{
    static const char *const states[] = {
        [TSI_RECORD_HOW_LEFT] = "left", [TSI_RECORD_HOW_DIED] = "died", [TSI_RECORD_HOW_EVICTED] = "evicted"};
    struct tsc_reading *reading = reading_of(audit, record->consumer);
    bool known = record->detail >= TSI_RECORD_HOW_LEFT && record->detail <= TSI_RECORD_HOW_EVICTED;

    if (reading == NULL)
        return;
    reading->left = record->detail == TSI_RECORD_HOW_LEFT;
    end_reading(audit, reading, known ? states[record->detail] : "gone");
}

/* ---- runs ---- */

static void end_run(struct tsc_audit *audit, bool in_order)
{
    while (audit->live != NULL)
        end_reading(audit, audit->live, in_order ? "attached at the end" : "attached");
    if (audit->running && !in_order)
        find(audit, TSC_CRASHED, audit->runs, 0);
    audit->running = false;
    memset(audit->numbered, 0, sizeof(audit->numbered));
    forget_texts(audit);
}

static void hear_run(struct tsc_audit *audit, const struct tsi_record *record)
{
    end_run(audit, false);
    audit->running = true;
    audit->runs++;
    if (audit->runs == 1)
        audit->begun_ns = record->a;
    audit->ended_ns = record->a;
}

/* ---- records ---- */

static void hear_of_reading(struct tsc_audit *audit, const struct tsi_record *record)
{
    const struct tsc_debt window = {.epoch = record->a, .from = record->b, .to = record->c};
    struct tsc_reading *reading = reading_of(audit, record->consumer);

    if (reading == NULL)
        return;
    if (record->kind == TSI_RECORD_RELEASED)
        tsc_reading_released(reading, record->a, record->b, &audit->findings);
    else if (record->kind == TSI_RECORD_OWED)
        tsc_reading_owed(reading, &window, &audit->findings);
    else if (record->kind == TSI_RECORD_AGAIN)
        tsc_reading_again(reading, &window, &audit->findings);
    else if (record->kind == TSI_RECORD_SKIPPED)
        tsc_reading_skipped(reading, record->a, record->b, record->c, &audit->findings);
    else
        reading->who->parked++;
}

void tsc_audit_record(struct tsc_audit *audit, const struct tsi_record *record)
{
    struct tsc_stream *stream;

    audit->records++;
    switch ((enum tsi_record_kind)record->kind) {
    case TSI_RECORD_RUN:
        hear_run(audit, record);
        break;
    case TSI_RECORD_TIME:
        audit->ended_ns = record->a;
        break;
    case TSI_RECORD_TEXT:
        hear_text(audit, record);
        break;
    case TSI_RECORD_STREAM:
        hear_stream(audit, record);
        forget_texts(audit);
        break;
    case TSI_RECORD_EPOCH:
        stream = stream_of(audit, record->stream);
        if (stream != NULL)
            tsc_stream_set_length(stream, record->a, record->b, &audit->findings);
        break;
    case TSI_RECORD_ATTACH:
        hear_attach(audit, record);
        forget_texts(audit);
        break;
    case TSI_RECORD_PLACE:
        hear_place(audit, record);
        break;
    case TSI_RECORD_RELEASED:
    case TSI_RECORD_SKIPPED:
    case TSI_RECORD_OWED:
    case TSI_RECORD_AGAIN:
    case TSI_RECORD_PARKED:
        hear_of_reading(audit, record);
        break;
    case TSI_RECORD_LEFT:
        hear_left(audit, record);
        break;
    case TSI_RECORD_LOST:
        find(audit, TSC_LOST, record->a, 0);
        break;
    case TSI_RECORD_END:
        end_run(audit, true);
        break;
    case TSI_RECORD_KINDS:
        break;
    }
}

void tsc_audit_damage(struct tsc_audit *audit, uint64_t offset)
{
    if (audit->damaged++ == 0)
        audit->damaged_at = offset;
}

/* ---- ranks ---- */

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* By epoch and job; then by rank. Ranks of one job have the same world, batch and first place. */
static int compare_jobs(const struct tsc_share *a, const struct tsc_share *b)
{
    int order = compare(a->epoch, b->epoch);

    order = order != 0 ? order : compare(a->world, b->world);
    order = order != 0 ? order : compare(a->batch, b->batch);
    return order != 0 ? order : compare(a->first, b->first);
}

static int compare_shares(const void *a, const void *b)
{
    const struct tsc_share *left = a, *right = b;
    int order = compare_jobs(left, right);

    return order != 0 ? order : compare(left->rank, right->rank);
}

/* The rank is, or was when it ended, on its way to the end of that epoch. */
static bool is_behind(const struct tsc_audit *audit, const struct tsc_stream *stream, const struct tsc_share *share,
                      uint32_t rank)
{
    for (const struct tsc_reading *reading = audit->ended; reading != NULL; reading = reading->next) {
        if (reading->stream->same == stream && reading->world == share->world && reading->rank == rank &&
            !reading->continued && reading->placed && tsc_reading_epoch(reading) <= share->epoch)
            return true;
    }
    return false;
}

/* The shares of one job in one epoch must be those of all its ranks: the first that is missing is named. */
static void check_job(struct tsc_audit *audit, const struct tsc_stream *stream, const struct tsc_share *shares,
                      size_t n)
{
    uint32_t rank = 0;

    for (size_t i = 0; i < n && shares[i].rank <= rank; i++)
        rank = shares[i].rank + 1;
    if (rank < shares[0].world)
        tsc_findings_add(
            &audit->findings,
            &(struct tsc_finding){.what = is_behind(audit, stream, &shares[0], rank) ? TSC_RANK_BEHIND : TSC_NO_RANK,
                                  .stream = stream->name,
                                  .epoch = shares[0].epoch,
                                  .from = rank,
                                  .to = shares[0].world});
}

static void check_ranks(struct tsc_audit *audit, struct tsc_stream *stream)
{
    size_t n;

    if (stream->n_shares > 0)
        qsort(stream->shares, stream->n_shares, sizeof(stream->shares[0]), compare_shares);
    for (size_t i = 0; i < stream->n_shares; i += n) {
        n = 1;
        while (i + n < stream->n_shares && compare_jobs(&stream->shares[i], &stream->shares[i + n]) == 0)
            n++;
        check_job(audit, stream, &stream->shares[i], n);
    }
}

/* ---- the end ---- */

static void settle_all(struct tsc_audit *audit)
{
    for (const struct tsc_reading *reading = audit->ended; reading != NULL; reading = reading->next) {
        if (reading->continued)
            continue;
        tsc_reading_settle(reading, &audit->findings);
        if (tsc_reading_in_the_middle(reading))
            tsc_findings_add(&audit->findings, &(struct tsc_finding){.what = TSC_MIDDLE,
                                                                     .who = reading->who,
                                                                     .stream = reading->stream->name,
                                                                     .epoch = tsc_reading_epoch(reading),
                                                                     .from = tsc_reading_index(reading)});
    }
}

/* The lists, in which the newest come first, are turned around. */
static void put_in_order(struct tsc_audit *audit)
{
    struct tsc_consumer *consumers = NULL;
    struct tsc_stream *streams = NULL;

    for (struct tsc_consumer *who = audit->consumers, *next; who != NULL; who = next) {
        next = who->next;
        who->next = consumers;
        consumers = who;
    }
    for (struct tsc_stream *stream = audit->streams, *next; stream != NULL; stream = next) {
        next = stream->next;
        stream->next = streams;
        streams = stream;
    }
    audit->consumers = consumers;
    audit->streams = streams;
}

void tsc_audit_end(struct tsc_audit *audit, uint64_t torn)
{
    end_run(audit, false);
    if (audit->damaged > 0)
        find(audit, TSC_DAMAGED, audit->damaged, audit->damaged_at);
    if (torn > 0)
        find(audit, TSC_TORN, torn, 0);
    put_in_order(audit);
    for (struct tsc_stream *stream = audit->streams; stream != NULL; stream = stream->next)
        check_ranks(audit, stream);
    settle_all(audit);
}

static void free_readings(struct tsc_reading *reading)
{
    while (reading != NULL) {
        struct tsc_reading *next = reading->next;

        tsc_reading_destroy(reading);
        reading = next;
    }
}

void tsc_audit_fini(struct tsc_audit *audit)
{
    free_readings(audit->live);
    free_readings(audit->ended);
    while (audit->consumers != NULL) {
        struct tsc_consumer *next = audit->consumers->next;

        free(audit->consumers);
        audit->consumers = next;
    }
    while (audit->streams != NULL) {
        struct tsc_stream *next = audit->streams->next;

        tsc_stream_destroy(audit->streams);
        audit->streams = next;
    }
    tsc_findings_fini(&audit->findings);
}
