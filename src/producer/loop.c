/* SPDX-License-Identifier: Apache-2.0 */
#include "loop.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cjson/cJSON.h>

#include "../ipc/clock.h"
#include "../ipc/error.h"
#include "../ipc/log.h"
#include "machine.h"
#include "status.h"

enum {
    EVENTS_MAX = 64,
    MESSAGES_MAX = 4096,  /* taken in one turn of the loop, so that nobody's flood stops the rest */
    TICK_MS = 1000,       /* rates are computed, silent peers dropped */
    GREETED_MAX_S = 10,   /* time to say HELLO in */
    FDS_PER_CONSUMER = 3, /* lifeline, pidfd, ZeroMQ's connection */
    FDS_RESERVED = 16,    /* files being read, a status being answered */
    CONSUMERS_MAX = 4096,
};

/* What an epoll event is about: the kind in the top byte, a consumer's id below. */
enum event_kind {
    EVENT_SOCKET,
    EVENT_WAKE,
    EVENT_LISTENER,
    EVENT_CONSUMER, /* its lifeline or its pidfd: either way it is going */
};

static int watch(int epoll_fd, int fd, enum event_kind kind, uint64_t id)
{
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP, .data.u64 = (uint64_t)kind << 56 | id};

    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0 ? TSOCKET_OK
                                                               : tsi_fail_errno(TSOCKET_ESYSTEM, "epoll_ctl");
}

/* --- life */

/* libzmq aborts the process when it cannot accept for want of descriptors: so many consumers are never let in. */
static int size_roster(struct tsocket_producer *producer)
{
    uint64_t left = tsp_machine_descriptors();
    uint64_t max = left > FDS_RESERVED ? (left - FDS_RESERVED) / FDS_PER_CONSUMER : 0;

    if (max == 0)
        return tsi_fail(TSOCKET_ESYSTEM,
                        "only %" PRIu64 " more files can be opened, %d are needed for one consumer; raise ulimit -n",
                        left, FDS_RESERVED + FDS_PER_CONSUMER);
    return tsp_roster_init(&producer->roster, (uint32_t)(max < CONSUMERS_MAX ? max : CONSUMERS_MAX));
}

