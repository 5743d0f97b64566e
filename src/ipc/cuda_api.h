/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The CUDA driver, found at run time: one table of its functions, filled by dlopen("libcuda.so.1"). So one binary runs
 * with and without a GPU, and a test can put another driver in its place (TSOCKET_LIBCUDA names the file).
 *
 *     struct tsi_cuda cuda;
 *     rc = tsi_cuda_load(&cuda);                 why not: tsocket_last_error(), one sentence
 *     result = cuda.cuMemAlloc(&address, bytes);
 *     if (result != TSI_CU_SUCCESS)
 *         return tsi_cuda_fail(&cuda, result, "cuMemAlloc of %" PRIu64 " bytes", bytes);
 *
 * The driver is never unloaded: threads of its own run in it. Load it after the last fork of a program that goes on in
 * the child; a driver that was started before the fork answers NOT_INITIALIZED there. The table may be copied, and used
 * by any thread.
 */
#ifndef TSI_CUDA_API_H
#define TSI_CUDA_API_H

#include <stdbool.h>

#include "cuda_abi.h"

/*
 * X(name, suffix of the exported name, need, parameters). The suffix is the version of the function whose parameters
 * these are. Some are called by tests and benchmarks alone. A driver that lacks a REQUIRED one is refused; one that
 * lacks an OPTIONAL one has NULL there: see tsi_cuda_has_vmm.
 */
