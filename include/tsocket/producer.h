/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine behind tsocketd, for a program that is its own producer: any pipeline fills the same ring, with the same
 * protocol and the same guarantees as tsocketd's.
 *
 *     struct tsocket_producer *p;
 *     struct tsocket_producer_options po;
 *     struct tsocket_stream_options so;
 *     tsocket_producer_options_init(&po);
 *     po.name = "main";
 *     tsocket_stream_options_init(&so);
 *     so.name = "train"; so.fields = fields; so.n_fields = 2; so.epoch_samples = 50000;
 *     rc = tsocket_producer_open(&po, &p);
 *     rc = tsocket_producer_add_stream(p, &so, NULL);
 *     rc = tsocket_producer_start(p);
 *     // in as many threads as you like:
 *     struct tsocket_claim claim;
 *     while ((rc = tsocket_producer_claim(p, -1, &claim)) == TSOCKET_OK) {
 *         make_sample(claim.epoch, claim.ordinal, claim.data[0], claim.data[1]);
 *         tsocket_producer_commit(p, &claim);
 *     }
 *     tsocket_producer_close(p);                 // after all threads have returned from claim
 *
 * The life of a slot:
 *
 *     free --claim--> being filled --commit--> ready --(head passes, in order)--> readable --released by all--> free
 *                          |
 *                          +--reject--> the sample is left out: see tsocket_on_bad
 *
 * Threads. open, add_stream, start and close belong to one thread; claim, commit, reject, end_epoch, finish, stop and
 * wait may be called from any number of threads at once. start brings up one loop thread and ZeroMQ's I/O thread. A
 * consumer (tsocket.h) in the same process works.
 *
 * fork. A producer belongs to the process that started it. In the child of a fork claim and write answer TSOCKET_END,
 * wait and finish TSOCKET_EFORK, and close does nothing. The parent is not disturbed, and the child holds nothing of
 * it.
 */
#ifndef TSOCKET_PRODUCER_H
#define TSOCKET_PRODUCER_H

#include <tsocket/tsocket.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TSOCKET_STREAMS_MAX    16
#define TSOCKET_SIDE_RINGS_MAX 16 /* of all streams together */
#define TSOCKET_STAGES_MAX     4
#define TSOCKET_NOTES_MAX      8

struct tsocket_producer;

/* What becomes of a sample that cannot be used. */
enum tsocket_on_bad {
    TSOCKET_BAD_SKIP = 0, /* left out: the epoch's last remaining sample takes its place, the epoch is one shorter */
    TSOCKET_BAD_FAIL,     /* the run ends */
    TSOCKET_BAD_MASK,     /* stays in its place with all fields as the producer left them when it rejected */
};

/* How GPU memory gets into consumers' processes. */
enum tsocket_share {
    TSOCKET_SHARE_AUTO = 0, /* as VMM where the device can, else as IPC */
    TSOCKET_SHARE_VMM,      /* by descriptors: mapped read-only, and across PID namespaces */
    TSOCKET_SHARE_IPC,      /* by CUDA IPC handles: any consumer can write to it */
    TSOCKET_SHARE_HOST,     /* not at all: the rings are in host memory, consumers copy for themselves */
};

struct tsocket_producer_options {
    size_t size;            /* set by tsocket_producer_options_init */
    const char *name;       /* [A-Za-z0-9._-], not starting with '.'; default "main" */
    uint32_t wait_for;      /* consumers of the first stream before its first epoch starts; default 0 */
    uint32_t join_grace_ms; /* how long a group's first epoch stays in the ring for those who come later; 5000 */
    uint32_t max_hold_ms;   /* a consumer that keeps the others waiting for longer is parked; 30000; 0: never */
    uint32_t side_share;    /* percent of the claims that side rings get while a group's ring has some; 25 */
    uint32_t max_crashes;   /* consumers of one name that may die within a minute; then it is refused; 20; 0: any */
    bool exit_when_idle;    /* wait() answers TSOCKET_END when the last consumer has left; default false */
    const char *ledger;     /* a file that is to record who got what, for tsocketctl verify; default NULL: none */
    const char *libraries;  /* others that the samples' bytes depend on, for provenance; copied; default NULL */
    const char *stage_names[TSOCKET_STAGES_MAX]; /* what claim.stage_ns[] count, for the status table */
    const uint32_t *allow_uids;                  /* users besides this one who may attach; copied; default none */
    uint32_t n_allow_uids;
    const uint32_t *allow_gids; /* groups likewise */
    uint32_t n_allow_gids;
};

