/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Room for padded batches, which are copies: the ring has no samples that repeat. It lies where the ring does.
 *
 * In host memory it is only addresses until a batch is really padded; on a GPU it is reserved at open.
 */
#ifndef TSC_PAD_H
#define TSC_PAD_H

#include "../ipc/layout.h"
#include "gpu.h"
#include "ring.h"

struct tsc_pad {
    uint64_t offset[TSOCKET_FIELDS_MAX]; /* of the handle's fields in a batch */
    uint64_t bytes;                      /* of a batch */
    uint32_t batches;
    unsigned char *base; /* NULL: no room. On a GPU: an address of the device */
    struct tsc_gpu *gpu; /* whose memory it is; NULL: the host's */
};

/* For `batches` batches of `batch` samples of these fields. TSOCKET_ENOMEM, TSOCKET_EDEVICE. */
int tsc_pad_reserve(struct tsc_pad *pad, const struct tsi_layout *layout, const uint32_t fields[], uint32_t n_fields,
                    uint32_t batch, uint32_t batches, struct tsc_gpu *gpu);
void tsc_pad_free(struct tsc_pad *pad); /* all zero is allowed */

/* A padded batch, number `which`: `count` samples, of which the `cycle` in the ring from `position` on are repeated. */
struct tsc_padding {
    uint64_t which;
    uint64_t position;
    uint32_t count;
    uint32_t cycle;
};

/* Fills data_out by the handle's fields. On a GPU the copies have happened when it returns. TSOCKET_EDEVICE. */
int tsc_pad_fill(const struct tsc_pad *pad, const struct tsc_ring *ring, const uint32_t fields[], uint32_t n_fields,
                 const struct tsc_padding *padding, const void *data_out[]);

#endif
