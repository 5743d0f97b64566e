/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the CUDA driver's binary interface that tsocket uses: types, constants and structures, written down from
 * the documentation so that every build has the GPU code in it, with or without a CUDA Toolkit. tests/gpu/test_abi.c
 * compares each of them with cuda.h wherever that is installed.
 *
 * A CUresult and a CUdevice are int, a CUdeviceptr is uint64_t, flags are unsigned.
 */
#ifndef TSI_CUDA_ABI_H
#define TSI_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

/* Opaque objects of the driver. */
struct tsi_cu_context;
struct tsi_cu_stream;
struct tsi_cu_event;
struct tsi_cu_module;
struct tsi_cu_function;

struct tsi_cu_uuid {
    unsigned char bytes[16];
};

#define TSI_CU_IPC_HANDLE_BYTES 64

struct tsi_cu_ipc_handle {
    char reserved[TSI_CU_IPC_HANDLE_BYTES];
};

struct tsi_cu_location {
    int type;
    int id;
};

struct tsi_cu_allocation_prop {
    int type;
    int handle_types;
    struct tsi_cu_location location;
    void *windows;
    struct {
        unsigned char compression;
        unsigned char rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
};

struct tsi_cu_access {
    struct tsi_cu_location location;
    int flags;
};

/* X(name, value): results that our code, or the simulated driver, tells apart. */
#define TSI_CU_RESULTS(X)                                                                                              \
    X(SUCCESS, 0)                                                                                                      \
    X(ERROR_INVALID_VALUE, 1)                                                                                          \
    X(ERROR_OUT_OF_MEMORY, 2)                                                                                          \
    X(ERROR_NOT_INITIALIZED, 3)                                                                                        \
    X(ERROR_DEINITIALIZED, 4)                                                                                          \
    X(ERROR_NO_DEVICE, 100)                                                                                            \
    X(ERROR_INVALID_DEVICE, 101)                                                                                       \
    X(ERROR_INVALID_IMAGE, 200)                                                                                        \
    X(ERROR_INVALID_CONTEXT, 201)                                                                                      \
    X(ERROR_MAP_FAILED, 205)                                                                                           \
    X(ERROR_ECC_UNCORRECTABLE, 214)                                                                                    \
    X(ERROR_OPERATING_SYSTEM, 304)                                                                                     \
    X(ERROR_INVALID_HANDLE, 400)                                                                                       \
    X(ERROR_NOT_FOUND, 500)                                                                                            \
    X(ERROR_NOT_READY, 600)                                                                                            \
    X(ERROR_ILLEGAL_ADDRESS, 700)                                                                                      \
    X(ERROR_CONTEXT_IS_DESTROYED, 709)                                                                                 \
    X(ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                                                                       \
    X(ERROR_HOST_MEMORY_NOT_REGISTERED, 713)                                                                           \
    X(ERROR_LAUNCH_FAILED, 719)                                                                                        \
    X(ERROR_NOT_SUPPORTED, 801)                                                                                        \
    X(ERROR_UNKNOWN, 999)

enum tsi_cu_result {
#define TSI_CU_RESULT(name, value) TSI_CU_##name = value,
    TSI_CU_RESULTS(TSI_CU_RESULT)
#undef TSI_CU_RESULT
};

enum tsi_cu_attribute {
    TSI_CU_ATTRIBUTE_INTEGRATED = 18,
    TSI_CU_ATTRIBUTE_ASYNC_ENGINES = 40,
    TSI_CU_ATTRIBUTE_CAPABILITY_MAJOR = 75,
    TSI_CU_ATTRIBUTE_CAPABILITY_MINOR = 76,
    TSI_CU_ATTRIBUTE_VMM = 102,
    TSI_CU_ATTRIBUTE_POSIX_FD = 103,
    TSI_CU_ATTRIBUTE_READ_ONLY_HOST = 113,
    TSI_CU_ATTRIBUTE_IPC_EVENT = 125,
    TSI_CU_ATTRIBUTE_MPS = 133,
    TSI_CU_ATTRIBUTE_HOST_NUMA = 134,
};

enum tsi_cu_flag {
    TSI_CU_STREAM_NON_BLOCKING = 1,
    TSI_CU_EVENT_BLOCKING_SYNC = 1,
    TSI_CU_EVENT_DISABLE_TIMING = 2,
    TSI_CU_EVENT_INTERPROCESS = 4,
    TSI_CU_HOST_PORTABLE = 1,
    TSI_CU_HOST_READ_ONLY = 8,
    TSI_CU_HOST_ALLOC_WRITE_COMBINED = 4,
    TSI_CU_IPC_LAZY_PEER = 1,
    TSI_CU_ALLOCATION_PINNED = 1,
    TSI_CU_HANDLE_POSIX_FD = 1,
    TSI_CU_LOCATION_DEVICE = 1,
    TSI_CU_ACCESS_READ = 1,
    TSI_CU_ACCESS_READ_WRITE = 3,
    TSI_CU_GRANULARITY_MINIMUM = 0,
};

#endif