/* the formatter takes the pointers for products */
/* clang-format off */
#define TSI_CUDA_FUNCTIONS(X)                                                                                          \
    X(cuInit, , REQUIRED, (unsigned flags))                                                                            \
    X(cuDriverGetVersion, , REQUIRED, (int *version_out))                                                              \
    X(cuGetErrorName, , REQUIRED, (int result, const char **name_out))                                                 \
    X(cuDeviceGetCount, , REQUIRED, (int *count_out))                                                                  \
    X(cuDeviceGet, , REQUIRED, (int *device_out, int ordinal))                                                         \
    X(cuDeviceGetName, , REQUIRED, (char *name_out, int len, int device))                                              \
    X(cuDeviceGetUuid, _v2, REQUIRED, (struct tsi_cu_uuid *uuid_out, int device))                                      \
    X(cuDeviceGetAttribute, , REQUIRED, (int *value_out, int attribute, int device))                                   \
    X(cuDeviceCanAccessPeer, , REQUIRED, (int *can_out, int device, int peer))                                         \
    X(cuDevicePrimaryCtxRetain, , REQUIRED, (struct tsi_cu_context **context_out, int device))                         \
    X(cuDevicePrimaryCtxRelease, _v2, REQUIRED, (int device))                                                          \
    X(cuCtxPushCurrent, _v2, REQUIRED, (struct tsi_cu_context *context))                                               \
    X(cuCtxPopCurrent, _v2, REQUIRED, (struct tsi_cu_context **context_out))                                           \
    X(cuMemGetInfo, _v2, REQUIRED, (size_t *free_out, size_t *total_out))                                              \
    X(cuMemAlloc, _v2, REQUIRED, (uint64_t *address_out, size_t bytes))                                                \
    X(cuMemFree, _v2, REQUIRED, (uint64_t address))                                                                    \
    X(cuMemHostAlloc, , REQUIRED, (void **host_out, size_t bytes, unsigned flags))                                     \
    X(cuMemFreeHost, , REQUIRED, (void *host))                                                                         \
    X(cuMemHostRegister, _v2, REQUIRED, (void *host, size_t bytes, unsigned flags))                                    \
    X(cuMemHostUnregister, , REQUIRED, (void *host))                                                                   \
    X(cuMemcpyHtoDAsync, _v2, REQUIRED, (uint64_t to, const void *host, size_t bytes, struct tsi_cu_stream *stream))   \
    X(cuMemcpyDtoHAsync, _v2, REQUIRED, (void *host, uint64_t from, size_t bytes, struct tsi_cu_stream *stream))       \
    X(cuMemcpyDtoDAsync, _v2, REQUIRED, (uint64_t to, uint64_t from, size_t bytes, struct tsi_cu_stream *stream))      \
    X(cuMemsetD8Async, , REQUIRED, (uint64_t to, unsigned char value, size_t bytes, struct tsi_cu_stream *stream))     \
    X(cuStreamCreate, , REQUIRED, (struct tsi_cu_stream **stream_out, unsigned flags))                                 \
    X(cuStreamDestroy, _v2, REQUIRED, (struct tsi_cu_stream *stream))                                                  \
    X(cuStreamSynchronize, , REQUIRED, (struct tsi_cu_stream *stream))                                                 \
    X(cuStreamWaitEvent, , REQUIRED, (struct tsi_cu_stream *stream, struct tsi_cu_event *event, unsigned flags))       \
    X(cuEventCreate, , REQUIRED, (struct tsi_cu_event **event_out, unsigned flags))                                    \
    X(cuEventRecord, , REQUIRED, (struct tsi_cu_event *event, struct tsi_cu_stream *stream))                           \
    X(cuEventQuery, , REQUIRED, (struct tsi_cu_event *event))                                                          \
    X(cuEventSynchronize, , REQUIRED, (struct tsi_cu_event *event))                                                    \
    X(cuEventDestroy, _v2, REQUIRED, (struct tsi_cu_event *event))                                                     \
    X(cuIpcGetMemHandle, , REQUIRED, (struct tsi_cu_ipc_handle *handle_out, uint64_t address))                         \
    X(cuIpcGetEventHandle, , REQUIRED, (struct tsi_cu_ipc_handle *handle_out, struct tsi_cu_event *event))             \
    X(cuIpcOpenEventHandle, , REQUIRED, (struct tsi_cu_event **event_out, struct tsi_cu_ipc_handle handle))            \
    X(cuIpcOpenMemHandle, _v2, REQUIRED, (uint64_t *address_out, struct tsi_cu_ipc_handle handle, unsigned flags))     \
    X(cuIpcCloseMemHandle, , REQUIRED, (uint64_t address))                                                             \
    X(cuMemGetAllocationGranularity, , OPTIONAL,                                                                       \
      (size_t *bytes_out, const struct tsi_cu_allocation_prop *prop, int option))                                      \
    X(cuMemCreate, , OPTIONAL,                                                                                         \
      (uint64_t *handle_out, size_t bytes, const struct tsi_cu_allocation_prop *prop, unsigned long long flags))       \
    X(cuMemRelease, , OPTIONAL, (uint64_t handle))                                                                     \
    X(cuMemExportToShareableHandle, , OPTIONAL,                                                                        \
      (void *shareable_out, uint64_t handle, int type, unsigned long long flags))                                      \
    X(cuMemImportFromShareableHandle, , OPTIONAL, (uint64_t *handle_out, void *shareable, int type))                   \
    X(cuMemAddressReserve, , OPTIONAL,                                                                                 \
      (uint64_t *address_out, size_t bytes, size_t align, uint64_t near, unsigned long long flags))                    \
    X(cuMemAddressFree, , OPTIONAL, (uint64_t address, size_t bytes))                                                  \
    X(cuMemMap, , OPTIONAL,                                                                                            \
      (uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags))                      \
    X(cuMemUnmap, , OPTIONAL, (uint64_t address, size_t bytes))                                                        \
    X(cuMemSetAccess, , OPTIONAL, (uint64_t address, size_t bytes, const struct tsi_cu_access *access, size_t count))  \
    X(cuModuleLoadData, , REQUIRED, (struct tsi_cu_module **module_out, const void *image))                            \
    X(cuModuleUnload, , REQUIRED, (struct tsi_cu_module *module))                                                      \
    X(cuModuleGetFunction, , REQUIRED,                                                                                 \
      (struct tsi_cu_function **function_out, struct tsi_cu_module *module, const char *name))                         \
    X(cuLaunchKernel, , REQUIRED,                                                                                      \
      (struct tsi_cu_function *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,          \
       unsigned block_y, unsigned block_z, unsigned shared_bytes, struct tsi_cu_stream *stream, void **params,         \
       void **extra))
/* clang-format on */

struct tsi_cuda {
#define TSI_CUDA_MEMBER(name, suffix, need, params) int(*name) params;
    TSI_CUDA_FUNCTIONS(TSI_CUDA_MEMBER)
#undef TSI_CUDA_MEMBER
};

/*
 * Finds the driver and starts it. TSOCKET_ENOTFOUND: there is none, or no device that it can use; TSOCKET_EDEVICE: it
 * does not work. The reason is in tsocket_last_error().
 */
int tsi_cuda_load(struct tsi_cuda *cuda_out);

/* Whether the driver has all functions of virtual memory management. */
bool tsi_cuda_has_vmm(const struct tsi_cuda *cuda);

/*
 * Says what failed, with the driver's name and number of `result` behind it. Returns TSOCKET_ENOMEM where it means that
 * the device's memory is used up, else TSOCKET_EDEVICE.
 */
int tsi_cuda_fail(const struct tsi_cuda *cuda, int result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
