/* SPDX-License-Identifier: Apache-2.0 */
#include "talk.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "../ipc/clock.h"
#include "../ipc/error.h"
#include "../ipc/log.h"
#include "../ipc/step.h"
#include "join.h"
#include "owed.h"
#include "setting.h"
#include "side.h"
#include "status.h"

enum {
    MESSAGES_MAX = 4096, /* taken in one turn of the loop, so that nobody's flood stops the rest */
    USELESS_MAX = 1000,  /* messages of a consumer in a second that change nothing, or that come seldom, */
    WORDS_MAX = 2,       /* and for each window that it may hold: that it was lost, and that it was given again */
};

/* --- saying something */

static int send_text(struct tsocket_producer *producer, uint32_t route, char *text)
{
    int rc = TSOCKET_ENOMEM;

    if (text != NULL)
        rc = tsi_socket_send(producer->socket, route, text, strlen(text));
    if (rc != TSOCKET_OK)
        tsi_log('W', "an answer could not be sent: %s", tsocket_strerror(rc));
    cJSON_free(text);
    return rc;
}

/* Its control page, and its memory, where that is shared by a descriptor. */
static int send_memory(const struct tsp_consumer *consumer, const struct tsp_stream *ring)
{
    int fds[TSI_LIFELINE_FDS] = {ring->page.fd, ring->store.arenas[consumer->memory].fd};

    int rc = tsi_lifeline_send(consumer->lifeline, "", 1, fds, fds[1] >= 0 ? 2 : 1);

    TSI_STEP(MEMORY_SENT);
    return rc;
}

void tsp_talk_drop(struct tsocket_producer *producer, struct tsp_consumer *consumer, const char *why)
{
    if (consumer->stream != NULL) {
        tsi_log('I', "stream %s: consumer %s (process %d) %s", consumer->stream->name, consumer->hello.name,
                (int)consumer->peer.pid, why);
        tsp_ledger_left(consumer->stream->ledger, consumer->id,
                        consumer->evicted  ? TSP_LEDGER_EVICTED
                        : consumer->polite ? TSP_LEDGER_LEFT
                                           : TSP_LEDGER_DIED);
        if (!consumer->polite)
            tsp_roster_note_crash(&producer->roster, consumer->hello.name, tsi_clock_ns());
        tsp_stream_detach(consumer->stream, consumer);
        tsp_side_forget(consumer);
    }
    tsp_roster_remove(&producer->roster, consumer);
}

/* Tells those who have said where they stand where to read on, as far as that is known. */
static void answer_places(struct tsocket_producer *producer, struct tsp_stream *stream, uint64_t now_ns)
{
    for (uint32_t i = producer->roster.n; i > 0; i--) {
        struct tsp_consumer *consumer = producer->roster.consumers[i - 1];
        struct tsi_move move;
        bool same = true;
        int rc = TSOCKET_OK;

        if (consumer->stream != stream || !consumer->asks ||
            !tsp_side_answer(stream, &producer->roster, consumer, now_ns, &move, &same))
            continue;
        if (move.refused != TSOCKET_OK)
            snprintf(move.reason, sizeof(move.reason), "%s", tsocket_last_error());
        move.memory = !same;
        if (!same) {
            strcpy(move.arena, consumer->ring->store.tickets[consumer->memory]);
            rc = send_memory(consumer, consumer->ring);
        }
        if (rc == TSOCKET_OK)
            rc = send_text(producer, consumer->route, tsi_move_pack(&move));
        TSI_STEP(MOVE_SENT);
        if (rc != TSOCKET_OK)
            tsp_talk_drop(producer, consumer, "could not be told where to read");
    }
}

/* --- moving on */

static void fail(struct tsocket_producer *producer, int error)
{
    for (uint32_t i = 0; i < producer->n_streams; i++)
        tsp_stream_fail(producer->streams[i], tsocket_last_error());
    tsp_engine_end(producer, error, tsocket_last_error());
}

static void move_ring(struct tsocket_producer *producer, struct tsp_stream *ring, uint64_t now_ns, bool *wake_out)
{
    int rc =
        producer->outcome != TSOCKET_OK ? TSOCKET_OK : tsp_stream_progress(ring, &producer->roster, now_ns, wake_out);

    if (rc != TSOCKET_OK)
        fail(producer, rc);
}