struct tsocket_stream_options {
    size_t size;                        /* set by tsocket_stream_options_init */
    const char *name;                   /* as above; default "train" */
    const struct tsocket_field *fields; /* copied; sample_bytes is computed */
    uint32_t n_fields;
    uint64_t epoch_samples;     /* samples per epoch; 0: unknown, the producer calls tsocket_producer_end_epoch */
    uint64_t epochs;            /* 0: for ever */
    uint64_t capacity;          /* samples in the ring; default 1024 */
    uint32_t max_batch;         /* largest batch of a consumer, <= capacity; default 256 */
    enum tsocket_on_bad on_bad; /* default TSOCKET_BAD_SKIP; another one where epoch_samples is 0 */
    uint64_t max_bad;           /* rejected samples per epoch after which the run ends; default 0: no limit */
    bool null;                  /* nothing is ever claimed: positions just advance (to measure the hand-over alone) */
    bool resident;              /* made once, and all of it stays: capacity >= epoch_samples > 0, see below */
    uint64_t first_epoch;       /* the number of the first epoch; default 0 */
    /*
     * Where any sample of any epoch can be made at any time, and is always the same: 16 hexadecimal digits each that
     * stand for the data and for what is done with it. Consumers can then resume by token, and there can be side rings:
     * rings of their own for consumers that are behind the group (paused, late, resumed). Default: NULL, none.
     */
    const char *dataset_id;
    const char *recipe_id;
    uint64_t seed;
    const char *recipe;     /* what recipe_id stands for, as a line, for provenance; copied; default NULL */
    uint32_t side_rings;    /* default 0 */
    uint64_t side_capacity; /* samples in each; default 0: capacity, within 4 and 16 times max_batch */
    const char *source;     /* where the samples come from, for the status table; copied; may be NULL */
    /*
     * Where the rings are: "host", or a list of "host", "cuda", "cuda:N", "cuda:UUID" with commas between them: a ring
     * in each, with the same samples, so that every consumer can read in its own. "auto": in the first GPU and in host
     * memory, or, where the GPU does not work or has no room, in host memory alone. Claims are always written in host
     * memory; head moves when the copies have passed. Copied; default NULL: "host".
     */
    const char *device;
    enum tsocket_share share; /* default TSOCKET_SHARE_AUTO */
};

/*
 * A resident stream is filled once, with epoch 0. Its consumers pass over it as often as they like, each at its own
 * pace, beginning at any time; none waits for another. To them each pass is an epoch.
 */

/* One sample to be made. With side rings, not always in the order of an epoch, and of any epoch. */
struct tsocket_claim {
    uint32_t stream;   /* number given by add_stream */
    uint64_t epoch;    /* from 0 */
    uint64_t ordinal;  /* which sample of the epoch's order to write, 0 <= ordinal < epoch_samples */
    uint64_t position; /* where it goes, in which ring; the library's */
    uint32_t ring;
    void *data[TSOCKET_FIELDS_MAX];        /* where field i of this sample is to be written: sample_bytes each */
    uint64_t stage_ns[TSOCKET_STAGES_MAX]; /* time spent per stage, if the producer cares to say; for status */
    uint64_t begun_ns;                     /* the library's */
};

TSOCKET_API void tsocket_producer_options_init(struct tsocket_producer_options *options);
TSOCKET_API void tsocket_stream_options_init(struct tsocket_stream_options *options);

/*
 * Takes the name. TSOCKET_OK: *producer_out is the caller's until tsocket_producer_close. TSOCKET_EBUSY: a running
 * daemon has the name; tsocket_last_error() names its process. TSOCKET_EINVAL, TSOCKET_ENOMEM, TSOCKET_ESYSTEM.
 */
TSOCKET_API int tsocket_producer_open(const struct tsocket_producer_options *options,
                                      struct tsocket_producer **producer_out);

/*
 * Declares a stream and reserves its ring; the first one is what consumers get who name none. The memory is really
 * reserved, touched and counted against the cgroup's limit here, or TSOCKET_ENOMEM says what is needed and available.
 * `stream_out` (may be NULL) receives the number that claims carry. TSOCKET_EINVAL, TSOCKET_ESYSTEM; TSOCKET_ENOTFOUND:
 * options.device names one that is not there; TSOCKET_EDEVICE: it does not work, with the driver's reason.
 */
TSOCKET_API int tsocket_producer_add_stream(struct tsocket_producer *producer,
                                            const struct tsocket_stream_options *options, uint32_t *stream_out);

/* Starts to serve. TSOCKET_OK, TSOCKET_EINVAL (no stream), TSOCKET_ENOMEM, TSOCKET_ESYSTEM. */
TSOCKET_API int tsocket_producer_start(struct tsocket_producer *producer);

/*
 * The next sample to make, of whichever stream has room, in turn; waits up to `timeout_ms` (-1: without limit).
 * TSOCKET_OK: *claim_out must be given to commit or reject, by any thread. TSOCKET_EAGAIN: no room within the time.
 * TSOCKET_END: nothing will be claimed any more (all epochs made, or stopped): return from the thread. While there are
 * side rings any sample may be asked for again: END comes when wait has answered.
 */
