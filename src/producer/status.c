/* SPDX-License-Identifier: Apache-2.0 */
#include "status.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "../ipc/clock.h"
#include "../ipc/error.h"
#include "side.h"

static void add(cJSON *json, const char *member, uint64_t value)
{
    cJSON_AddNumberToObject(json, member, (double)value);
}

/* Both take the item: without memory for its place it is freed, and missing. */
static void put(cJSON *json, const char *member, cJSON *item)
{
    if (!cJSON_AddItemToObject(json, member, item))
        cJSON_Delete(item);
}

static void append(cJSON *array, cJSON *item)
{
    if (!cJSON_AddItemToArray(array, item))
        cJSON_Delete(item);
}

static double seconds(uint64_t ns)
{
    return (double)ns / (double)TSI_NS_PER_S;
}

static const char *stream_state(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    if (stream->finished)
        return "finished";
    return stream->open && tsp_roster_attached(roster, stream) > 0 ? "running" : "waiting";
}

static const char *producer_state(const struct tsocket_producer *producer)
{
    bool finished = true;

    if (producer->outcome != TSOCKET_OK)
        return "closing";
    for (uint32_t i = 0; i < producer->n_streams; i++)
        finished = finished && producer->streams[i]->finished;
    if (finished)
        return "finished";
    return tsp_roster_attached(&producer->roster, NULL) > 0 ? "running" : "waiting";
}

static cJSON *workers_json(const struct tsocket_producer *producer)
{
    cJSON *json = cJSON_CreateObject();
    cJSON *stages = cJSON_AddObjectToObject(json, "stages");
    double total = (double)(producer->busy_ns + producer->idle_ns);

    add(json, "claims", producer->claims);
    cJSON_AddNumberToObject(json, "busy", total > 0 ? (double)producer->busy_ns / total : 0);
    cJSON_AddNumberToObject(json, "waiting_for_room", total > 0 ? (double)producer->idle_ns / total : 0);
    for (uint32_t i = 0; i < TSOCKET_STAGES_MAX && producer->options.stage_names[i] != NULL; i++) {
        cJSON *stage = cJSON_AddObjectToObject(stages, producer->options.stage_names[i]);
        double ms = (double)producer->stage_ns[i] / (double)TSI_NS_PER_MS;

        cJSON_AddNumberToObject(stage, "ms_per_sample", producer->claims > 0 ? ms / (double)producer->claims : 0);
    }
    return json;
}

bool tsp_status_missing(const struct tsp_stream *stream, const struct tsp_roster *roster,
                        char text_out[TSP_STATUS_MISSING])
{
    uint32_t here = tsp_roster_attached(roster, stream);

    text_out[0] = '\0';
    if (!stream->open)
        snprintf(text_out, TSP_STATUS_MISSING, "%" PRIu32 " consumers, %" PRIu32 " %s here", stream->wait_for, here,
                 here == 1 ? "is" : "are");
    return !stream->open;
}

/* Empty unless it is parked. */
static void add_parked_for(cJSON *json, const struct tsp_consumer *consumer, const struct tsp_roster *roster)
{
    char missing[TSP_STATUS_MISSING], text[TSP_STATUS_MISSING + 16];
    const char *why = consumer->parked_for;

    if (consumer->state != TSP_PARKED) {
        why = "";
    } else if (consumer->evicted) {
        why = "detached";
    } else if (consumer->fresh && tsp_status_missing(consumer->stream, roster, missing)) {
        snprintf(text, sizeof(text), "waits for %s", missing);
        why = text;
    } else if (consumer->asks) {
        why = "waits for a side ring";
    }
    cJSON_AddStringToObject(json, "parked_for", why);
}