static void move(struct tsocket_producer *producer, uint64_t now_ns)
{
    bool wake = false;

    for (uint32_t i = 0; i < producer->n_streams; i++) {
        struct tsp_stream *stream = producer->streams[i];

        tsp_side_progress(stream, &producer->roster, now_ns);
        answer_places(producer, stream, now_ns);
        move_ring(producer, stream, now_ns, &wake);
        for (uint32_t k = 0; k < stream->n_sides; k++)
            move_ring(producer, stream->sides[k], now_ns, &wake);
    }
    if (wake)
        pthread_cond_broadcast(&producer->room);
}

/* Whether it should look again: what it sleeps for is there, or it is to read elsewhere. */
static bool want_is_met(const struct tsp_consumer *consumer)
{
    return consumer->summoned || (consumer->ring != NULL && tsp_stream_want_is_met(consumer->ring, consumer));
}

static void answer_wants(struct tsocket_producer *producer, uint64_t now_ns)
{
    for (uint32_t i = 0; i < producer->roster.n; i++) {
        struct tsp_consumer *consumer = producer->roster.consumers[i];
        struct tsi_hot hot = {.kind = TSI_READY};
        unsigned char message[TSI_HOT_BYTES];

        if (!consumer->wants || !want_is_met(consumer))
            continue;
        tsi_hot_pack(&hot, message);
        if (tsi_socket_send(producer->socket, consumer->route, message, sizeof(message)) == TSOCKET_EAGAIN)
            continue; /* its queue is full: once more in the next turn */
        TSI_STEP(WANT_ANSWERED);
        consumer->wants = false;
        consumer->waited_ns += now_ns - consumer->want_since_ns;
    }
}

void tsp_talk_progress(struct tsocket_producer *producer, uint64_t now_ns)
{
    move(producer, now_ns);
    answer_wants(producer, now_ns);
}

/* --- consumers come */

static struct tsp_stream *find_stream(const struct tsocket_producer *producer, const char *name)
{
    char names[TSOCKET_STREAMS_MAX * (TSOCKET_NAME_MAX + 2)] = "";

    for (uint32_t i = 0; i < producer->n_streams; i++) {
        if (name[0] == '\0' || strcmp(producer->streams[i]->name, name) == 0)
            return producer->streams[i];
        strcat(strcat(names, i > 0 ? ", " : ""), producer->streams[i]->name);
    }
    tsi_fail(TSOCKET_ENOTFOUND, "the daemon %s has no stream \"%s\"; it has: %.300s", producer->name, name, names);
    return NULL;
}

static void refuse(struct tsocket_producer *producer, uint32_t route, int error)
{
    struct tsi_welcome welcome = {.refused = error};

    tsi_log('W', "a consumer is refused: %s", tsocket_last_error());
    snprintf(welcome.reason, sizeof(welcome.reason), "%s", tsocket_last_error());
    send_text(producer, route, tsi_welcome_pack(&welcome));
}

/* Its memory first, over the lifeline; then the message that it waits for. */
static int send_welcome(struct tsocket_producer *producer, const struct tsp_consumer *consumer, bool catch_up)
{
    const struct tsp_stream *stream = consumer->stream;
    struct tsi_welcome welcome = {
        .layout = stream->layout,
        .epoch_samples = stream->options.epoch_samples,
        .epochs = stream->options.resident ? 0 : stream->options.epochs,
        .seat = consumer->seat,
        .side = tsp_side_fits(stream, &consumer->hello),
        .catch_up = catch_up,
        .resident = stream->options.resident,
    };
    int rc = send_memory(consumer, stream);

    if (rc != TSOCKET_OK)
        return rc;
    strcpy(welcome.daemon, producer->name);
    strcpy(welcome.stream, stream->name);
    strcpy(welcome.origin, stream->origin);
    strcpy(welcome.arena, stream->store.tickets[consumer->memory]);
    tsp_stream_describe_place(stream, consumer, &welcome);
    return send_text(producer, consumer->route, tsi_welcome_pack(&welcome));
}

