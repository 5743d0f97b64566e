/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A GPU, as an example needs it: the dozen functions of the CUDA driver that it calls, found at run time, so that it is
 * built without the CUDA Toolkit. A trainer that is compiled with nvcc includes cuda.h or uses the runtime instead; its
 * cudaStream_t goes to tsocket_release_after as this CUstream does.
 *
 * Addresses of the device are uint64_t. Everything that fails is said on stderr.
 */
#ifndef CARD_H
#define CARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(member, exported name, parameters) */
/* clang-format off */
#define CARD_FUNCTIONS(X)                                                                                              \
    X(init, "cuInit", (unsigned flags))                                                                                \
    X(error_name, "cuGetErrorName", (int result, const char **name_out))                                               \
    X(device_get, "cuDeviceGet", (int *device_out, int ordinal))                                                       \
    X(retain, "cuDevicePrimaryCtxRetain", (void **context_out, int device))                                            \
    X(release, "cuDevicePrimaryCtxRelease_v2", (int device))                                                           \
    X(set_current, "cuCtxPushCurrent_v2", (void *context))                                                             \
    X(stream_create, "cuStreamCreate", (void **stream_out, unsigned flags))                                            \
    X(stream_destroy, "cuStreamDestroy_v2", (void *stream))                                                            \
    X(stream_wait, "cuStreamSynchronize", (void *stream))                                                              \
    X(alloc, "cuMemAlloc_v2", (uint64_t *address_out, size_t bytes))                                                   \
    X(dealloc, "cuMemFree_v2", (uint64_t address))                                                                     \
    X(fill, "cuMemsetD8Async", (uint64_t to, unsigned char value, size_t bytes, void *stream))                         \
    X(copy_in, "cuMemcpyHtoDAsync_v2", (uint64_t to, const void *host, size_t bytes, void *stream))                    \
    X(copy_out, "cuMemcpyDtoHAsync_v2", (void *host, uint64_t from, size_t bytes, void *stream))                       \
    X(copy, "cuMemcpyDtoDAsync_v2", (uint64_t to, uint64_t from, size_t bytes, void *stream))                          \
    X(module_load, "cuModuleLoadData", (void **module_out, const void *image))                                         \
    X(module_unload, "cuModuleUnload", (void *module))                                                                 \
    X(module_function, "cuModuleGetFunction", (void **function_out, void *module, const char *name))                   \
    X(launch, "cuLaunchKernel",                                                                                        \
      (void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,          \
       unsigned block_z, unsigned shared_bytes, void *stream, void **params, void **extra))
/* clang-format on */

struct card {
#define CARD_MEMBER(member, name, params) int(*member) params;
    CARD_FUNCTIONS(CARD_MEMBER)
#undef CARD_MEMBER
    int device;
    void *context; /* the primary one, in which tsocket's addresses are */
    void *stream;
    void *module;
};

/*
 * Device `ordinal` of this process, its primary context current for the calling thread from now on, with a stream and
 * the kernels of `ptx`. card_close is due in any case.
 */
bool card_open(int ordinal, const char *ptx, struct card *card);
void card_close(struct card *card);

bool card_check(const struct card *card, int result, const char *call); /* whether it is success; says if not */
#define CARD(card, call) card_check(card, (card)->call, #call)

bool card_kernel(const struct card *card, const char *name, void **kernel_out);

/* `count` threads at least; the kernel's first parameter is `count`, the others are params[1] and so on. */
bool card_run(const struct card *card, void *kernel, uint32_t count, void **params);

#endif