/* Which ring it reads, or why none; and how long what is ready lasts it at the group's rate. */
static void add_whereabouts(cJSON *json, const struct tsp_consumer *consumer, const struct tsp_roster *roster,
                            uint64_t now_ns)
{
    const struct tsp_stream *ring = consumer->ring;
    uint64_t lag = consumer->state == TSP_READING && ring->published > consumer->released
                       ? ring->published - consumer->released
                       : 0;
    uint64_t room = ring != NULL && ring->layout.capacity > lag ? ring->layout.capacity - lag : 0;

    cJSON_AddStringToObject(json, "ring", ring == NULL ? "none" : ring->home != NULL ? "side" : "group");
    add_parked_for(json, consumer, roster);
    cJSON_AddNumberToObject(json, "parked_s",
                            consumer->state == TSP_PARKED ? seconds(now_ns - consumer->parked_ns) : 0);
    add(json, "parked", consumer->parked);
    add(json, "skipped", consumer->skipped);
    add(json, "lag", lag);
    /* seconds that it may stand still before others have to wait for it */
    cJSON_AddNumberToObject(json, "slack_s",
                            consumer->stream->samples_per_s > 0 ? (double)room / consumer->stream->samples_per_s : 0);
}

/* Of what all consumers of the stream take per second, this one's part. */
static double share_of(const struct tsp_consumer *consumer, const struct tsp_roster *roster)
{
    double all = 0;

    for (uint32_t i = 0; i < roster->n; i++)
        all += roster->consumers[i]->stream == consumer->stream ? roster->consumers[i]->samples_per_s : 0;
    return all > 0 ? consumer->samples_per_s / all : 0;
}

static cJSON *consumer_json(const struct tsp_consumer *consumer, const struct tsp_roster *roster, uint64_t now_ns)
{
    cJSON *json = cJSON_CreateObject();
    cJSON *shard;
    uint64_t waited_ns = consumer->waited_ns + (consumer->wants ? now_ns - consumer->want_since_ns : 0);
    struct tsi_welcome place = {.first = 0};
    char device[TSI_UUID_TEXT_LEN];

    tsp_store_name(&consumer->stream->store, consumer->memory, device);
    tsp_stream_describe_place(consumer->stream, consumer, &place);
    add(json, "id", consumer->id);
    cJSON_AddStringToObject(json, "name", consumer->hello.name);
    add(json, "pid", (uint64_t)consumer->peer.pid);
    cJSON_AddStringToObject(json, "device", device);
    add(json, "batch", consumer->hello.batch);
    add(json, "hold", consumer->hello.hold);
    shard = cJSON_AddArrayToObject(json, "shard");
    append(shard, cJSON_CreateNumber(consumer->hello.rank));
    append(shard, cJSON_CreateNumber(consumer->hello.world));
    cJSON_AddStringToObject(
        json, "state",
        consumer->state == TSP_READING && consumer->wants ? "waiting" : tsp_consumer_state_word(consumer->state));
    add_whereabouts(json, consumer, roster, now_ns);
    add(json, "epoch", place.epoch);
    add(json, "first", place.first);
    add(json, "position", place.position);
    add(json, "released", consumer->released);
    add(json, "received", consumer->received);
    cJSON_AddNumberToObject(json, "samples_per_s", consumer->samples_per_s);
    cJSON_AddNumberToObject(json, "share", share_of(consumer, roster));
    cJSON_AddNumberToObject(json, "waited_s", seconds(waited_ns));
    return json;
}

static cJSON *bad_json(const struct tsp_stream *stream)
{
    cJSON *json = cJSON_CreateObject();
    cJSON *kinds;

    add(json, "total", stream->bad);
    kinds = cJSON_AddObjectToObject(json, "kinds");
    for (uint32_t i = 0; i < TSP_KINDS_MAX && stream->kinds[i].kind != NULL; i++)
        add(kinds, stream->kinds[i].kind, stream->kinds[i].count);
    return json;
}

