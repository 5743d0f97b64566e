/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The roster: who is connected to this producer, attached to which stream, at which position.
 *
 *     accept --> GREETED --HELLO--> JOINING --its epoch begins--> READING --held too long, paused--> PARKED
 *                    |                 |                             | ^                               |
 *                    |                 |                             | +---- says where it stands -----+
 *                    +-----------------+--------- end of file -------+---------------------------------+--> removed
 *
 * A consumer belongs to a stream, and reads the group's ring or a side ring of its own (see side.h).
 *
 * Used by whoever holds the producer's lock.
 */
#ifndef TSP_ROSTER_H
#define TSP_ROSTER_H

#include <stdbool.h>
#include <stdint.h>

#include "../ipc/lifeline.h"
#include "../ipc/wire.h"

struct tsp_stream;

enum tsp_consumer_state {
    TSP_GREETED, /* has not said HELLO yet, or only asks for the status */
    TSP_JOINING, /* waits for its first epoch; not counted in the floor */
    TSP_READING, /* counted, in the ring that it reads */
    TSP_PARKED,  /* attached, not counted: has to say where it stands before it reads on */
};

struct tsp_consumer {
    uint64_t id;
    int lifeline;
    int pidfd; /* -1: its process cannot be seen from here */
    struct tsi_peer peer;
    char token[TSI_RANDOM_HEX];
    uint64_t greeted_ns;

    /* after HELLO */
    enum tsp_consumer_state state;
    struct tsp_stream *stream;
    struct tsp_stream *ring;    /* that it reads: the stream's own or a side ring; NULL while PARKED */
    struct tsp_stream *watches; /* on whose page it looks whether it is summoned */
    struct tsp_stream *side;    /* assigned to it, or NULL; after a move to the group it may still hold windows there */
    unsigned memory;            /* where it reads: a place of its ring's store (store.h), the same in all rings */
    uint32_t seat;
    uint32_t route;
    struct tsi_hello hello;
    uint64_t epoch; /* JOINING: the one it waits for */
    uint64_t released;
    uint32_t side_sent;     /* the serial of the side ring whose memory it was sent last */
    uint64_t side_released; /* in `side`, when it left that for the group's ring */
    const char *parked_for; /* PARKED: a constant for the status */
    uint64_t parked_ns;     /* since then */
    uint32_t parked;        /* so many times so far */
    bool fresh;             /* PARKED since it came, with a token: has not read here yet */
    bool evicted;           /* PARKED for good */
    bool polite;            /* has said that it closes */
    bool summoned;          /* see control.h */
    bool asks;              /* has said where it stands, and waits for the answer: */
    struct tsi_place place;
    uint64_t place_number;  /* as it counts what it says */
    uint64_t wrap;          /* > 0: it joined late, and [0, wrap) of its first epoch is still to come, */
    uint64_t wrap_epoch;    /* which is this one; */
    bool second_lap;        /* it has begun with that */
    bool again;             /* it reads what it had lost: what it releases there is no progress */
    uint32_t owed;          /* windows that it lost, and has not got again, as it says */
    struct tsi_place reach; /* what it lost while it held it lies before that */
    uint64_t skipped;       /* samples, as it says */
    uint64_t max_hold_ns;   /* 0: it is never parked for holding */
    uint64_t max_lag;       /* what it is told */
    uint32_t useless;       /* messages since the last tick that changed nothing */
    uint64_t received;      /* real samples, as it says */
    bool wants;             /* sleeps until `want_index` samples of `want_epoch` are ready */
    uint64_t want_epoch;
    uint64_t want_index;
    uint64_t want_since_ns;
    uint64_t waited_ns;

    /* for the status */
    uint64_t received_at_tick;
    double samples_per_s;
};

/* How often consumers of a name died without a word, lately. */
struct tsp_crashes {
    char name[TSOCKET_NAME_MAX + 1];
    uint32_t n;
    uint64_t since_ns; /* the minute that is counted */
};

#define TSP_CRASHES_MAX 64 /* names; more than die in a minute, or the oldest is forgotten */

struct tsp_roster {
    struct tsp_crashes crashes[TSP_CRASHES_MAX];
    struct tsp_consumer **consumers;
    uint32_t n;
    uint32_t max;
    uint64_t next_id;
};

int tsp_roster_init(struct tsp_roster *roster, uint32_t max); /* TSOCKET_OK, TSOCKET_ENOMEM */
void tsp_roster_fini(struct tsp_roster *roster);              /* closes and frees what is left */

/* A new peer with a token of its own. Its descriptor belongs to the roster on success. TSOCKET_EREFUSED: full. */
int tsp_roster_add(struct tsp_roster *roster, int lifeline, const struct tsi_peer *peer, uint64_t now_ns,
                   struct tsp_consumer **consumer_out);

/* Closes its descriptors and frees it. */
void tsp_roster_remove(struct tsp_roster *roster, struct tsp_consumer *consumer);

/* All three: NULL if there is none. */
struct tsp_consumer *tsp_roster_by_id(const struct tsp_roster *roster, uint64_t id);
struct tsp_consumer *tsp_roster_by_token(const struct tsp_roster *roster, const char *token);
struct tsp_consumer *tsp_roster_by_route(const struct tsp_roster *roster, uint32_t route);

/* The counted consumer of that ring that has released least, or NULL. */
struct tsp_consumer *tsp_roster_slowest(const struct tsp_roster *roster, const struct tsp_stream *ring);

/* How many are counted in that ring. */
uint32_t tsp_roster_readers(const struct tsp_roster *roster, const struct tsp_stream *ring);

/* How many of the stream's consumers are in that state; of all streams for NULL. */
uint32_t tsp_roster_count(const struct tsp_roster *roster, const struct tsp_stream *stream,
                          enum tsp_consumer_state state);

/* Those that count as there: JOINING, READING or PARKED. */
uint32_t tsp_roster_attached(const struct tsp_roster *roster, const struct tsp_stream *stream);

/* A consumer of that name has died. */
void tsp_roster_note_crash(struct tsp_roster *roster, const char *name, uint64_t now_ns);

/* How many of that name have died in the minute that is counted now. */
uint32_t tsp_roster_crashes(const struct tsp_roster *roster, const char *name, uint64_t now_ns);

const char *tsp_consumer_state_word(enum tsp_consumer_state state);

#endif