/* A trial that crashes as soon as it starts, again and again, is not to disturb the others for ever. */
static int check_crashes(const struct tsocket_producer *producer, const struct tsi_hello *hello, uint64_t now_ns)
{
    uint32_t n = tsp_roster_crashes(&producer->roster, hello->name, now_ns);

    if (producer->options.max_crashes == 0 || n < producer->options.max_crashes)
        return TSOCKET_OK;
    return tsi_fail(TSOCKET_EREFUSED,
                    "%" PRIu32 " consumers named \"%s\" have died within a minute, and --max-crashes is %" PRIu32
                    "; find out why, or wait a minute",
                    n, hello->name, producer->options.max_crashes);
}

/* Others will have to wait for it, whatever it does: better known now than when it stands still. */
static void warn_of_size(const struct tsp_consumer *consumer)
{
    const struct tsp_stream *stream = consumer->stream;
    uint64_t room = tsp_join_room(stream, &consumer->hello);

    if (stream->n_sides > 0 && !tsp_side_fits(stream, &consumer->hello))
        tsi_log('W',
                "stream %s: consumer %s (process %d) may hold %" PRIu64 " samples, a side ring has %" PRIu64
                ": it can neither pause nor be parked; start tsocketd with --side-ring %" PRIu64,
                stream->name, consumer->hello.name, (int)consumer->peer.pid, room, stream->sides[0]->layout.capacity,
                room);
}

static void attach(struct tsocket_producer *producer, struct tsp_consumer *consumer, uint32_t route,
                   const struct tsi_hello *hello, uint64_t now_ns)
{
    struct tsp_stream *stream = find_stream(producer, hello->stream);
    char missing[TSP_STATUS_MISSING];
    bool catch_up = false;
    int rc = TSOCKET_ENOTFOUND;

    TSI_STEP(HELLO_HEARD);
    if (stream != NULL)
        rc = check_crashes(producer, hello, now_ns);
    if (rc == TSOCKET_OK && producer->outcome != TSOCKET_OK)
        rc = tsi_fail(TSOCKET_GONE, "the daemon %s is ending", producer->name);
    if (rc == TSOCKET_OK) {
        consumer->hello = *hello;
        consumer->max_hold_ns = producer->options.max_hold_ms * TSI_NS_PER_MS;
        rc = tsp_join_attach(stream, &producer->roster, consumer, now_ns, &catch_up);
    }
    if (rc != TSOCKET_OK) {
        refuse(producer, route, rc);
        return;
    }
    consumer->route = route;
    TSI_STEP(ATTACHED);
    warn_of_size(consumer);
    if (tsp_roster_attached(&producer->roster, stream) >= stream->wait_for)
        stream->open = true;
    move(producer, now_ns); /* an epoch that nobody reads any more may end here, and its own begin */
    if (send_welcome(producer, consumer, catch_up) != TSOCKET_OK) {
        tsp_talk_drop(producer, consumer, "could not be welcomed");
        return;
    }
    TSI_STEP(WELCOMED);
    tsi_log('I',
            "stream %s: consumer %s (process %d) attached: batch %" PRIu32 ", rank %" PRIu32 " of %" PRIu32
            ", from epoch %" PRIu64,
            stream->name, hello->name, (int)consumer->peer.pid, hello->batch, hello->rank, hello->world,
            consumer->epoch);
    if (tsp_status_missing(stream, &producer->roster, missing))
        tsi_log('I', "stream %s: waits for %s", stream->name, missing);
}

/* --- settings of a consumer, changed while it runs */

static int set_all(struct tsocket_producer *producer, const struct tsi_hello *said)
{
    const struct tsp_stream *stream = find_stream(producer, said->stream);
    uint32_t n = 0;

    if (stream == NULL)
        return TSOCKET_ENOTFOUND;
    for (uint32_t i = 0; i < producer->roster.n; i++) {
        struct tsp_consumer *consumer = producer->roster.consumers[i];

        if (consumer->stream != stream || strcmp(consumer->hello.name, said->name) != 0)
            continue;
        if (!tsp_setting_change(consumer, said->setting))
            return tsi_fail(TSOCKET_EINVAL,
                            "\"%s\" is no setting; there are max-hold=DURATION (30s, 500ms, 2m; 0: no limit), "
                            "on-lag=park|skip|detach and max-lag=SAMPLES (0: no limit)",
                            said->setting);
        tsp_side_tell(consumer);
        n++;
    }
    if (n > 0)
        return TSOCKET_OK;
    return tsi_fail(TSOCKET_ENOTFOUND, "stream %s has no consumer \"%s\"", stream->name, said->name);
}

