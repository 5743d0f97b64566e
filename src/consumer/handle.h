/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of a handle: one attached consumer and its place in the stream.
 *
 *     open.c       makes and ends it
 *     consumer.c   walks, window by window: next
 *     release.c    gives windows back, at once or behind work of a GPU
 *     move.c       goes elsewhere: to a side ring and back, to a daemon that has come back; pauses; tokens
 *
 * With a shard, rank r of W reads the windows [start + begin + (k W + r) b, + b) for k = 0, 1, ... of every epoch;
 * alone it is the same with W = 1. Used by one thread at a time, the caller's.
 */
#ifndef TSC_HANDLE_H
#define TSC_HANDLE_H

#include <tsocket/tsocket.h>

#include "../ipc/control.h"
#include "../ipc/fork.h"
#include "attach.h"
#include "convert_gpu.h"
#include "gpu.h"
#include "held.h"
#include "pad.h"
#include "witness.h"

struct tsocket {
    struct tsc_link link;
    struct tsi_welcome welcome;
    struct tsi_fork_guard guard;
    bool forked;            /* this is the child's copy */
    struct tsc_ring *rings; /* all that are mapped */
    struct tsc_ring *group; /* of these, the group's ring, */
    struct tsc_ring *ring;  /* and the one that is read */

    /* what was asked for; constant */
    struct tsi_hello hello;
    uint32_t batch;
    uint32_t rank;
    uint32_t world;
    uint64_t epochs; /* 0: no limit */
    enum tsocket_last last;
    int reconnect_ms;
    uint64_t first_batches; /* see tsocket_info */
    uint32_t n_fields;
    uint32_t fields[TSOCKET_FIELDS_MAX]; /* batch.data[i] is field fields[i] of the layout */
    enum tsi_arena_kind kind;            /* of the memory */
    struct tsc_evidence *evidence;       /* see witness.h; NULL unless it was asked for */
    struct tsc_pad pad;
    struct tsc_convert_gpu *convert; /* NULL until it is needed */
    struct tsc_gpu *gpu;             /* of the data; NULL: it is in host memory, and no event has been needed */

    /* where it is */
    struct tsc_walk walk;
    uint64_t start; /* position of the epoch's first sample in the ring; only once `placed` */
    bool placed;
    bool as_given;              /* nothing has been found anew in the ring since the newest window was given */
    uint64_t received;          /* real samples, this epoch */
    uint64_t received_all;      /* real samples since open */
    uint64_t skipped;           /* samples left out, this epoch */
    uint64_t skipped_now;       /* since the last window */
    struct tsocket_epoch ended; /* the last one, if walk.own_epoch > 0 */
    struct tsc_held held;

    /* windows that were lost while it was parked, and are given again before anything else: in order, at most `hold` */
    struct tsc_window *lost;
    uint32_t n_lost;
    struct tsi_hot *unsaid; /* about these, and those that have been given again: found no room on the lifeline yet */
    uint32_t n_unsaid;      /* at most 2 * hold: nothing is given again before it is said to be lost */
    bool detour;            /* it is at one of these, */
    struct tsc_walk ahead;  /* and goes on here behind them */

    /* what the daemon knows */
    uint64_t save_up;     /* so many released samples need not be told yet */
    uint64_t max_lag;     /* beyond it samples are left out; 0: no limit */
    uint64_t head_seen;   /* as of the last look, */
    uint64_t len_seen;    /* and the length of this epoch; 0 before its first */
    uint64_t released;    /* cumulative position to be told to it */
    bool release_due;     /* `released` is not told yet: the queue was full */
    uint64_t asked_epoch; /* the WANT that waits for its answer, */
    uint64_t asked_index; /* or 0 */
    bool must_ask;        /* what is to be read next is not known to be in the ring */
    bool asked_place;     /* a PLACE waits for its answer, */
    uint64_t said;        /* which has this number */
    bool paused;
    bool gone;        /* the lifeline has ended, */
    uint64_t gone_ns; /* seen then; 0: not */
    bool emptied;     /* nothing of its rings will be given any more: what is not held may be unmapped */
    bool lapsed;      /* a window was written over before the work behind it was done: next says so once */
    int refused;      /* for good: the code and the reason */
    char reason[TSI_REASON_MAX];
};

