/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of bench/gpu: what each does, and the memory in which it leaves what it has measured.
 *
 * CUDA does not survive a fork. The parent never calls it: each role is run in a child of its own, which starts the
 * driver. A role returns the child's exit status, after saying on stderr what went wrong.
 */
#ifndef GPU_ROLES_H
#define GPU_ROLES_H

#include <stdbool.h>
#include <stdint.h>

#include <tsocket/producer.h>

enum {
    CONSUMERS_MAX = 64,
    SAMPLES_MAX = 100000,
    WARM_UP_SAMPLES = 20, /* the first ones of a latency, not counted */
    KINDS = 5,            /* of host memory, */
    CHUNKS = 4,           /* and sizes of copies from it */
    NAME_LEN = 128,
};

struct options {
    const char *device; /* "cuda", "cuda:1" */
    enum tsocket_share share;
    uint32_t consumers[16];
    uint32_t n_consumers;
    uint32_t batch;
    uint32_t hold;
    uint32_t ring;
    uint32_t sample_bytes;
    uint32_t threads;
    uint32_t samples;
    int64_t pace_ns;
    int64_t len_ns;
    bool json;
    bool simulated;
};

/* Written by the roles, read by the parent when they have ended. */
struct shared {
    struct {
        char name[NAME_LEN];
        char uuid[NAME_LEN];
        int cuda_version; /* 12040: the driver is for CUDA 12.4 */
        bool simulated;
        bool mps;
        uint64_t free_bytes; /* with nothing but this process's context on it */
    } card;
    double copied_per_s[KINDS][CHUNKS]; /* bytes; 0: the device cannot */
    uint64_t batches[CONSUMERS_MAX];
    uint64_t free_bytes; /* on the device, in the middle of a round */
    int64_t committed_ns[SAMPLES_MAX];
    uint32_t n_delays;
    uint32_t delays_ns[SAMPLES_MAX]; /* from commit to the end of a kernel that reads the sample */
};

/* One measurement with K consumers. */
struct round {
    const struct options *options;
    struct shared *shared;
    uint32_t consumers;
    bool private; /* a producer for each consumer */
    bool kernels; /* the consumers read what they get */
    int64_t from_ns;
    char name[TSOCKET_NAME_MAX - 8]; /* of the producer; of the N-th private one with -N behind it */
};

typedef int role(const struct round *round, uint32_t number);

extern const char *const gpu_kind_names[KINDS];
extern const uint32_t gpu_chunk_bytes[CHUNKS];

role gpu_look;   /* fills shared->card */
role gpu_copy;   /* the card's own rate, from each kind of host memory */
role gpu_fill;   /* a producer of samples that are there already, as fast as they are wanted */
role gpu_read;   /* a consumer of these */
role gpu_commit; /* a producer of one sample every pace_ns */
role gpu_wait;   /* the consumer of these: a kernel on each */

#endif