int tsp_loop_open(struct tsocket_producer *producer)
{
    int rc = tsi_lifeline_listen(producer->runtime.lifeline, &producer->listener);

    if (rc == TSOCKET_OK)
        rc = tsi_socket_bind(producer->runtime.socket, &producer->socket);
    if (rc == TSOCKET_OK && (producer->options.n_allow_uids > 0 || producer->options.n_allow_gids > 0))
        rc = tsi_runtime_share(&producer->runtime);
    if (rc == TSOCKET_OK) {
        producer->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        producer->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (producer->epoll_fd < 0 || producer->wake_fd < 0)
            rc = tsi_fail_errno(TSOCKET_ESYSTEM, "epoll or eventfd");
    }
    if (rc == TSOCKET_OK)
        rc = watch(producer->epoll_fd, tsi_socket_fd(producer->socket), EVENT_SOCKET, 0);
    if (rc == TSOCKET_OK)
        rc = watch(producer->epoll_fd, producer->wake_fd, EVENT_WAKE, 0);
    if (rc == TSOCKET_OK)
        rc = watch(producer->epoll_fd, producer->listener, EVENT_LISTENER, 0);
    if (rc == TSOCKET_OK)
        rc = size_roster(producer);
    if (rc != TSOCKET_OK)
        tsp_loop_close(producer);
    return rc;
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void tsp_loop_close(struct tsocket_producer *producer)
{
    tsp_roster_fini(&producer->roster);
    close_fd(&producer->listener);
    tsi_socket_close(producer->socket);
    producer->socket = NULL;
    close_fd(&producer->epoll_fd);
    close_fd(&producer->wake_fd);
}

void tsp_loop_wake(const struct tsocket_producer *producer)
{
    uint64_t one = 1;
    ssize_t ignored = write(producer->wake_fd, &one, sizeof(one)); /* full: it is awake already */

    (void)ignored;
}

/* --- moving on */

static void fail(struct tsocket_producer *producer, int error)
{
    for (uint32_t i = 0; i < producer->n_streams; i++)
        tsi_control_set_state(producer->streams[i]->control, TSI_FAILED);
    tsp_engine_end(producer, error, tsocket_last_error());
}

static void move(struct tsocket_producer *producer, uint64_t now_ns)
{
    bool wake = false;

    for (uint32_t i = 0; i < producer->n_streams && producer->outcome == TSOCKET_OK; i++) {
        int rc = tsp_stream_progress(producer->streams[i], &producer->roster, now_ns, &wake);

        if (rc != TSOCKET_OK)
            fail(producer, rc);
    }
    if (wake)
        pthread_cond_broadcast(&producer->room);
}

static void answer_wants(struct tsocket_producer *producer, uint64_t now_ns)
{
    for (uint32_t i = 0; i < producer->roster.n; i++) {
        struct tsp_consumer *consumer = producer->roster.consumers[i];
        struct tsi_hot hot = {.kind = TSI_READY};
        unsigned char message[TSI_HOT_BYTES];

        if (!consumer->wants || !tsp_stream_want_is_met(consumer->stream, consumer))
            continue;
        hot.a = consumer->stream->published;
        tsi_hot_pack(&hot, message);
        if (tsi_socket_send(producer->socket, consumer->route, message, sizeof(message)) == TSOCKET_EAGAIN)
            continue; /* its queue is full: once more in the next turn */
        consumer->wants = false;
        consumer->waited_ns += now_ns - consumer->want_since_ns;
    }
}

void tsp_loop_progress(struct tsocket_producer *producer, uint64_t now_ns)
{
    move(producer, now_ns);
    answer_wants(producer, now_ns);
}

/* --- consumers come and go */

static bool may_attach(const struct tsocket_producer *producer, int fd, const struct tsi_peer *peer)
{
    if (peer->uid == geteuid() || peer->uid == 0)
        return true;
    for (uint32_t i = 0; i < producer->options.n_allow_uids; i++) {
        if (producer->allow_uids[i] == peer->uid)
            return true;
    }
    for (uint32_t i = 0; i < producer->options.n_allow_gids; i++) {
        if (tsi_lifeline_in_group(fd, peer, producer->allow_gids[i]))
            return true;
    }
    return false;
}

static int greet(int fd, const struct tsi_greeting *greeting)
{
    char *text = tsi_greeting_pack(greeting);
    int rc;

    if (text == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for a greeting");
    rc = tsi_lifeline_send(fd, text, strlen(text), NULL, 0);
    cJSON_free(text);
    return rc;
}

static void turn_away(int fd, const struct tsi_peer *peer)
{
    struct tsi_greeting greeting = {.refused = ""};

    tsi_log('W', "process %d of user %u is refused: %s", (int)peer->pid, (unsigned)peer->uid, tsocket_last_error());
    snprintf(greeting.refused, sizeof(greeting.refused), "%s", tsocket_last_error());
    greet(fd, &greeting);
    close(fd);
}

static void welcome_peer(struct tsocket_producer *producer, int fd, const struct tsi_peer *peer, uint64_t now_ns)
{
    struct tsi_greeting greeting = {.refused = ""};
    struct tsp_consumer *consumer;
    int rc = TSOCKET_OK;

    if (!may_attach(producer, fd, peer))
        rc = tsi_fail(TSOCKET_EREFUSED,
                      "user %u may not attach to the daemon %s of user %u; it must be started with --allow-uid %u",
                      (unsigned)peer->uid, producer->name, (unsigned)geteuid(), (unsigned)peer->uid);
    if (rc == TSOCKET_OK)
        rc = tsp_roster_add(&producer->roster, fd, peer, now_ns, &consumer);
    if (rc != TSOCKET_OK) {
        turn_away(fd, peer);
        return;
    }
    memcpy(greeting.socket, producer->runtime.socket, sizeof(greeting.socket));
    memcpy(greeting.token, consumer->token, sizeof(greeting.token));
    rc = watch(producer->epoll_fd, fd, EVENT_CONSUMER, consumer->id);
    if (rc == TSOCKET_OK && consumer->pidfd >= 0)
        rc = watch(producer->epoll_fd, consumer->pidfd, EVENT_CONSUMER, consumer->id);
    if (rc == TSOCKET_OK)
        rc = greet(fd, &greeting);
    if (rc != TSOCKET_OK) {
        tsi_log('D', "process %d could not be greeted: %s", (int)peer->pid, tsocket_last_error());
        tsp_roster_remove(&producer->roster, consumer);
    }
}

static void accept_peers(struct tsocket_producer *producer, uint64_t now_ns)
{
    struct tsi_peer peer;
    int fd, rc;

    while ((rc = tsi_lifeline_accept(producer->listener, &fd, &peer)) == TSOCKET_OK)
        welcome_peer(producer, fd, &peer, now_ns);
    if (rc != TSOCKET_EAGAIN)
        tsi_log('W', "%s", tsocket_last_error());
}

static void drop(struct tsocket_producer *producer, struct tsp_consumer *consumer, const char *why)
{
    if (consumer->stream != NULL) {
        tsi_log('I', "stream %s: consumer %s (process %d) %s", consumer->stream->name, consumer->hello.name,
                (int)consumer->peer.pid, why);
        tsp_stream_detach(consumer->stream, consumer);
    }
    tsp_roster_remove(&producer->roster, consumer);
}

/* --- messages */

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
static int send_welcome(struct tsocket_producer *producer, const struct tsp_consumer *consumer)
{
    const struct tsp_stream *stream = consumer->stream;
    struct tsi_welcome welcome = {
        .layout = stream->layout, .epoch_samples = stream->options.epoch_samples, .epochs = stream->options.epochs};
    int fds[TSI_LIFELINE_FDS] = {stream->page.fd, stream->ring.fd};
    int rc = tsi_lifeline_send(consumer->lifeline, "", 1, fds, TSI_LIFELINE_FDS);

    if (rc != TSOCKET_OK)
        return rc;
    strcpy(welcome.daemon, producer->name);
    strcpy(welcome.stream, stream->name);
    tsp_stream_describe_place(stream, consumer, &welcome);
    return send_text(producer, consumer->route, tsi_welcome_pack(&welcome));
}

static void attach(struct tsocket_producer *producer, struct tsp_consumer *consumer, uint32_t route,
                   const struct tsi_hello *hello, uint64_t now_ns)
{
    struct tsp_stream *stream = find_stream(producer, hello->stream);
    int rc = TSOCKET_ENOTFOUND;

    if (stream != NULL) {
        consumer->hello = *hello;
        rc = tsp_stream_attach(stream, &producer->roster, consumer, now_ns);
    }
    if (rc != TSOCKET_OK) {
        refuse(producer, route, rc);
        return;
    }
    consumer->route = route;
    if (stream->number == 0 && tsp_roster_attached(&producer->roster, stream) >= producer->options.wait_for)
        stream->open = true;
    move(producer, now_ns); /* an epoch that nobody reads any more may end here, and its own begin */
    if (send_welcome(producer, consumer) != TSOCKET_OK) {
        drop(producer, consumer, "could not be welcomed");
        return;
    }
    tsi_log('I',
            "stream %s: consumer %s (process %d) attached: batch %" PRIu32 ", rank %" PRIu32 " of %" PRIu32
            ", from epoch %" PRIu64,
            stream->name, hello->name, (int)consumer->peer.pid, hello->batch, hello->rank, hello->world,
            consumer->epoch);
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
    if (consumer == NULL || consumer->stream != NULL) {
        tsi_log('D', "a message without a valid token is dropped");
        return;
    }
    if (strcmp(hello.type, "HELLO") == 0) {
        attach(producer, consumer, route, &hello, now_ns);
    } else if (strcmp(hello.type, "STATUS") == 0) {
        send_text(producer, route, tsp_status_print(producer, now_ns));
    } else if (strcmp(hello.type, "STOP") == 0) {
        tsi_log('I', "process %d asks this daemon to stop", (int)consumer->peer.pid);
        send_text(producer, route, tsp_status_print(producer, now_ns));
        tsp_engine_end(producer, TSOCKET_END, "asked to stop");
    }
}

static void hear_want(struct tsp_consumer *consumer, const struct tsi_hot *hot, uint64_t now_ns)
{
    if (!consumer->wants)
        consumer->want_since_ns = now_ns;
    consumer->wants = true;
    consumer->want_epoch = hot->a;
    consumer->want_index = hot->b;
}

/* A count that is only shown, but not without sense: it rises, up to what there was. */
static uint64_t take_received(const struct tsp_consumer *consumer, uint64_t received)
{
    return received > consumer->received && received <= consumer->stream->published ? received : consumer->received;
}

/* Only upwards, and only to what has been published: anything else would give away others' memory. */
static void hear_release(struct tsocket_producer *producer, struct tsp_consumer *consumer, const struct tsi_hot *hot)
{
    if (hot->a > consumer->stream->published) {
        tsi_log('W', "stream %s: consumer %s (process %d) releases position %" PRIu64 ", the head is at %" PRIu64,
                consumer->stream->name, consumer->hello.name, (int)consumer->peer.pid, hot->a,
                consumer->stream->published);
        drop(producer, consumer, "broke the protocol");
        return;
    }
    consumer->received = take_received(consumer, hot->b);
    if (consumer->state == TSP_READING && hot->a > consumer->released)
        consumer->released = hot->a;
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
    if (consumer == NULL || hot.ring != 0)
        return;
    if (hot.kind == TSI_WANT)
        hear_want(consumer, &hot, now_ns);
    else if (hot.kind == TSI_RELEASE)
        hear_release(producer, consumer, &hot);
}

static void hear_all(struct tsocket_producer *producer, uint64_t now_ns)
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

/* --- one turn of the loop */

/* Whether everything that was to be done has been done. */
static void check_end(struct tsocket_producer *producer)
{
    bool finished = true; /* all streams are over, and somebody was there for each */
    bool visited = false;

    if (tsp_roster_attached(&producer->roster, NULL) > 0)
        return;
    for (uint32_t i = 0; i < producer->n_streams; i++) {
        visited = visited || producer->streams[i]->visited;
        finished = finished && producer->streams[i]->visited && tsp_stream_is_over(producer->streams[i]);
    }
    if (finished)
        tsp_engine_end(producer, TSOCKET_END, "no epoch is left to be read");
    else if (visited && producer->options.exit_when_idle)
        tsp_engine_end(producer, TSOCKET_END, "the last consumer has left");
}

static void tick(struct tsocket_producer *producer, uint64_t now_ns)
{
    if (now_ns - producer->tick_ns < TICK_MS * TSI_NS_PER_MS)
        return;
    tsp_status_tick(producer, now_ns);
    for (uint32_t i = producer->roster.n; i > 0; i--) {
        struct tsp_consumer *consumer = producer->roster.consumers[i - 1];

        if (consumer->stream == NULL && now_ns - consumer->greeted_ns > GREETED_MAX_S * TSI_NS_PER_S)
            drop(producer, consumer, "said nothing");
    }
}

static int timeout_ms(const struct tsocket_producer *producer, uint64_t now_ns)
{
    uint64_t deadline_ns = producer->tick_ns + TICK_MS * TSI_NS_PER_MS;

    if (tsi_socket_pending(producer->socket))
        return 0;
    for (uint32_t i = 0; i < producer->n_streams; i++) {
        uint64_t keep_until_ns = producer->streams[i]->keep_until_ns;

        if (keep_until_ns != 0 && keep_until_ns < deadline_ns)
            deadline_ns = keep_until_ns;
    }
    return tsi_clock_left_ms(now_ns, deadline_ns);
}

/*
 * The end of a consumer. One that closes says before how far it came, on the lifeline: what it sent over ZeroMQ may
 * still be on its way.
 */
static void part(struct tsocket_producer *producer, struct tsp_consumer *consumer)
{
    unsigned char packet[TSI_LIFELINE_PACKET_MAX];
    int fds[TSI_LIFELINE_FDS];
    uint32_t n_fds = 0;
    struct tsi_hot hot;
    size_t len;
    bool polite = tsi_lifeline_recv(consumer->lifeline, 0, packet, sizeof(packet), &len, fds, &n_fds) == TSOCKET_OK &&
                  tsi_hot_unpack(packet, len, &hot) == TSOCKET_OK && hot.kind == TSI_RELEASE;

    while (n_fds > 0)
        close(fds[--n_fds]);
    if (polite && consumer->stream != NULL)
        consumer->received = take_received(consumer, hot.b);
    drop(producer, consumer, polite ? "has left" : "has died");
}

static void handle(struct tsocket_producer *producer, const struct epoll_event *event, uint64_t now_ns)
{
    uint64_t id = event->data.u64 & (UINT64_MAX >> 8);
    struct tsp_consumer *consumer;
    uint64_t ignored;

    switch ((enum event_kind)(event->data.u64 >> 56)) {
    case EVENT_SOCKET: /* read in every turn */
        break;
    case EVENT_WAKE:
        if (read(producer->wake_fd, &ignored, sizeof(ignored)) < 0)
            break;
        break;
    case EVENT_LISTENER:
        accept_peers(producer, now_ns);
        break;
    case EVENT_CONSUMER:
        consumer = tsp_roster_by_id(&producer->roster, id);
        if (consumer != NULL)
            part(producer, consumer);
        break;
    }
}

/*
 * What a consumer released before it left is taken in before its end is: both may arrive in one turn, and its last
 * release decides where the others' room ends. So messages first, then lifelines.
 */
static void turn(struct tsocket_producer *producer, const struct epoll_event *events, int n, uint64_t now_ns)
{
    hear_all(producer, now_ns);
    for (int i = 0; i < n; i++)
        handle(producer, &events[i], now_ns);
    tsp_loop_progress(producer, now_ns);
    check_end(producer);
    tick(producer, now_ns);
}

void *tsp_loop_run(void *argument)
{
    struct tsocket_producer *producer = argument;
    struct epoll_event events[EVENTS_MAX];

    pthread_mutex_lock(&producer->lock);
    producer->tick_ns = tsi_clock_ns();
    tsp_loop_progress(producer, producer->tick_ns);
    while (!producer->stopping) {
        int left_ms = timeout_ms(producer, tsi_clock_ns());
        int n;

        pthread_mutex_unlock(&producer->lock);
        n = epoll_wait(producer->epoll_fd, events, EVENTS_MAX, left_ms);
        pthread_mutex_lock(&producer->lock);
        turn(producer, events, n, tsi_clock_ns());
    }
    pthread_mutex_unlock(&producer->lock);
    return NULL;
}
