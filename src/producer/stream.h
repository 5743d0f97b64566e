/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A stream: one order of samples, its ring, its control page and the rules by which they move.
 *
 *     floor <= released(c) <= head <= limit <= floor + capacity        for every counted consumer c
 *
 *     advance   head passes what is ready, in order; what cannot be used is decided here; what of it is where consumers
 *               read (store.h) is published
 *     turn      an epoch that is decided makes place for the next one
 *     room      floor and limit rise with the slowest consumer: just before a claim needs the room, never sooner
 *
 * A side ring is a stream of the same samples with one reader (side.h); who may read which, and from where, is decided
 * in join.h and side.h. All of it runs with the producer's lock held.
 */
#ifndef TSP_STREAM_H
#define TSP_STREAM_H

#include <tsocket/producer.h>

#include "../ipc/arena.h"
#include "../ipc/control.h"
#include "../ipc/layout.h"
#include "filler.h"
#include "ledger.h"
#include "roster.h"
#include "store.h"

#define TSP_KINDS_MAX   16
#define TSP_SOURCE_TEXT 256

struct tsp_kind_count {
    const char *kind;
    uint64_t count;
};

struct tsp_stream {
    /* constant */
    uint32_t number;
    char name[TSOCKET_NAME_MAX + 1];
    char source[TSP_SOURCE_TEXT];
    char *recipe; /* or NULL */
    struct tsocket_stream_options options;
    uint64_t join_grace_ns;
    uint32_t wait_for;   /* so many consumers must be there before it opens */
    uint64_t collect_ns; /* so long the first who comes with a token waits for others, to begin at the first place */
    struct tsi_layout layout;
    struct tsi_arena page;
    struct tsp_store store;
    struct tsi_control *control; /* in page */
    char origin[TSI_ORIGIN_MAX]; /* what tokens begin with; empty: the producer cannot go back */
    struct tsp_ledger *ledger;   /* the producer's, or NULL */
    struct tsp_stream *home;     /* of a side ring: the stream that it belongs to; else NULL */
    struct tsp_stream *sides[TSOCKET_SIDE_RINGS_MAX];
    uint32_t n_sides;

    struct tsp_filler filler;
    uint64_t first_epoch;   /* older ones cannot be in the ring */
    uint64_t cut_epochs;    /* epochs below may have been abandoned: their length is not the order's */
    uint64_t floor;         /* as published */
    uint64_t published;     /* head as published */
    bool visited;           /* somebody has been attached */
    bool open;              /* enough consumers are there for the first epoch to begin */
    bool finished;          /* the last epoch is decided */
    uint64_t keep_position; /* a group's first epoch stays in the ring */
    uint64_t keep_until_ns; /* until then; 0: not any more */
    uint64_t holder_id;     /* the consumer that the others wait for, 0: none, */
    uint64_t holder_at;     /* where it has released up to, */
    uint64_t holder_ns;     /* since when */

    /* of a side ring */
    bool assigned;
    uint64_t begun;  /* position at which it was begun last */
    uint32_t serial; /* of the assignment: its name on the wire */

    /* counts, for the status */
    uint64_t made;
    uint64_t delivered; /* real samples given to consumers that have left */
    uint64_t bad;
    uint64_t bad_in_epoch;
    struct tsp_kind_count kinds[TSP_KINDS_MAX];
    uint64_t made_at_tick;
    double samples_per_s;
};

/*
 * Checks the options, reserves ring and page, and those of the side rings. *stream_out is the caller's. Errors as
 * tsocket_producer_add_stream's.
 */
int tsp_stream_create(const struct tsocket_stream_options *options, uint32_t number, uint32_t join_grace_ms,
                      const struct tsp_store_watcher *watcher, struct tsp_stream **stream_out);
void tsp_stream_destroy(struct tsp_stream *stream); /* NULL is allowed */

/* It is about to leave the roster. */
void tsp_stream_detach(struct tsp_stream *stream, const struct tsp_consumer *consumer);

/* Where an attached consumer is: at first, where it begins, as WELCOME says it. */
void tsp_stream_describe_place(const struct tsp_stream *stream, const struct tsp_consumer *consumer,
                               struct tsi_welcome *welcome);

/*
 * Moves everything that can be moved. TSOCKET_OK, or why the run must end: TSOCKET_EBAD_SAMPLE with the reason in
 * tsocket_last_error(). *wake_out becomes true if there is more to claim than before, or never will be again.
 */
int tsp_stream_progress(struct tsp_stream *stream, const struct tsp_roster *roster, uint64_t now_ns, bool *wake_out);

/* No epoch is left, or kept, that a newcomer could read from its start. Only asked while nobody is attached. */
bool tsp_stream_is_over(const struct tsp_stream *stream);

/* The last sample that was made is the stream's last. TSOCKET_EINVAL: some are being made. */
int tsp_stream_finish(struct tsp_stream *stream);

/* What consumers see on the pages of all its rings when the lifeline ends; where it failed, with the reason. */
void tsp_stream_set_state(struct tsp_stream *stream, enum tsi_state state);
void tsp_stream_fail(struct tsp_stream *stream, const char *why);

/* The epoch that is being made is the last one. */
void tsp_stream_drain(struct tsp_stream *stream);

/* Whether what the consumer sleeps for has come. */
bool tsp_stream_want_is_met(const struct tsp_stream *stream, const struct tsp_consumer *consumer);

/* The entry of an epoch on the control page; and the oldest one that may still have one. */
struct tsi_sight tsp_stream_epoch(const struct tsp_stream *stream, uint64_t epoch);
uint64_t tsp_stream_oldest_epoch(const struct tsp_stream *stream);

/* The epoch that a position at or above the floor belongs to. */
uint64_t tsp_stream_epoch_of(const struct tsp_stream *stream, uint64_t position);

/* The length of an epoch that has lost `removed` samples. */
uint64_t tsp_stream_len(const struct tsp_stream *stream, uint64_t removed);

/*
 * The filler, stopped and with no claim out, and an idle store, begin again at `place`, whose epoch is placed at
 * `start` (see tsp_filler_begin). Nobody reads the ring.
 */
void tsp_stream_restart(struct tsp_stream *stream, const struct tsi_place *place, uint64_t start);

/* What keeps the ring from moving: a consumer, or NULL: the source, the join grace, or nobody is there. */
struct tsp_consumer *tsp_stream_held_by(const struct tsp_stream *stream, const struct tsp_roster *roster);

/* Whether it is the join grace: the slowest consumer has left the start behind that is kept for others. */
bool tsp_stream_held_by_grace(const struct tsp_stream *stream, const struct tsp_roster *roster);

#endif
