/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For tests of rings in GPUs, beside rig.h: a producer on whatever devices a test names, and a trainer that has a
 * stream and memory of its own on the first. What fails ends the test, unless it says otherwise.
 */
#ifndef GPU_RIG_H
#define GPU_RIG_H

#include <pthread.h>

#include <tsocket/producer.h>

#include "ipc/device.h"
#include "rig.h"

enum {
    PATIENCE_MS = 20000,
    EPOCH = 120, /* samples, of which there are two epochs; 50 are in the ring, 10 in a batch */
};

struct trainer {
    struct tsi_device device;
    struct tsi_cu_stream *stream;
    uint64_t scratch;
};

void trainer_open(struct trainer *trainer, uint64_t bytes);
void trainer_close(struct trainer *trainer);

struct producer {
    struct tsocket_producer *producer;
    pthread_t thread;
};

/* TSOCKET_OK, or why it does not come to be; nothing is left then. */
int producer_open(struct producer *producer, const char *device, enum tsocket_share share);
void producer_close(struct producer *producer);

/* A consumer of it that reads on `device`: tsocket_open's answer. */
int attach(const char *device, struct tsocket **ts_out);

/* Reads an epoch of it, which must be right. */
void expect_epoch(struct tsocket *ts, uint64_t epoch);

#endif