TSOCKET_API int tsocket_producer_claim(struct tsocket_producer *producer, int timeout_ms,
                                       struct tsocket_claim *claim_out);

/* The sample is written. */
TSOCKET_API void tsocket_producer_commit(struct tsocket_producer *producer, const struct tsocket_claim *claim);

/*
 * The sample cannot be used. `kind` is a short constant word that the counts are kept by ("truncated"); `why` is one
 * line for the log that names the sample; it is copied. Under TSOCKET_BAD_MASK write what consumers shall see before
 * calling this.
 */
TSOCKET_API void tsocket_producer_reject(struct tsocket_producer *producer, const struct tsocket_claim *claim,
                                         const char *kind, const char *why);

/*
 * For a producer that has whole batches: copies the next `count` samples into the ring, in order, waiting for room up
 * to `timeout_ms`. data[i] holds field i of all of them, one behind the other, and stays the caller's. One thread per
 * stream, which claims nothing else of it.
 *
 * TSOCKET_OK: all are written. TSOCKET_EAGAIN: the time is over; TSOCKET_END: nothing will be taken any more. In each
 * case *written_out says how many were: go on with the rest. TSOCKET_EINVAL: no such stream.
 */
TSOCKET_API int tsocket_producer_write(struct tsocket_producer *producer, uint32_t stream, int timeout_ms,
                                       const void *const data[], uint64_t count, uint64_t *written_out);

/*
 * `claim` is not a sample, the epoch ends before it: where its length is unknown, or turns out shorter than was said.
 * With more than one thread, all claims of later ordinals that are still out must be given to this call as well.
 * TSOCKET_EINVAL: the stream leaves bad samples out (TSOCKET_BAD_SKIP), so that its last sample need not be the last
 * one claimed.
 */
TSOCKET_API int tsocket_producer_end_epoch(struct tsocket_producer *producer, const struct tsocket_claim *claim);

/*
 * No more epochs: the stream ends with the last sample that was committed, whatever stream_options.epochs said.
 * Consumers get the end of that sample's epoch and then TSOCKET_END; claim answers TSOCKET_END, and wait once all of it
 * has been read. TSOCKET_EINVAL: claims of it are out, or there is no such stream.
 */
TSOCKET_API int tsocket_producer_finish(struct tsocket_producer *producer, uint32_t stream);

/* The run cannot go on (the disk fails): wait() returns `error` with `why`, and consumers are told it. */
TSOCKET_API void tsocket_producer_fail(struct tsocket_producer *producer, int error, const char *why);

/*
 * Waits until the producer should end: TSOCKET_END (all epochs made and read, or idle with exit_when_idle, or somebody
 * asked it to stop, or to end with its epochs), TSOCKET_EBAD_SAMPLE or what tsocket_producer_fail said
 * (tsocket_last_error() has the reason), TSOCKET_EAGAIN after `timeout_ms`.
 */
TSOCKET_API int tsocket_producer_wait(struct tsocket_producer *producer, int timeout_ms);

/*
 * Takes max_hold_ms, join_grace_ms, side_share and max_crashes from *options, from now on and for all that are attached
 * (but not where tsocketctl set has said otherwise); the rest of it is not looked at. Any thread.
 */
TSOCKET_API void tsocket_producer_change(struct tsocket_producer *producer,
                                         const struct tsocket_producer_options *options);

/* Makes every claim and wait return TSOCKET_END. Any thread; not from a signal handler. */
TSOCKET_API void tsocket_producer_stop(struct tsocket_producer *producer);

/*
 * Keeps a number of the program's own, such as the fill of a cache, for the status: "notes": {"NAME": VALUE}. A name
 * (as above; copied) that was noted before gets the new value. TSOCKET_OK; TSOCKET_EINVAL: a bad name, or more than
 * TSOCKET_NOTES_MAX of them. Any thread.
 */
TSOCKET_API int tsocket_producer_note(struct tsocket_producer *producer, const char *name, double value);

/*
 * The status as one line of JSON, as `tsocketctl status --json` prints it. TSOCKET_OK: *json_out is the caller's, to be
 * freed by free(). TSOCKET_ENOMEM. Any thread.
 */
TSOCKET_API int tsocket_producer_status(struct tsocket_producer *producer, char **json_out);

/*
 * Tells the consumers, gives the name back and frees everything. No thread may be inside another call. Batches that
 * consumers still hold stay readable until they release them, with one exception: a consumer in this very process whose
 * data is shared by CUDA IPC uses this producer's memory, and must be closed before. NULL is allowed.
 */
TSOCKET_API void tsocket_producer_close(struct tsocket_producer *producer);

#ifdef __cplusplus
}
#endif

#endif