/* Answers with the status, or REFUSED. */
static void set(struct tsocket_producer *producer, uint32_t route, const struct tsi_hello *said, uint64_t now_ns)
{
    int rc = set_all(producer, said);

    if (rc != TSOCKET_OK) {
        refuse(producer, route, rc);
        return;
    }
    tsi_log('I', "consumer %s: %s", said->name, said->setting);
    send_text(producer, route, tsp_status_print(producer, now_ns));
}

/* --- what is heard */

/* A message too many. False: it was one too many for us, and the consumer is gone. */
static bool count_useless(struct tsocket_producer *producer, struct tsp_consumer *consumer)
{
    uint32_t limit = USELESS_MAX + WORDS_MAX * consumer->hello.hold;

    if (++consumer->useless <= limit)
        return true;
    tsi_log('W',
            "stream %s: consumer %s (process %d) has sent more than %" PRIu32
            " messages in a second that change nothing",
            consumer->stream->name, consumer->hello.name, (int)consumer->peer.pid, limit);
    tsp_talk_drop(producer, consumer, "floods the daemon");
    return false;
}

/* It has said what cannot be, as tsocket_last_error() says. */
static void break_off(struct tsocket_producer *producer, struct tsp_consumer *consumer)
{
    tsi_log('W', "stream %s: consumer %s (process %d): %s", consumer->stream->name, consumer->hello.name,
            (int)consumer->peer.pid, tsocket_last_error());
    tsp_talk_drop(producer, consumer, "broke the protocol");
}

void tsp_talk_owed(struct tsocket_producer *producer, struct tsp_consumer *consumer, const struct tsi_hot *hot)
{
    if (hot->kind == TSI_PASSED)
        tsp_owed_hear_passed(consumer, hot);
    else if (count_useless(producer, consumer) && tsp_owed_hear(consumer, hot) != TSOCKET_OK)
        break_off(producer, consumer);
}

/* A consumer says where it stands, because it was summoned, wants to read elsewhere, or pauses. */
static void hear_place(struct tsocket_producer *producer, struct tsp_consumer *consumer, const struct tsi_hello *said,
                       uint64_t now_ns)
{
    if (!count_useless(producer, consumer)) /* it may well change something, but not that often */
        return;

    consumer->place_number = said->number;
    int rc = strcmp(said->type, "PAUSE") == 0 ? tsp_side_pause(consumer, &said->place, now_ns)
                                              : tsp_side_ask(consumer, &said->place, said->again, now_ns);

    TSI_STEP(PLACE_HEARD);
    if (rc != TSOCKET_OK)
        break_off(producer, consumer);
}

/* A tool asks or tells something, and gets the status as the answer. */
static void hear_tool(struct tsocket_producer *producer, const struct tsp_consumer *tool, uint32_t route,
                      const char *type, uint64_t now_ns)
{
    if (strcmp(type, "STATUS") != 0)
        tsi_log('I', "process %d asks this daemon to %s", (int)tool->peer.pid,
                strcmp(type, "STOP") == 0 ? "stop" : "end with the epoch");
    if (strcmp(type, "DRAIN") == 0) {
        for (uint32_t i = 0; i < producer->n_streams; i++)
            tsp_stream_drain(producer->streams[i]);
        producer->draining = true;
        tsp_talk_progress(producer, now_ns);
    }
    send_text(producer, route, tsp_status_print(producer, now_ns));
    if (strcmp(type, "STOP") == 0)
        tsp_engine_end(producer, TSOCKET_END, "asked to stop");
}