static void add_held_back_by(cJSON *json, const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    const struct tsp_consumer *consumer = tsp_stream_held_by(stream, roster);
    char text[TSOCKET_NAME_MAX + 32], missing[TSP_STATUS_MISSING];

    if (tsp_status_missing(stream, roster, missing))
        snprintf(text, sizeof(text), "the wait for %s", missing);
    else if (consumer != NULL)
        snprintf(text, sizeof(text), "%s (%d)", consumer->hello.name, (int)consumer->peer.pid);
    else if (tsp_stream_held_by_grace(stream, roster))
        snprintf(text, sizeof(text), "join grace");
    else
        snprintf(text, sizeof(text), "%s", tsp_roster_attached(roster, stream) > 0 ? "source" : "nobody");
    cJSON_AddStringToObject(json, "held_back_by", text);
}

static uint64_t delivered_of(const struct tsp_stream *stream, const struct tsp_roster *roster)
{
    uint64_t delivered = stream->delivered;

    for (uint32_t i = 0; i < roster->n; i++)
        delivered += roster->consumers[i]->stream == stream ? roster->consumers[i]->received : 0;
    return delivered;
}

/* Samples that were made for side rings. */
static uint64_t made_again(const struct tsp_stream *stream)
{
    uint64_t made = 0;

    for (uint32_t i = 0; i < stream->n_sides; i++)
        made += stream->sides[i]->made;
    return made;
}

static void add_places(cJSON *json, const struct tsp_store *store)
{
    cJSON *places = cJSON_AddArrayToObject(json, "places");

    for (unsigned i = 0; i < store->n_places; i++) {
        char name[TSI_UUID_TEXT_LEN];
        cJSON *place = cJSON_CreateObject();

        tsp_store_name(store, i, name);
        cJSON_AddStringToObject(place, "device", name);
        cJSON_AddStringToObject(place, "kind", tsi_arena_word(store->arenas[i].kind));
        if (i < store->n_gpus) {
            cJSON_AddStringToObject(place, "name", store->arenas[i].device->name);
            cJSON_AddStringToObject(place, "mode", tsi_device_mode(store->arenas[i].device));
        }
        append(places, place);
    }
}

static cJSON *stream_json(const struct tsp_stream *stream, const struct tsp_roster *roster, uint64_t now_ns)
{
    const struct tsp_filler *filler = &stream->filler;
    cJSON *json = cJSON_CreateObject();
    cJSON *consumers;

    cJSON_AddStringToObject(json, "name", stream->name);
    cJSON_AddStringToObject(json, "source", stream->source);
    if (stream->recipe != NULL)
        cJSON_AddStringToObject(json, "recipe", stream->recipe);
    cJSON_AddStringToObject(json, "state", stream_state(stream, roster));
    add(json, "epoch", filler->epoch);
    add(json, "epochs", stream->options.epochs);
    add(json, "epoch_samples", stream->options.epoch_samples);
    add(json, "epoch_length", filler->len == TSI_LEN_OPEN ? 0 : filler->len);
    add(json, "epoch_start", filler->start);
    add(json, "head", stream->published);
    add(json, "floor", stream->floor);
    add(json, "capacity", stream->layout.capacity);
    add(json, "max_batch", stream->layout.mirror);
    add(json, "sample_bytes", stream->layout.sample_bytes);
    add(json, "ring_bytes", stream->layout.bytes);
    add_places(json, &stream->store);
    cJSON_AddBoolToObject(json, "resident", stream->options.resident);
    add(json, "side_rings", stream->n_sides);
    add(json, "side_rings_used", tsp_side_used(stream));
    add(json, "side_ring_bytes", stream->n_sides > 0 ? stream->sides[0]->layout.bytes : 0);
    add(json, "made_again", made_again(stream));
    cJSON_AddStringToObject(json, "origin", stream->origin);
    add(json, "made", stream->made);
    add(json, "delivered", delivered_of(stream, roster));
    cJSON_AddNumberToObject(json, "samples_per_s", stream->samples_per_s);
    put(json, "bad", bad_json(stream));
    add_held_back_by(json, stream, roster);
    consumers = cJSON_AddArrayToObject(json, "consumers");
    for (uint32_t i = 0; i < roster->n; i++) {
        if (roster->consumers[i]->stream == stream)
            append(consumers, consumer_json(roster->consumers[i], roster, now_ns));
    }
    return json;
}

