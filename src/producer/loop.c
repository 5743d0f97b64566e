/* SPDX-License-Identifier: Apache-2.0 */
#include "loop.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
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
#include "../ipc/step.h"
#include "machine.h"
#include "side.h"
#include "status.h"
#include "talk.h"

enum {
    EVENTS_MAX = 64,
    TICK_MS = 1000,       /* rates are computed, silent peers dropped */
    GREETED_MAX_S = 10,   /* time to say HELLO in */
    FDS_PER_CONSUMER = 3, /* lifeline, pidfd, ZeroMQ's connection */
    FDS_RESERVED = 16,    /* files being read, a status being answered */
    CONSUMERS_MAX = 4096,
    PART_MS = 1000, /* for consumers to close IPC memory in; tsocketd must have ended in 1.5 s, */
    LOOK_MS = 2,    /* which is looked at so often */
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

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void before_fork(void *context)
{
    pthread_mutex_lock(&((struct tsocket_producer *)context)->lock);
}

static void after_fork(void *context)
{
    pthread_mutex_unlock(&((struct tsocket_producer *)context)->lock);
}

/*
 * What would look like the parent's life to others when it has died: lifelines, and the name. The rest is left alone:
 * no thread is here that could use it, and condition variables may not be touched for whoever waited for them in the
 * parent.
 */
static void leave_to_parent(void *context)
{
    struct tsocket_producer *producer = context;

    for (uint32_t i = 0; !producer->forked && i < producer->roster.n; i++) {
        close_fd(&producer->roster.consumers[i]->lifeline);
        close_fd(&producer->roster.consumers[i]->pidfd);
    }
    close_fd(&producer->listener);
    close_fd(&producer->epoll_fd);
    close_fd(&producer->wake_fd);
    close_fd(&producer->runtime.lock_fd);
    producer->forked = true;
    producer->outcome = TSOCKET_EFORK;
    strcpy(producer->reason, "the producer was started before a fork, and belongs to the parent process");
    pthread_mutex_unlock(&producer->lock);
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
    if (rc == TSOCKET_OK) {
        producer->guard = (struct tsi_fork_guard){
            .before = before_fork, .in_parent = after_fork, .in_child = leave_to_parent, .context = producer};
        rc = tsi_fork_watch(&producer->guard);
    }
    if (rc != TSOCKET_OK)
        tsp_loop_close(producer);
    return rc;
}

void tsp_loop_close(struct tsocket_producer *producer)
{
    tsi_fork_forget(&producer->guard);
    tsp_roster_fini(&producer->roster);
    close_fd(&producer->listener);
    tsi_socket_close(producer->socket);
    producer->socket = NULL;
    close_fd(&producer->epoll_fd);
    close_fd(&producer->wake_fd);
}

/* The producer's own process uses the producer's address. */
static bool has_memory_open(const struct tsp_consumer *consumer)
{
    return consumer->stream != NULL && consumer->peer.pid != getpid() &&
           consumer->stream->store.arenas[consumer->memory].kind == TSI_ARENA_CUDA_IPC &&
           !tsi_lifeline_hung_up(consumer->lifeline);
}

static uint32_t count_memory_open(const struct tsp_roster *roster)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < roster->n; i++)
        n += has_memory_open(roster->consumers[i]);
    return n;
}

void tsp_loop_part(struct tsocket_producer *producer)
{
    const struct tsp_roster *roster = &producer->roster;
    uint64_t deadline_ns = tsi_clock_ns() + PART_MS * TSI_NS_PER_MS;
    uint32_t n = count_memory_open(roster);

    if (n == 0)
        return;
    tsi_log('I', "closing: %" PRIu32 " consumers have memory of the GPU open, which they are to close first", n);
    close_fd(&producer->listener); /* who looks for a daemon finds none */
    for (uint32_t i = 0; i < roster->n; i++) {
        if (has_memory_open(roster->consumers[i]))
            tsi_lifeline_hang_up(roster->consumers[i]->lifeline);
    }
    while (n > 0 && tsi_clock_ns() < deadline_ns) {
        poll(NULL, 0, LOOK_MS);
        n = count_memory_open(roster);
    }
    if (n > 0)
        tsi_log('W',
                "%" PRIu32 " consumers have not closed it within %d ms: it is freed, and what they read of it from now "
                "on is undefined",
                n, PART_MS);
}

