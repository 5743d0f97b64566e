/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a producer.
 *
 *     decode threads --claim, commit--> fillers <--- loop thread ---> sockets, lifelines, control pages
 *
 * One lock protects everything below it, and the socket. The loop thread holds it while it works, not while it sleeps;
 * claim, commit, status and wait hold it for a moment. Samples are written without it: a claim belongs to whoever has
 * it.
 */
#ifndef TSP_ENGINE_H
#define TSP_ENGINE_H

#include <tsocket/producer.h>

#include <pthread.h>

#include "../ipc/fork.h"
#include "../ipc/runtime.h"
#include "../ipc/socket.h"
#include "roster.h"
#include "stream.h"

struct tsocket_producer {
    /* constant after start */
    char name[TSOCKET_NAME_MAX + 1];
    struct tsocket_producer_options options;
    char *libraries; /* or NULL */
    uint32_t *allow_uids;
    uint32_t *allow_gids;
    struct tsi_runtime runtime;
    struct tsi_socket *socket; /* used with the lock held */
    int listener;
    int epoll_fd;
    int wake_fd; /* eventfd: somebody wants the loop's attention */
    uint64_t started_ns;
    pthread_t thread;
    bool started;
    struct tsi_fork_guard guard;
    bool forked;               /* this is a child's copy */
    struct tsp_ledger *ledger; /* or NULL; used with the lock held */
    struct tsp_stream *streams[TSOCKET_STREAMS_MAX];
    uint32_t n_streams;

    pthread_mutex_t lock; /* protects what follows, and the streams' insides */
    pthread_cond_t room;  /* there may be something to claim, or never again */
    pthread_cond_t ended; /* outcome has been set */
    struct tsp_roster roster;
    uint32_t turn;      /* the stream that claim looks at first */
    uint32_t side_turn; /* the same among the side rings of a stream */
    int32_t side_due;   /* see take */
    bool draining;      /* to end once nobody is attached */
    bool stopping;      /* the loop is to end */
    int outcome;        /* what wait returns; TSOCKET_OK: still running */
    char reason[TSI_REASON_MAX];

    /* counts, for the status */
    uint64_t claims;
    uint64_t busy_ns;
    uint64_t idle_ns; /* in claim, without one */
    uint64_t stage_ns[TSOCKET_STAGES_MAX];
    uint64_t tick_ns;
    struct {
        char name[TSOCKET_NAME_MAX + 1];
        double value;
    } notes[TSOCKET_NOTES_MAX];
    uint32_t n_notes;
};

/* Ends the run: the first outcome counts. With the lock held. */
void tsp_engine_end(struct tsocket_producer *producer, int outcome, const char *reason);

#endif