static bool is_one_of(const char *type, const char *a, const char *b, const char *c)
{
    return strcmp(type, a) == 0 || strcmp(type, b) == 0 || strcmp(type, c) == 0;
}

static void hear_cold(struct tsocket_producer *producer, uint32_t route, const char *text, size_t len, uint64_t now_ns)
{
    struct tsi_hello hello;
    struct tsp_consumer *consumer;

    if (tsi_hello_unpack(text, len, &hello) != TSOCKET_OK) {
        tsi_log('D', "dropped: %s", tsocket_last_error());
        return;
    }
    consumer = tsp_roster_by_token(&producer->roster, hello.token);
    if (consumer != NULL && consumer->stream != NULL && is_one_of(hello.type, "PLACE", "PAUSE", "PAUSE"))
        hear_place(producer, consumer, &hello, now_ns);
    else if (consumer == NULL || consumer->stream != NULL)
        tsi_log('D', "a message without a valid token is dropped");
    else if (strcmp(hello.type, "HELLO") == 0)
        attach(producer, consumer, route, &hello, now_ns);
    else if (strcmp(hello.type, "SET") == 0)
        set(producer, route, &hello, now_ns);
    else if (is_one_of(hello.type, "STATUS", "STOP", "DRAIN"))
        hear_tool(producer, consumer, route, hello.type, now_ns);
}

static void hear_want(struct tsp_consumer *consumer, const struct tsi_hot *hot, uint64_t now_ns)
{
    if (!consumer->wants)
        consumer->want_since_ns = now_ns;
    consumer->wants = true;
    consumer->want_epoch = hot->a;
    consumer->want_index = hot->b;
}

static void count_received(struct tsp_consumer *consumer, uint64_t received)
{
    if (received > consumer->received && received <= TSI_NUMBER_MAX)
        consumer->received = received;
}

/* Of a resident stream it counts on from pass to pass. */
static void record_passed(struct tsp_consumer *consumer)
{
    uint64_t len = tsp_stream_epoch(consumer->ring, 0).len;

    if (len == 0)
        return;
    consumer->place.epoch = consumer->epoch + consumer->released / len;
    consumer->place.index = consumer->released % len;
    tsp_ledger_released(consumer->ring->ledger, consumer->id, consumer->place.epoch, consumer->place.index);
}

static void record_released(struct tsp_consumer *consumer)
{
    const struct tsp_stream *ring = consumer->ring;
    uint64_t epoch = tsp_stream_epoch_of(ring, consumer->released);

    if (consumer->stream->options.resident)
        record_passed(consumer);
    else if (!consumer->again && consumer->released >= ring->begun) /* else it is of what a side ring had before */
        tsp_ledger_released(ring->ledger, consumer->id, epoch,
                            consumer->released - tsp_stream_epoch(ring, epoch).start);
}

/* Nothing behind it can have been read. */
static uint64_t furthest(const struct tsp_consumer *consumer)
{
    return consumer->stream->options.resident ? TSI_NUMBER_MAX : consumer->ring->published;
}

/* Only upwards, and only to what has been published: anything else would give away others' memory. */
static void hear_release(struct tsocket_producer *producer, struct tsp_consumer *consumer, const struct tsi_hot *hot)
{
    if (hot->a > furthest(consumer)) {
        tsi_log('W', "stream %s: consumer %s (process %d) releases position %" PRIu64 ", the head is at %" PRIu64,
                consumer->stream->name, consumer->hello.name, (int)consumer->peer.pid, hot->a,
                consumer->ring->published);
        tsp_talk_drop(producer, consumer, "broke the protocol");
        return;
    }
    if (consumer->state == TSP_READING && hot->a > consumer->released) {
        TSI_STEP(RELEASE_HEARD);
        consumer->released = hot->a;
        record_released(consumer);
    }
}

/* Whether it is about the ring that the consumer reads: what was sent before a move may come in behind it. */
static bool is_current(const struct tsp_consumer *consumer, const struct tsi_hot *hot)
{
    if (consumer->ring == NULL)
        return false;
    return hot->ring == (consumer->ring->home != NULL ? consumer->ring->serial : 0);
}

