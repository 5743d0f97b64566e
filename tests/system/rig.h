/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rig that the C system tests stand on: a producer in this process, filled by threads of its own, under a runtime
 * folder of its own that must be empty again when the rig is closed.
 *
 * Sample `ordinal` of epoch e has the fields
 *     value   int64     rig_value(e, ordinal)
 *     noise   uint8[24] all bytes alike, a function of value
 * so that any batch can be checked against what its numbers promise (rig_check).
 *
 * RIG_DEVICE and RIG_SHARE in the environment say where its rings are (tsocket_stream_options.device and share: "vmm"
 * or "ipc"); batches are read there.
 */
#ifndef RIG_H
#define RIG_H

#include <sys/types.h>

#include <tsocket/producer.h>

#define RIG_NAME "rig"

struct rig_options {
    uint64_t epoch_samples; /* 0: unknown, see epoch_ends_at */
    uint64_t epochs;
    uint64_t capacity;
    uint32_t max_batch;
    uint32_t threads;  /* that fill; default 1 */
    uint32_t wait_for; /* consumers that the first epoch waits for */
    uint32_t join_grace_ms;
    bool null;
    enum tsocket_on_bad on_bad;
    uint64_t bad_every; /* > 0: every sample whose ordinal it divides is rejected */
    uint32_t side_rings;
    uint32_t max_hold_ms; /* 0: the default */
    bool resident;
    uint64_t seed;          /* of the tokens: samples do not depend on it */
    uint64_t epoch_ends_at; /* with epoch_samples 0: the ordinal before which each epoch ends */
};

struct rig;

/* Fails the test when anything is wrong. */
struct rig *rig_open(const struct rig_options *options);
void rig_close(struct rig *rig);

struct tsocket_producer *rig_producer(struct rig *rig);

/* Whether consumers in this process may read what the producer made when it is closed: not by CUDA IPC. */
bool rig_outlives_its_producer(void);

/* How often to do what host memory is to stand `rounds` times: a simulated GPU takes its time. */
int rig_rounds(int rounds);

/* Data of a batch, wherever it is; and number i of those at `data`. */
void rig_read(void *to, const void *from, size_t bytes);
int64_t rig_number(const void *data, uint32_t i);

/* For tests that bring their own producer, or need one in another process (see rig_daemon_start). */
void rig_folder_make(void);
void rig_folder_check_and_remove(void);

/*
 * A tsocketd of that name in a process of its own, for tests that fork, which a producer's process must not. `args` are
 * its arguments behind --name, up to a NULL. It is killed with the test. stop: exit status 0 within its time.
 */
pid_t rig_daemon_start(const char *const args[]);
void rig_daemon_stop(pid_t daemon);

/* Ends the process with status 77 where there is no GPU. A rig that is to be in one does so by itself. */
void rig_need_device(void);

int64_t rig_value(uint64_t epoch, uint64_t ordinal);

/* A consumer; fails the test unless it is attached (a daemon is given time to start). `options` may be NULL. */
struct tsocket *rig_attach(uint32_t batch_size, const struct tsocket_options *options);

/* next must answer OK, with the window of `epoch` that begins at `first` and holds `count` true samples. */
void rig_expect_batch(struct tsocket *ts, uint64_t epoch, uint64_t first, uint32_t count,
                      struct tsocket_batch *batch_out);

/* The same, and released at once. */
void rig_expect_and_release(struct tsocket *ts, uint64_t epoch, uint64_t first, uint32_t count);

/* next must answer EPOCH_END for an epoch of that length. */
void rig_expect_epoch_end(struct tsocket *ts, uint64_t epoch, uint64_t samples);

/* Whether every sample of the batch is what its place promises (of a rig without bad samples); and the test's end if
 * not. Only the first may be called outside the test's own thread. */
bool rig_holds(const struct tsocket_batch *batch);
void rig_check(const struct tsocket_batch *batch);

#endif