char *tsp_status_print(const struct tsocket_producer *producer, uint64_t now_ns)
{
    cJSON *json = cJSON_CreateObject();
    cJSON *streams, *notes;
    char *text;

    cJSON_AddStringToObject(json, "daemon", producer->name);
    add(json, "pid", (uint64_t)getpid());
    cJSON_AddStringToObject(json, "version", tsocket_version());
    if (producer->libraries != NULL)
        cJSON_AddStringToObject(json, "libraries", producer->libraries);
    cJSON_AddNumberToObject(json, "uptime_s", seconds(now_ns - producer->started_ns));
    cJSON_AddStringToObject(json, "state", producer_state(producer));
    put(json, "workers", workers_json(producer));
    notes = cJSON_AddObjectToObject(json, "notes");
    for (uint32_t i = 0; i < producer->n_notes; i++)
        cJSON_AddNumberToObject(notes, producer->notes[i].name, producer->notes[i].value);
    streams = cJSON_AddArrayToObject(json, "streams");
    for (uint32_t i = 0; i < producer->n_streams; i++)
        append(streams, stream_json(producer->streams[i], &producer->roster, now_ns));
    text = cJSON_PrintUnformatted(json);
    cJSON_Delete(json);
    return text;
}

void tsp_status_tick(struct tsocket_producer *producer, uint64_t now_ns)
{
    double elapsed_s = seconds(now_ns - producer->tick_ns);

    for (uint32_t i = 0; i < producer->n_streams; i++) {
        struct tsp_stream *stream = producer->streams[i];

        stream->samples_per_s = (double)(stream->made - stream->made_at_tick) / elapsed_s;
        stream->made_at_tick = stream->made;
    }
    for (uint32_t i = 0; i < producer->roster.n; i++) {
        struct tsp_consumer *consumer = producer->roster.consumers[i];

        consumer->samples_per_s = (double)(consumer->received - consumer->received_at_tick) / elapsed_s;
        consumer->received_at_tick = consumer->received;
    }
    producer->tick_ns = now_ns;
}

/* --- what a program asks and tells */

int tsocket_producer_status(struct tsocket_producer *producer, char **json_out)
{
    char *text;

    pthread_mutex_lock(&producer->lock);
    text = tsp_status_print(producer, tsi_clock_ns());
    pthread_mutex_unlock(&producer->lock);
    if (text == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for the status");
    *json_out = text;
    return TSOCKET_OK;
}

/* With the lock held: its place among the notes, maybe a new one; TSOCKET_NOTES_MAX: there is none. */
static uint32_t find_note(const struct tsocket_producer *producer, const char *name)
{
    uint32_t i = 0;

    while (i < producer->n_notes && strcmp(producer->notes[i].name, name) != 0)
        i++;
    return i;
}

int tsocket_producer_note(struct tsocket_producer *producer, const char *name, double value)
{
    if (!tsi_name_ok(name))
        return tsi_fail(TSOCKET_EINVAL, "note: the name must be 1 to %d of A-Z a-z 0-9 . _ -", TSOCKET_NAME_MAX);
    pthread_mutex_lock(&producer->lock);
    uint32_t i = find_note(producer, name);
    if (i < TSOCKET_NOTES_MAX) {
        strcpy(producer->notes[i].name, name); /* its length has just been checked */
        producer->notes[i].value = value;
        producer->n_notes = i < producer->n_notes ? producer->n_notes : i + 1;
    }
    pthread_mutex_unlock(&producer->lock);
    if (i == TSOCKET_NOTES_MAX)
        return tsi_fail(TSOCKET_EINVAL, "note %s: there are %d already, the limit", name, TSOCKET_NOTES_MAX);
    return TSOCKET_OK;
}