void tsp_loop_wake(const struct tsocket_producer *producer)
{
    uint64_t one = 1;
    ssize_t ignored = write(producer->wake_fd, &one, sizeof(one)); /* full: it is awake already */

    (void)ignored;
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

/* Whether a consumer may find data in a GPU here, and should look which ones it sees itself. */
static bool uses_gpus(const struct tsocket_producer *producer)
{
    for (uint32_t i = 0; i < producer->n_streams; i++) {
        if (producer->streams[i]->store.n_gpus > 0)
            return true;
    }
    return false;
}

static void welcome_peer(struct tsocket_producer *producer, int fd, const struct tsi_peer *peer, uint64_t now_ns)
{
    struct tsi_greeting greeting = {.gpu = uses_gpus(producer)};
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
        return;
    }
    TSI_STEP(GREETED);
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

/* --- one turn of the loop */

/* Whether everything that was to be done has been done. */
static void check_end(struct tsocket_producer *producer)
{
    bool finished = true; /* all streams are over, and somebody was there for each; resident ones do not matter */
    bool visited = false, resident = true;

    if (tsp_roster_attached(&producer->roster, NULL) > 0)
        return;
    for (uint32_t i = 0; i < producer->n_streams; i++) {
        const struct tsp_stream *stream = producer->streams[i];

        visited = visited || stream->visited;
        resident = resident && stream->options.resident;
        finished = finished && (stream->options.resident || (stream->visited && tsp_stream_is_over(stream)));
    }
    if (finished && !resident)
        tsp_engine_end(producer, TSOCKET_END, "no epoch is left to be read");
    else if (producer->draining) /* of an epoch that nobody reads, or a resident stream, no end would come */
        tsp_engine_end(producer, TSOCKET_END, "it was to end with its epochs, and nobody reads them");
    else if (visited && producer->options.exit_when_idle)
        tsp_engine_end(producer, TSOCKET_END, "the last consumer has left");
}

static void tick(struct tsocket_producer *producer, uint64_t now_ns)
{
    if (now_ns - producer->tick_ns < TICK_MS * TSI_NS_PER_MS)
        return;
    tsp_status_tick(producer, now_ns);
    tsp_ledger_flush(producer->ledger);
    tsi_runtime_watch(&producer->runtime);
    for (uint32_t i = producer->roster.n; i > 0; i--) {
        struct tsp_consumer *consumer = producer->roster.consumers[i - 1];

        consumer->useless = 0;
        if (consumer->stream == NULL && now_ns - consumer->greeted_ns > GREETED_MAX_S * TSI_NS_PER_S)
            tsp_talk_drop(producer, consumer, "said nothing");
    }
}

static int timeout_ms(const struct tsocket_producer *producer, uint64_t now_ns)
{
    uint64_t deadline_ns = producer->tick_ns + TICK_MS * TSI_NS_PER_MS;

    if (tsi_socket_pending(producer->socket))
        return 0;
    for (uint32_t i = 0; i < producer->n_streams; i++) {
        uint64_t keep_until_ns = producer->streams[i]->keep_until_ns;

        uint64_t side_ns = tsp_side_deadline_ns(producer->streams[i], &producer->roster);

        if (keep_until_ns != 0 && keep_until_ns < deadline_ns)
            deadline_ns = keep_until_ns;
        if (side_ns < deadline_ns)
            deadline_ns = side_ns;
    }
    return tsi_clock_left_ms(now_ns, deadline_ns);
}

/*
 * The end of a consumer. One that closes says before how far it came, on the lifeline: what it sent over ZeroMQ may
 * still be on its way.
 */
static void part(struct tsocket_producer *producer, struct tsp_consumer *consumer, const struct tsi_hot *last_words)
{
    TSI_STEP(PARTED);
    if (last_words != NULL && consumer->stream != NULL)
        tsp_talk_last_words(consumer, last_words);
    consumer->polite = last_words != NULL;
    tsp_talk_drop(producer, consumer, last_words != NULL ? "has left" : "has died");
}

/* One packet, if the kernel has one, or else the end of file. */
static void hear_lifeline(struct tsocket_producer *producer, struct tsp_consumer *consumer)
{
    unsigned char packet[TSI_LIFELINE_PACKET_MAX];
    int fds[TSI_LIFELINE_FDS];
    uint32_t n_fds = 0;
    struct tsi_hot hot;
    size_t len;
    bool said = tsi_lifeline_recv(consumer->lifeline, 0, packet, sizeof(packet), &len, fds, &n_fds) == TSOCKET_OK &&
                tsi_hot_unpack(packet, len, &hot) == TSOCKET_OK;

    while (n_fds > 0)
        close(fds[--n_fds]);
    if (said && consumer->stream != NULL && hot.kind >= TSI_LOST)
        tsp_talk_owed(producer, consumer, &hot);
    else
        part(producer, consumer, said && hot.kind == TSI_RELEASE ? &hot : NULL);
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
            hear_lifeline(producer, consumer);
        break;
    }
}

/*
 * What a consumer released before it left is taken in before its end is: both may arrive in one turn, and its last
 * release decides where the others' room ends. So messages first, then lifelines.
 */
static void turn(struct tsocket_producer *producer, const struct epoll_event *events, int n, uint64_t now_ns)
{
    tsp_talk_hear(producer, now_ns);
    for (int i = 0; i < n; i++)
        handle(producer, &events[i], now_ns);
    tsp_talk_progress(producer, now_ns);
    check_end(producer);
    tick(producer, now_ns);
}

void *tsp_loop_run(void *argument)
{
    struct tsocket_producer *producer = argument;
    struct epoll_event events[EVENTS_MAX];

    pthread_mutex_lock(&producer->lock);
    producer->tick_ns = tsi_clock_ns();
    tsp_talk_progress(producer, producer->tick_ns);
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