/* From here on a child of a fork closes the lifeline. TSOCKET_OK or TSOCKET_ENOMEM. */
int tsc_handle_guard(struct tsocket *ts);

/* TSOCKET_EFORK, and says so, where the handle belongs to the parent process. */
int tsc_handle_check(const struct tsocket *ts);

/* Where the next window of this rank begins, counted from the epoch's start; the same for any walk. */
uint64_t tsc_handle_next_index(const struct tsocket *ts);
uint64_t tsc_handle_index(const struct tsocket *ts, const struct tsc_walk *walk);

/* Windows that each rank gets of `samples` samples. */
uint64_t tsc_handle_windows(const struct tsocket *ts, uint64_t samples);

/* --- consumer.c */

/* Sends a hot message about the ring that is read. TSOCKET_EAGAIN: the queue is full. */
int tsc_handle_send(struct tsocket *ts, enum tsi_kind kind, uint64_t a, uint64_t b);

/* Tells the daemon how far nothing is held: always, or (not `urgent`) only where it is worth a message. */
void tsc_handle_tell_release(struct tsocket *ts, bool urgent);

/* Data of a batch into host memory, wherever it is. TSOCKET_EDEVICE. */
int tsc_handle_read(const struct tsocket *ts, void *to, const void *from, uint64_t bytes);

/* --- release.c */

/* Gives back what has been released behind work that is done by now. */
void tsc_release_progress(struct tsocket *ts);

/* Waits until all such work is done, and forgets the windows. */
void tsc_release_await(struct tsocket *ts);

/* --- move.c */

/* Whether the consumer must be told where to read before it takes another window. */
bool tsc_move_is_due(const struct tsocket *ts);

/* What PASSED is to say when it leaves. False: nothing. */
bool tsc_move_passed(const struct tsocket *ts, struct tsi_hot *hot_out);

/* Says where it stands; once, until the answer has come. Returns whether the daemon will hear of it. */
bool tsc_move_ask(struct tsocket *ts);

/* A cold message has come. TSOCKET_OK; TSOCKET_EPROTOCOL and what mapping a ring may answer. */
int tsc_move_hear(struct tsocket *ts, const char *text, size_t len);

/* Goes on at another place, as soon as the daemon has said where that is. */
void tsc_move_to(struct tsocket *ts, const struct tsc_walk *walk);

/* Where the next window is: the first of those that were lost, or where it goes on. */
const struct tsc_walk *tsc_move_next(const struct tsocket *ts);

/* A window was lost: it will be given again. */
void tsc_move_note_lost(struct tsocket *ts, const struct tsc_window *window);

/* A window that was lost before has been given back whole. */
void tsc_move_note_again(struct tsocket *ts, const struct tsc_window *window);

/* What the daemon does not know of these yet it is told, as far as there is room. */
void tsc_move_say_lost(struct tsocket *ts);

/* Sources of which nothing is held any more are given up. */
void tsc_move_leave_unused(struct tsocket *ts);

/* The daemon is gone or going, and its memory with it, but for what this consumer has mapped: that is given back where
 * nothing of it is held, and when all is, it hangs up. */
void tsc_move_unmap_unused(struct tsocket *ts);

/*
 * The daemon is gone: waits for its return, until the deadline. TSOCKET_OK: it is back, and this consumer is where it
 * was. TSOCKET_EAGAIN: the time is over. TSOCKET_GONE, TSOCKET_EREFUSED, ...: for good.
 */
int tsc_move_come_back(struct tsocket *ts, uint64_t deadline_ns);

/* As many released samples need not be told at once. */
uint64_t tsc_handle_save_up(const struct tsocket *ts);

#endif
