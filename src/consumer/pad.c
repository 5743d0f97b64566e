/* SPDX-License-Identifier: Apache-2.0 */
#include "pad.h"

#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "../ipc/error.h"

static int map(struct tsc_pad *pad)
{
    void *base = mmap(NULL, pad->bytes * pad->batches, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (base == MAP_FAILED)
        return tsi_fail_errno(TSOCKET_ENOMEM, "no memory for %u padded batches of %" PRIu64 " bytes", pad->batches,
                              pad->bytes);
    pad->base = base;
    return TSOCKET_OK;
}

int tsc_pad_reserve(struct tsc_pad *pad, const struct tsi_layout *layout, const uint32_t fields[], uint32_t n_fields,
                    uint32_t batch, uint32_t batches, struct tsc_gpu *gpu)
{
    uint64_t address = 0;
    int rc;

    *pad = (struct tsc_pad){.batches = batches, .gpu = gpu};
    for (uint32_t i = 0; i < n_fields; i++) {
        uint64_t bytes = layout->fields[fields[i]].sample_bytes * batch;

        pad->offset[i] = pad->bytes;
        pad->bytes += (bytes + TSI_FIELD_ALIGN - 1) / TSI_FIELD_ALIGN * TSI_FIELD_ALIGN;
    }
    if (gpu == NULL)
        return map(pad);
    rc = tsc_gpu_alloc(gpu, pad->bytes * batches, &address);
    pad->base = (unsigned char *)(uintptr_t)address;
    return rc;
}

void tsc_pad_free(struct tsc_pad *pad)
{
    if (pad->base == NULL)
        return;
    if (pad->gpu != NULL)
        tsc_gpu_free(pad->gpu, (uintptr_t)pad->base);
    else
        munmap(pad->base, pad->bytes * pad->batches);
    pad->base = NULL;
}

static int copy(const struct tsc_pad *pad, unsigned char *to, const void *from, uint64_t bytes)
{
    if (pad->gpu != NULL)
        return tsc_gpu_copy(pad->gpu, (uintptr_t)to, (uintptr_t)from, bytes);
    memcpy(to, from, bytes);
    return TSOCKET_OK;
}

/* The samples of a cycle lie behind one another in the ring. */
static int fill_field(const struct tsc_pad *pad, const struct tsc_ring *ring, uint32_t field, unsigned char *to,
                      const struct tsc_padding *padding)
{
    const void *from = tsi_layout_at(&ring->layout, ring->memory.base, field, padding->position);
    uint64_t sample_bytes = ring->layout.fields[field].sample_bytes;
    int rc = TSOCKET_OK;

    for (uint32_t n = 0; rc == TSOCKET_OK && n < padding->count; n += padding->cycle) {
        uint32_t rest = padding->count - n;

        rc = copy(pad, to + n * sample_bytes, from, (rest < padding->cycle ? rest : padding->cycle) * sample_bytes);
    }
    return rc;
}

int tsc_pad_fill(const struct tsc_pad *pad, const struct tsc_ring *ring, const uint32_t fields[], uint32_t n_fields,
                 const struct tsc_padding *padding, const void *data_out[])
{
    unsigned char *base = pad->base + pad->bytes * (padding->which % pad->batches);
    int rc = TSOCKET_OK;

    for (uint32_t i = 0; rc == TSOCKET_OK && i < n_fields; i++) {
        rc = fill_field(pad, ring, fields[i], base + pad->offset[i], padding);
        data_out[i] = base + pad->offset[i];
    }
    if (rc == TSOCKET_OK && pad->gpu != NULL)
        rc = tsc_gpu_finish(pad->gpu);
    return rc;
}