void tsp_talk_last_words(struct tsp_consumer *consumer, const struct tsi_hot *hot)
{
    count_received(consumer, hot->b);
    if (is_current(consumer, hot) && consumer->state == TSP_READING && hot->a >= consumer->released &&
        hot->a <= furthest(consumer)) {
        consumer->released = hot->a;
        record_released(consumer);
    }
}

static void hear_skipped(struct tsp_consumer *consumer, const struct tsi_hot *hot)
{
    uint64_t epoch = tsp_stream_epoch_of(consumer->ring, hot->a);
    uint64_t start = tsp_stream_epoch(consumer->ring, epoch).start;

    consumer->skipped += hot->b;
    if (hot->a >= start)
        tsp_ledger_skipped(consumer->ring->ledger, consumer->id, epoch, hot->a - start, hot->a - start + hot->b);
}

/* From there on, and for what it has released by now. */
static void hear_ahead(struct tsp_consumer *consumer)
{
    consumer->again = false;
    if (consumer->state == TSP_READING)
        record_released(consumer);
}

static void hear_hot(struct tsocket_producer *producer, struct tsp_consumer *consumer, const struct tsi_hot *hot,
                     uint64_t now_ns)
{
    switch (hot->kind) {
    case TSI_WANT:
        if (consumer->ring == NULL || is_current(consumer, hot)) /* parked meanwhile: it sleeps, and is to hear of it */
            hear_want(consumer, hot, now_ns);
        break;
    case TSI_RELEASE:
        count_received(consumer, hot->b);
        if (is_current(consumer, hot))
            hear_release(producer, consumer, hot);
        break;
    case TSI_SKIPPED:
        if (is_current(consumer, hot) && hot->a <= consumer->ring->published && hot->b <= consumer->ring->published)
            hear_skipped(consumer, hot);
        break;
    case TSI_LEFT:
        tsp_side_left(consumer, hot->ring);
        break;
    case TSI_AHEAD:
        if (is_current(consumer, hot))
            hear_ahead(consumer);
        break;
    case TSI_READY: /* only ever said to consumers */
    case TSI_LOST:  /* these are said on the lifeline */
    case TSI_AGAIN:
    case TSI_PASSED:
        break;
    }
}

/* What our library says nearly always does. */
static bool changes_something(const struct tsp_consumer *consumer, const struct tsi_hot *hot)
{
    bool current = is_current(consumer, hot);

    switch (hot->kind) {
    case TSI_WANT:
        return (current || consumer->ring == NULL) &&
               !(consumer->wants && consumer->want_epoch == hot->a && consumer->want_index == hot->b);
    case TSI_RELEASE:
        return hot->b > consumer->received || (current && hot->a > consumer->released);
    case TSI_SKIPPED:
        return current && hot->b > 0;
    case TSI_LEFT:
        return consumer->side != NULL && consumer->side->serial == hot->ring;
    case TSI_AHEAD:
        return current && consumer->again;
    case TSI_READY:
    case TSI_LOST:
    case TSI_AGAIN:
    case TSI_PASSED:
        return false;
    }
    return false;
}

static void hear(struct tsocket_producer *producer, uint32_t route, const char *message, size_t len, uint64_t now_ns)
{
    struct tsp_consumer *consumer;
    struct tsi_hot hot;

    if (tsi_hot_unpack(message, len, &hot) != TSOCKET_OK) {
        hear_cold(producer, route, message, len, now_ns);
        return;
    }
    consumer = tsp_roster_by_route(&producer->roster, route);
    if (consumer == NULL)
        return;
    if (changes_something(consumer, &hot) || count_useless(producer, consumer))
        hear_hot(producer, consumer, &hot, now_ns);
}

void tsp_talk_hear(struct tsocket_producer *producer, uint64_t now_ns)
{
    char message[TSI_MESSAGE_MAX];
    uint32_t route;
    size_t len;
    int rc = TSOCKET_OK;

    for (int i = 0; i < MESSAGES_MAX && rc != TSOCKET_EAGAIN; i++) {
        rc = tsi_socket_recv(producer->socket, &route, message, sizeof(message), &len);
        if (rc == TSOCKET_OK)
            hear(producer, route, message, len, now_ns);
    }
}
