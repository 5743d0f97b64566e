/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions on a handle's GPU: the kernels, loaded at the first, and the tables of those that were asked for, each
 * uploaded once.
 */
#ifndef TSC_CONVERT_GPU_H
#define TSC_CONVERT_GPU_H

#include "convert_shared.h"
#include "gpu.h"

struct tsc_convert_gpu;

/* Errors are TSOCKET_EDEVICE, TSOCKET_ENOMEM. */
int tsc_convert_gpu_open(struct tsc_gpu *gpu, struct tsc_convert_gpu **convert_out);
void tsc_convert_gpu_close(struct tsc_convert_gpu *convert); /* NULL is allowed; no kernel runs any more */

/* Queues it. TSOCKET_EINVAL: more conversions than can be kept. */
int tsc_convert_gpu_run(struct tsc_convert_gpu *convert, const struct tsocket_conversion *conversion,
                        const struct tsocket_pick *pick, const struct tsc_convert_shape *shape, uint64_t from,
                        uint64_t to, void *stream);

#endif
