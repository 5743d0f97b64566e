/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the driver share: a device's context, made current, a stream, and checked calls. */
#ifndef TEST_GPU_RIG_H
#define TEST_GPU_RIG_H

#include <stddef.h>
#include <stdint.h>

#include "ipc/cuda_api.h"

struct rig {
    struct tsi_cuda cuda;
    int device;
    struct tsi_cu_context *context;
    struct tsi_cu_stream *stream;
    struct tsi_cu_module *kernels;
};

/* Ends the process, naming the call and the driver's error, unless it succeeds. */
#define CHECK(rig, call) rig_check(rig, (rig)->cuda.call, #call)
void rig_check(const struct rig *rig, int result, const char *call);

/* Ends the process with status 77 where there is no driver. */
void rig_open(struct rig *rig, int ordinal);
void rig_close(struct rig *rig);

/* Memory of the device that holds `value` everywhere. */
uint64_t rig_allocate(const struct rig *rig, size_t bytes, unsigned char value);

/* Copies that have happened when the call returns. */
void rig_write(const struct rig *rig, uint64_t to, const void *host, size_t bytes);
void rig_read(const struct rig *rig, void *host, uint64_t from, size_t bytes);

/* For the report: what the driver does where nothing of ours depends on it. */
void rig_observe(const char *what, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *rig_name_of(const struct rig *rig, int result);

/* A kernel of kernels.cu, started on the rig's stream. */
void rig_sum(const struct rig *rig, uint64_t data, uint32_t n, uint64_t out);
void rig_store(const struct rig *rig, uint64_t data, uint32_t value);

#define RIG_BLOCK ((size_t)2 << 20) /* memory is shared in multiples of it */

/* Shareable memory of virtual memory management, made here (fd -1) or imported, mapped with `access`. */
struct rig_mapping {
    uint64_t handle;
    uint64_t address;
    size_t bytes;
};
void rig_map(const struct rig *rig, size_t bytes, int fd, int access, struct rig_mapping *mapping_out);
void rig_unmap(const struct rig *rig, struct rig_mapping *mapping);

#endif
