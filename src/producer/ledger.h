/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ledger: a file from which it can be shown afterwards who got which samples (tsocketctl verify).
 *
 *     stream, epoch, attach, place, released, skipped, owed, again, parked, left --> memory --flush--> FILE, appended
 *
 * One thread at a time: whoever holds the producer's lock. No call waits for anything but the page cache: releases are
 * kept in memory until flush is called, which is to happen about once a second, or until there are many; those of one
 * consumer meanwhile become one record. What a token cannot make up for, who came and how long an epoch was, is written
 * at once: a daemon that is killed leaves that behind. See ../ipc/record.h for the file.
 *
 * A file that cannot be written (the disk is full) never ends the run and is never passed over in silence: it is logged
 * once, records are kept in memory as long as they fit, and what does not is counted by a record of its own, so that
 * verify will not call such a run proven.
 *
 * NULL stands for "no ledger" in every call but open: nothing happens.
 */
#ifndef TSP_LEDGER_H
#define TSP_LEDGER_H

#include <stdbool.h>
#include <stdint.h>

#include <tsocket/tsocket.h>

struct tsp_ledger;

/*
 * Opens or creates the file and begins a run in it. A record that a crash has left half written at its end is cut off.
 * TSOCKET_OK: *ledger_out is the caller's, for close. TSOCKET_EBUSY: another process writes it. TSOCKET_EINVAL: it is
 * something else than a ledger; it is left alone. TSOCKET_ESYSTEM, TSOCKET_ENOMEM. tsocket_last_error() names the file.
 */
int tsp_ledger_open(const char *path, struct tsp_ledger **ledger_out);

/* Writes what is left, onto the disk, and the end of the run. */
void tsp_ledger_close(struct tsp_ledger *ledger);

/* About once a second. */
void tsp_ledger_flush(struct tsp_ledger *ledger);

struct tsp_ledger_stream {
    const char *name;
    const char *dataset_id; /* NULL or empty: not known */
    const char *recipe_id;  /* likewise */
    uint64_t seed;
    uint64_t epoch_samples; /* 0: not known */
    bool resident;          /* its consumers' epochs are passes over one and the same, epoch 0 */
};

/* Once per stream, before anything else of it. `number` is what attach names it by. */
void tsp_ledger_stream(struct tsp_ledger *ledger, uint32_t number, const struct tsp_ledger_stream *stream);

/* The epoch has `len` samples, for good. */
void tsp_ledger_epoch(struct tsp_ledger *ledger, uint32_t stream, uint64_t epoch, uint64_t len);

struct tsp_ledger_consumer {
    uint32_t stream;
    const char *name;
    int32_t pid;
    uint32_t batch;
    uint32_t rank;
    uint32_t world;
    enum tsocket_last last;
    enum tsocket_join join;
    bool resumed; /* it came with a token: what lies before its first place it has got from an attachment before */
};

/* `consumer` is a number that no other attachment of this run has; the calls below speak of it. */
void tsp_ledger_attach(struct tsp_ledger *ledger, uint64_t consumer, const struct tsp_ledger_consumer *about);

/*
 * From here on it reads the samples [index, until) of the epoch in order, and then the next epochs from 0; `until` is
 * UINT64_MAX for the epoch's end. With ranks the windows are counted from `index`: there the next round of all begins.
 * To be called at the begin, and whenever it goes on somewhere else than where the place before led it (the second lap
 * of a first epoch that was begun in the middle: [0, floor)). Moves between rings that change nothing of this need no
 * call, and do no harm. Not on the way back to windows that were lost, nor released there: see owed.
 */
void tsp_ledger_place(struct tsp_ledger *ledger, uint64_t consumer, uint64_t epoch, uint64_t index, uint64_t until);

/*
 * It has released all of its place before `index` of that epoch. Cumulative, as RELEASE is: an epoch later than the
 * last one named means that those before are read to their ends. Nothing is released backwards.
 */
void tsp_ledger_released(struct tsp_ledger *ledger, uint64_t consumer, uint64_t epoch, uint64_t index);

/* It was moved ahead from `from` to `to`, and will not get what lies between; what it held before is still released. */
void tsp_ledger_skipped(struct tsp_ledger *ledger, uint64_t consumer, uint64_t epoch, uint64_t from, uint64_t to);

/*
 * A window that it held was lost: [from, to) of that epoch is owed to it once more; and it has got that again. What
 * place and released say is not touched by this: there it counts once, as soon as a release has passed it.
 */
void tsp_ledger_owed(struct tsp_ledger *ledger, uint64_t consumer, uint64_t epoch, uint64_t from, uint64_t to);
void tsp_ledger_again(struct tsp_ledger *ledger, uint64_t consumer, uint64_t epoch, uint64_t from, uint64_t to);

enum tsp_ledger_why {
    TSP_LEDGER_PAUSED = 1, /* it asked for it */
    TSP_LEDGER_HELD,       /* it held the group for longer than --max-hold */
    TSP_LEDGER_SIDE,       /* it reads from a side ring */
};

/* It no longer counts in the group's floor. Where it goes on, place says, if that is elsewhere. */
void tsp_ledger_parked(struct tsp_ledger *ledger, uint64_t consumer, enum tsp_ledger_why why);

enum tsp_ledger_how {
    TSP_LEDGER_LEFT = 1,
    TSP_LEDGER_DIED,
    TSP_LEDGER_EVICTED,
};

/* The attachment has ended. The last call for this consumer. */
void tsp_ledger_left(struct tsp_ledger *ledger, uint64_t consumer, enum tsp_ledger_how how);

#endif
