/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a consumer does on its GPU: one stream for copies of its own, and one event for each window that it holds, which
 * is recorded on the caller's stream when the window is released behind work that is queued there.
 *
 * Every call makes the device's primary context current and leaves it again. A handle whose data is in host memory has
 * a tsc_gpu without a device only if it needs events: they belong to the context that is the caller's current one then.
 *
 * Errors are TSOCKET_EDEVICE or TSOCKET_ENOMEM, with the driver's name for it. One thread, the handle's.
 */
#ifndef TSC_GPU_H
#define TSC_GPU_H

#include "../ipc/device.h"

struct tsc_gpu;

/* The device of that UUID (NULL: none, see above), for `windows` windows. Errors as tsi_device_open's. */
int tsc_gpu_open(const struct tsi_cu_uuid *uuid, uint32_t windows, struct tsc_gpu **gpu_out);
void tsc_gpu_close(struct tsc_gpu *gpu); /* NULL is allowed */

const struct tsi_device *tsc_gpu_device(const struct tsc_gpu *gpu); /* NULL: none */

/* Memory on the device, and back; 0 is allowed there. */
int tsc_gpu_alloc(struct tsc_gpu *gpu, uint64_t bytes, uint64_t *address_out);
void tsc_gpu_free(struct tsc_gpu *gpu, uint64_t address);

/* Copies on the own stream, which have happened when finish returns. */
int tsc_gpu_copy(struct tsc_gpu *gpu, uint64_t to, uint64_t from, uint64_t bytes);
int tsc_gpu_copy_in(struct tsc_gpu *gpu, uint64_t to, const void *from, uint64_t bytes);
int tsc_gpu_copy_out(struct tsc_gpu *gpu, void *to, uint64_t from, uint64_t bytes);
int tsc_gpu_finish(struct tsc_gpu *gpu);

/* Puts the window's event behind what is queued on `stream` now; whether it has passed; waits until it has. */
int tsc_gpu_record(struct tsc_gpu *gpu, uint32_t window, void *stream);
int tsc_gpu_passed(struct tsc_gpu *gpu, uint32_t window, bool *passed_out);
void tsc_gpu_await(struct tsc_gpu *gpu, uint32_t window);

#endif
