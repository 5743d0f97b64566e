/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtsocket: read the batches that a tsocketd on this machine prepares.
 *
 * The daemon decodes every sample once and places it in a ring in shared memory. A trainer opens one of its streams
 * with a batch size of its own and reads windows of the ring in place: no copy, no decoding, every sample of an epoch
 * exactly once, in the order of the daemon's seed.
 *
 * The whole loop:
 *
 *     struct tsocket *ts;
 *     struct tsocket_batch batch;
 *     int rc = tsocket_open("main/train", 64, NULL, &ts);
 *     if (rc != TSOCKET_OK) {
 *         fprintf(stderr, "%s\n", tsocket_last_error());
 *         return 1;
 *     }
 *     while ((rc = tsocket_next(ts, -1, &batch)) != TSOCKET_END) {
 *         if (rc == TSOCKET_EPOCH_END || rc == TSOCKET_EINTR)
 *             continue;                            // validate, checkpoint, look at a flag, ...
 *         if (rc != TSOCKET_OK)
 *             break;                               // TSOCKET_GONE: the daemon died; see tsocket_last_error()
 *         train(batch.data[0], batch.data[1], batch.count);
 *         tsocket_release(ts, &batch);
 *     }
 *     tsocket_close(ts);
 *
 * Threads. A handle may be used by one thread at a time; different handles are independent. libtsocket starts no thread
 * of its own (ZeroMQ starts its I/O thread at open). While data is there, next and release make no system call, take no
 * lock and allocate nothing, except that release hands one small message to ZeroMQ.
 *
 * fork. The child of a fork must not use the handle: every call on it answers TSOCKET_EFORK, and only tsocket_close
 * makes sense there (it frees the child's copy). The parent is not disturbed. Programs started by exec inherit nothing.
 *
 * Memory. The ring is mapped read-only: a write through batch.data is a segmentation fault in the writer, never damage
 * to another trainer's data. Where the data is on a GPU, see enum tsocket_memory and tsocket_release_after. With
 * TSOCKET_CHECK=1 in the environment, batches that change while they are held are found out, slowly.
 */
#ifndef TSOCKET_TSOCKET_H
#define TSOCKET_TSOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TSOCKET_VERSION_MAJOR 0
#define TSOCKET_VERSION_MINOR 1
#define TSOCKET_VERSION_PATCH 0

#if defined(__GNUC__)
#define TSOCKET_API __attribute__((visibility("default")))
#else
#define TSOCKET_API
#endif

/* Limits that both sides rely on. */
#define TSOCKET_FIELDS_MAX 16  /* fields per sample */
#define TSOCKET_NDIM_MAX   6   /* dimensions per field, without the batch dimension */
#define TSOCKET_NAME_MAX   64  /* bytes in the name of a daemon, stream, field or consumer, without the final 0 */
#define TSOCKET_TOKEN_MAX  128 /* characters of a token, without the final 0 */

/* Every code that a call may return, once: name, value, text. */
#define TSOCKET_ERRORS(X)                                                                                              \
    X(TSOCKET_OK, 0, "success")                                                                                        \
    X(TSOCKET_EAGAIN, -1, "nothing is ready yet")                                                                      \
    X(TSOCKET_EPOCH_END, -2, "the epoch has ended")                                                                    \
    X(TSOCKET_END, -3, "the stream has ended")                                                                         \
    X(TSOCKET_ELAPPED, -4, "the daemon has reused this batch's memory")                                                \
    X(TSOCKET_EHELD, -5, "as many batches are held as were announced at open")                                         \
    X(TSOCKET_GONE, -6, "the daemon is gone")                                                                          \
    X(TSOCKET_EREFUSED, -7, "the daemon refuses this consumer")                                                        \
    X(TSOCKET_ENOTFOUND, -8, "no such daemon, stream or field")                                                        \
    X(TSOCKET_EINVAL, -9, "invalid argument")                                                                          \
    X(TSOCKET_EFORK, -10, "this handle belongs to the parent process")                                                 \
    X(TSOCKET_EINTR, -11, "a signal arrived while waiting")                                                            \
    X(TSOCKET_ENOMEM, -12, "not enough memory")                                                                        \
    X(TSOCKET_ESYSTEM, -13, "a system call failed")                                                                    \
    X(TSOCKET_EPROTOCOL, -14, "the other side does not speak this protocol")                                           \
    X(TSOCKET_EBUSY, -15, "the name is taken by a running daemon")                                                     \
    X(TSOCKET_EBAD_SAMPLE, -16, "too many samples cannot be used")                                                     \
    X(TSOCKET_EDEVICE, -17, "a call of the GPU's driver failed")

enum tsocket_error {
#define TSOCKET_ERROR_ENUM(name, value, text) name = value,
    TSOCKET_ERRORS(TSOCKET_ERROR_ENUM)
#undef TSOCKET_ERROR_ENUM
};

enum tsocket_dtype {
    TSOCKET_UINT8 = 1,
    TSOCKET_INT32,
    TSOCKET_INT64,
    TSOCKET_FLOAT16,
    TSOCKET_BFLOAT16,
    TSOCKET_FLOAT32,
    TSOCKET_FLOAT64,
};

/* What to do with the samples at an epoch's end that do not fill a batch. */
enum tsocket_last {
    TSOCKET_LAST_KEEP = 0, /* a last, smaller batch */
    TSOCKET_LAST_DROP,     /* leave them out; a warning is logged where that leaves nothing */
    TSOCKET_LAST_PAD,      /* a full batch in private memory: the tail's samples repeated; batch.valid are real */
};

/* Where to begin when the current epoch's start is no longer in the ring. */
enum tsocket_join {
    TSOCKET_JOIN_WAIT = 0, /* at the next epoch */
    TSOCKET_JOIN_NOW,      /* in the middle: a first epoch that is partial (tsocket_epoch.received < samples) */
    /*
     * In the middle, and what lies before comes behind the epoch's end, from a side ring: every epoch is complete. The
     * two parts of the first one may each end with a smaller batch. As WAIT for the ranks of a shard, and where the
     * stream has no side ring (tsocketd --side-rings).
     */
    TSOCKET_JOIN_CATCH_UP,
};

/* What becomes of this consumer when the group has waited for it for the daemon's --max-hold, or it lags. */
enum tsocket_on_lag {
    TSOCKET_LAG_PARK = 0, /* the group goes on; when it comes back, it goes on where it was, from a side ring */
    TSOCKET_LAG_SKIP,     /* as PARK; and when it is more than max_lag samples behind, it leaves samples out */
    TSOCKET_LAG_DETACH,   /* it is detached: next answers TSOCKET_ELAPPED; it may open again with its token */
};

/* Where batch.data points. */
enum tsocket_memory {
    TSOCKET_MEMORY_HOST = 0,
    TSOCKET_MEMORY_CUDA_IPC, /* addresses of a GPU, in its primary context; writable by every consumer: do not write */
    TSOCKET_MEMORY_CUDA_VMM, /* the same, mapped read-only: a kernel that writes there breaks this process's context */
};

struct tsocket; /* one attached consumer */

struct tsocket_options {
    size_t size;                /* sizeof this struct; set by tsocket_options_init, so that it may grow */
    uint32_t hold;              /* batches that may be held at once (from the oldest one held on); default 2 */
    uint32_t shard_rank;        /* this rank of a data-parallel job, 0 <= rank < world; default 0 */
    uint32_t shard_world;       /* ranks in that job; they get disjoint windows; default 1 */
    uint64_t epochs;            /* TSOCKET_END after so many epochs of this consumer; default 0: as many as come */
    enum tsocket_last last;     /* default TSOCKET_LAST_KEEP (with shard_world > 1 short windows are padded) */
    enum tsocket_join join;     /* default TSOCKET_JOIN_CATCH_UP */
    const char *fields;         /* names wanted, separated by commas, in this order; default NULL: all */
    const char *consumer_name;  /* shown in the status table; default NULL: the program's name */
    const char *device;         /* where the data is wanted; default NULL: wherever the daemon has it; see below */
    const char *resume;         /* token to go on from, see tsocket_token; default NULL: begin with an epoch */
    int connect_timeout_ms;     /* how long open looks for the daemon; default 0: once; -1: until it is there */
    int reconnect_ms;           /* how long next waits for a daemon that has gone, to go on where it was when it is
                                   back; default 0: TSOCKET_GONE at once; -1: without limit */
    enum tsocket_on_lag on_lag; /* default TSOCKET_LAG_PARK */
    uint64_t max_lag; /* with TSOCKET_LAG_SKIP: samples between this consumer and the newest one; at least 1 */
};

/*
 * options.device. "host": in host memory. "cuda": on a GPU that this process sees; "cuda:N", "cuda:GPU-UUID": on that
 * one; NULL: as "cuda", where the daemon has its data on GPUs, else in host memory. Devices are matched by UUID:
 * ordinals differ between processes. Who is on none of the daemon's GPUs gets host memory where the daemon has a ring
 * there too (tsocketd --device cuda:0,host), with a warning, and copies for itself; else open answers TSOCKET_EREFUSED.
 * What it came to is said by tsocket_describe, and stays so.
 */

/* One field of every sample. */
struct tsocket_field {
    char name[TSOCKET_NAME_MAX + 1];
    enum tsocket_dtype dtype;
    uint32_t ndim;                    /* of one sample; the batch is dimension -1 before it; 0 is a scalar */
    uint64_t shape[TSOCKET_NDIM_MAX]; /* elements, outermost first; the memory is dense and row-major */
    uint64_t sample_bytes;            /* product of shape times the size of dtype */
};

struct tsocket_info {
    char daemon[TSOCKET_NAME_MAX + 1];
    char stream[TSOCKET_NAME_MAX + 1];
    uint32_t n_fields;
    struct tsocket_field fields[TSOCKET_FIELDS_MAX]; /* field i is batch.data[i] */
    uint32_t batch_size;
    uint64_t epoch_samples; /* samples of an epoch in which all are good; 0: the producer does not know */
    uint64_t batches;       /* per epoch for this consumer, if all samples are good; 0: not known */
    uint64_t first_batches; /* the same of its first epoch, from where it began in it: fewer than `batches`, behind a
                               token or with TSOCKET_JOIN_NOW; one more, where the two parts of a catch-up make it so */
    uint64_t epoch;         /* stream epoch in which this consumer began */
    uint64_t position;      /* stream position of its first sample (expected, where it waits for an epoch) */
    uint64_t first;         /* that sample's place within the epoch: > 0 only with TSOCKET_JOIN_NOW */
    uint64_t capacity;      /* samples in the ring */
    bool resident;          /* the whole stream stays in the ring: each epoch is a pass over it, at any time */
    bool catch_up;          /* the first epoch begins at `first`, and what lies before comes behind its end */
    enum tsocket_memory memory;
    int device;           /* the GPU's ordinal in this process; -1: host memory */
    char device_uuid[48]; /* "GPU-..."; empty: host memory */
};

/*
 * A window of the ring. data[i] holds `count` samples of field i, one behind the other. The memory is the library's: it
 * may be read until the batch is released, and is never written by this process.
 */
struct tsocket_batch {
    uint64_t epoch;     /* the stream's epoch, from 0 */
    uint64_t own_epoch; /* epochs that this consumer has begun before: 0 in its first */
    uint64_t first;     /* place of the first sample within the epoch's order */
    uint64_t position;  /* the same as stream position */
    uint32_t count;     /* samples in data */
    uint32_t valid;     /* of these, real ones; the others repeat them (TSOCKET_LAST_PAD, shards) */
    uint64_t skipped;   /* samples left out just before it (TSOCKET_LAG_SKIP) */
    const void *data[TSOCKET_FIELDS_MAX];
    uint64_t id; /* the library's */
};

struct tsocket_epoch {
    uint64_t epoch;     /* the stream's number of the epoch that ended last for this consumer */
    uint64_t own_epoch; /* the consumer's own, from 0 */
    uint64_t samples;   /* samples the epoch had */
    uint64_t received;  /* real samples this consumer was given of it */
    uint64_t skipped;   /* samples that it left out (TSOCKET_LAG_SKIP) */
};

/* Fills *options with the defaults. Always call it first, then change what is to differ. */
TSOCKET_API void tsocket_options_init(struct tsocket_options *options);

/*
 * Attaches to a daemon of this machine. `name` is "DAEMON" (its first stream) or "DAEMON/STREAM"; `batch_size` is at
 * least 1 and at most the daemon's --max-batch. `options` may be NULL for the defaults; it and its strings are copied.
 *
 * TSOCKET_OK: *ts_out is the caller's, to be given to tsocket_close. Otherwise *ts_out is left alone and
 * tsocket_last_error() has the details: TSOCKET_ENOTFOUND lists every folder that was searched; TSOCKET_EREFUSED the
 * numbers that do not fit and what to change; TSOCKET_EINVAL the argument; TSOCKET_GONE: the daemon died meanwhile;
 * TSOCKET_EPROTOCOL: another version; TSOCKET_EINTR, TSOCKET_ENOMEM, TSOCKET_ESYSTEM.
 *
 * From here on the consumer counts: the group waits for it, as long as it lives, does not pause or close, and takes no
 * longer than the daemon's --max-hold.
 */
TSOCKET_API int tsocket_open(const char *name, uint32_t batch_size, const struct tsocket_options *options,
                             struct tsocket **ts_out);

/* What the stream holds and where this consumer began. TSOCKET_OK or TSOCKET_EFORK. Does not talk to the daemon. */
TSOCKET_API int tsocket_describe(const struct tsocket *ts, struct tsocket_info *info_out);

/*
 * The next batch, waiting up to `timeout_ms` for it (0: not at all; -1: without limit).
 *
 * TSOCKET_OK         *batch_out is filled; release it later. In all other cases it is left alone.
 * TSOCKET_EAGAIN     nothing within the time. (One that attaches to a daemon that has come back, options.reconnect_ms,
 *                    may take two seconds more.)
 * TSOCKET_EINTR      a signal handler ran while waiting; call again.
 * TSOCKET_EPOCH_END  once per epoch, after its last batch; tsocket_ended_epoch() tells its length. Call again.
 * TSOCKET_END        no more epochs (of the daemon, or of options.epochs). Stays so.
 * TSOCKET_EHELD      options.hold batches are held, counted from the oldest one: release that first. Or fewer, where
 *                    one that was lost must be made again, and what is held takes the room for it: likewise.
 * TSOCKET_ELAPPED    this consumer was detached (TSOCKET_LAG_DETACH). Close; open again with the last token. Once,
 *                    too, where a batch was written over before the work behind its tsocket_release_after was done:
 *                    call again, it is given again.
 * TSOCKET_GONE       the daemon has ended before the stream did; what was ready has been delivered. Stays so. With
 *                    options.reconnect_ms only after that time without a daemon.
 * TSOCKET_EREFUSED   (reconnect_ms) the daemon that came back cannot go on from here; tsocket_last_error() says why.
 * TSOCKET_EDEVICE    work behind a tsocket_release_after has failed, or a GPU does. Stays so.
 * TSOCKET_EFORK, TSOCKET_EINVAL, TSOCKET_ESYSTEM.
 */
TSOCKET_API int tsocket_next(struct tsocket *ts, int timeout_ms, struct tsocket_batch *batch_out);

/*
 * Gives a batch back; its data must not be read any more, by anyone who got it from here. Batches may be released in
 * any order; the daemon reuses memory up to the oldest one held. Never waits.
 *
 * TSOCKET_ELAPPED: the data changed before this release, so what was computed from it is worthless. That happens to
 * batches that were held while this consumer was parked (see tsocket_on_lag). It is released, and next gives it again.
 * TSOCKET_EINVAL: not a batch held of this handle. TSOCKET_EFORK.
 */
TSOCKET_API int tsocket_release(struct tsocket *ts, const struct tsocket_batch *batch);

/*
 * Gives the batch that next gave last back unread, as if it had not: next will give it again. For who looks ahead
 * whether there is something, and of which epoch, without holding it: before a pause, or instead of one more epoch.
 * TSOCKET_EINVAL: not the last one, or not held; it stays as it is. TSOCKET_EFORK.
 */
TSOCKET_API int tsocket_put_back(struct tsocket *ts, const struct tsocket_batch *batch);

/*
 * tsocket_release behind the work that is queued on `stream` now: a CUstream or cudaStream_t of the device that the
 * data is on (NULL: its default stream). Use it where kernels or copies that read the batch may still run: the memory
 * is not reused before they have ended. Never waits: an event is recorded, and looked at in later calls of next,
 * release and flush (a next that waits looks every millisecond). Until it has passed the batch counts as held, but next
 * waits for it where release would have had to come first, and close waits for all of them. Where the data is in host
 * memory, the stream must be of the caller's current context.
 *
 * TSOCKET_OK: the batch must not be used any more. TSOCKET_EINVAL, TSOCKET_EFORK as above; TSOCKET_EDEVICE: the driver
 * refuses, and the batch is still held; TSOCKET_ENOTFOUND: there is no driver.
 */
TSOCKET_API int tsocket_release_after(struct tsocket *ts, const struct tsocket_batch *batch, void *stream);

/*
 * Copies field `field` of a batch that is held to host memory, wherever it is: count times sample_bytes. Waits for the
 * copy. TSOCKET_EINVAL, TSOCKET_EFORK; TSOCKET_EDEVICE.
 */
TSOCKET_API int tsocket_copy(const struct tsocket *ts, const struct tsocket_batch *batch, uint32_t field, void *to);

/*
 * Tells the daemon of every release at once. Small ones are saved up until they make an eighth of the ring (less in one
 * that is hardly larger than what is held), or until next has to wait. Worth calling before a long time without
 * next or release, and before the same thread waits on another handle.
 * TSOCKET_OK: all sent. TSOCKET_EAGAIN: not yet, or work behind a tsocket_release_after is not done. TSOCKET_EDEVICE,
 * TSOCKET_EFORK.
 */
TSOCKET_API int tsocket_flush(struct tsocket *ts);

/*
 * Where the next batch begins: stream epoch and place within its order. Both outputs may be NULL. TSOCKET_OK or
 * TSOCKET_EFORK.
 */
TSOCKET_API int tsocket_position(const struct tsocket *ts, uint64_t *epoch_out, uint64_t *first_out);

/*
 * The token of `batch`, which is held: whoever opens with it (options.resume) goes on exactly behind that batch, with
 * the same samples in the same order: this trainer or another one, with any batch size, on this daemon or on another
 * one with the same dataset, recipe and seed. NULL: behind the last batch that next gave. Keep it with the checkpoint
 * that has been trained up to that batch. text_out is filled on TSOCKET_OK only.
 *
 * TSOCKET_EINVAL: not held. TSOCKET_EREFUSED: the stream's producer cannot go back. TSOCKET_EFORK.
 */
TSOCKET_API int tsocket_token(const struct tsocket *ts, const struct tsocket_batch *batch,
                              char text_out[TSOCKET_TOKEN_MAX + 1]);

/*
 * For a time without next: validation, a checkpoint, a debugger. The group does not wait for this consumer until it
 * asks for a batch again, and then it goes on exactly where it was, if need be from a side ring.
 *
 * TSOCKET_EHELD: release what is held first. TSOCKET_EREFUSED: the stream has no side ring (tsocketd --side-rings).
 * TSOCKET_EAGAIN: the queue to the daemon is full. TSOCKET_GONE, TSOCKET_EFORK.
 */
TSOCKET_API int tsocket_pause(struct tsocket *ts);

/*
 * Tells the daemon that this consumer will ask for a batch soon, so that it may be there by then. next does the same by
 * itself. TSOCKET_OK, also if it was not paused; TSOCKET_EAGAIN, TSOCKET_GONE, TSOCKET_EFORK.
 */
TSOCKET_API int tsocket_resume(struct tsocket *ts);

/* The epoch of the last TSOCKET_EPOCH_END; TSOCKET_EAGAIN before the first, TSOCKET_EFORK. */
TSOCKET_API int tsocket_ended_epoch(const struct tsocket *ts, struct tsocket_epoch *epoch_out);

/* Detaches and frees the handle with everything it held. NULL is allowed. All batches of it become invalid. */
TSOCKET_API void tsocket_close(struct tsocket *ts);

/* A constant English sentence for a code of enum tsocket_error; never NULL. Any thread. */
TSOCKET_API const char *tsocket_strerror(int error);

/* The code's name without prefix, such as "GONE"; never NULL. Any thread. */
TSOCKET_API const char *tsocket_errname(int error);

/* Details of the last call that failed in this thread, never NULL; valid until the thread's next call. */
TSOCKET_API const char *tsocket_last_error(void);

/* "MAJOR.MINOR.PATCH" of the library that is running (the macros above: of the header). */
TSOCKET_API const char *tsocket_version(void);

/* Bytes of one element, or 0 for an unknown dtype; and its name in numpy's manner ("uint8"), or NULL. */
TSOCKET_API size_t tsocket_dtype_bytes(enum tsocket_dtype dtype);
TSOCKET_API const char *tsocket_dtype_name(enum tsocket_dtype dtype);

/*
 * The library is silent but for warnings and errors, which go to stderr. A sink replaces that, for the whole process;
 * NULL restores it. `level` is 'E', 'W', 'I' or 'D'. The sink may be called from any thread, ZeroMQ's excepted,
 * and must not call this library.
 */
typedef void tsocket_log_sink(void *context, char level, const char *message);
TSOCKET_API void tsocket_set_log_sink(tsocket_log_sink *sink, void *context);

#ifdef __cplusplus
}
#endif

#endif
