/* SPDX-License-Identifier: Apache-2.0 */
/*
 * src/ipc/cuda_abi.h against the CUDA Toolkit's own header: compiled wherever that is installed. That it compiles is
 * most of the test; run, it looks up every function of the table in a driver library.
 */
#include <assert.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#include <cuda.h>

#include "ipc/cuda_api.h"

#define SAME_SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs), #theirs " has another size")
#define SAME_PLACE(ours, a, theirs, b)                                                                                 \
    static_assert(offsetof(ours, a) == offsetof(theirs, b), #b " of " #theirs " is elsewhere")
#define SAME_VALUE(ours, theirs) static_assert((int)(ours) == (int)(theirs), #theirs " has another value")

SAME_SIZE(int, CUresult);
SAME_SIZE(int, CUdevice);
SAME_SIZE(uint64_t, CUdeviceptr);
SAME_SIZE(uint64_t, CUmemGenericAllocationHandle);
SAME_SIZE(struct tsi_cu_uuid, CUuuid);
SAME_SIZE(struct tsi_cu_ipc_handle, CUipcMemHandle);
SAME_SIZE(struct tsi_cu_ipc_handle, CUipcEventHandle);
SAME_SIZE(struct tsi_cu_location, CUmemLocation);
SAME_PLACE(struct tsi_cu_location, type, CUmemLocation, type);
SAME_PLACE(struct tsi_cu_location, id, CUmemLocation, id);
SAME_SIZE(struct tsi_cu_access, CUmemAccessDesc);
SAME_PLACE(struct tsi_cu_access, location, CUmemAccessDesc, location);
SAME_PLACE(struct tsi_cu_access, flags, CUmemAccessDesc, flags);
SAME_SIZE(struct tsi_cu_allocation_prop, CUmemAllocationProp);
SAME_PLACE(struct tsi_cu_allocation_prop, type, CUmemAllocationProp, type);
SAME_PLACE(struct tsi_cu_allocation_prop, handle_types, CUmemAllocationProp, requestedHandleTypes);
SAME_PLACE(struct tsi_cu_allocation_prop, location, CUmemAllocationProp, location);
SAME_PLACE(struct tsi_cu_allocation_prop, windows, CUmemAllocationProp, win32HandleMetaData);
SAME_PLACE(struct tsi_cu_allocation_prop, flags.rdma, CUmemAllocationProp, allocFlags.gpuDirectRDMACapable);
SAME_PLACE(struct tsi_cu_allocation_prop, flags.usage, CUmemAllocationProp, allocFlags.usage);

#define RESULT(name, value) SAME_VALUE(TSI_CU_##name, CUDA_##name);
TSI_CU_RESULTS(RESULT)

SAME_VALUE(TSI_CU_ATTRIBUTE_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED);
SAME_VALUE(TSI_CU_ATTRIBUTE_ASYNC_ENGINES, CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT);
SAME_VALUE(TSI_CU_ATTRIBUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(TSI_CU_ATTRIBUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(TSI_CU_ATTRIBUTE_VMM, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
SAME_VALUE(TSI_CU_ATTRIBUTE_POSIX_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
SAME_VALUE(TSI_CU_ATTRIBUTE_READ_ONLY_HOST, CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED);
SAME_VALUE(TSI_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME_VALUE(TSI_CU_EVENT_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC);
SAME_VALUE(TSI_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
SAME_VALUE(TSI_CU_EVENT_INTERPROCESS, CU_EVENT_INTERPROCESS);
SAME_VALUE(TSI_CU_HOST_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
SAME_VALUE(TSI_CU_HOST_ALLOC_WRITE_COMBINED, CU_MEMHOSTALLOC_WRITECOMBINED);
SAME_VALUE(TSI_CU_IPC_LAZY_PEER, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
SAME_VALUE(TSI_CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME_VALUE(TSI_CU_HANDLE_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
SAME_VALUE(TSI_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME_VALUE(TSI_CU_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ);
SAME_VALUE(TSI_CU_ACCESS_READ_WRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
SAME_VALUE(TSI_CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
#if CUDA_VERSION >= 12000
SAME_VALUE(TSI_CU_HOST_READ_ONLY, CU_MEMHOSTREGISTER_READ_ONLY);
SAME_VALUE(TSI_CU_ATTRIBUTE_IPC_EVENT, CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED);
SAME_VALUE(TSI_CU_ATTRIBUTE_MPS, CU_DEVICE_ATTRIBUTE_MPS_ENABLED);
SAME_VALUE(TSI_CU_ATTRIBUTE_HOST_NUMA, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
#endif

int main(int argc, char **argv)
{
    static const char *const symbols[] = {
#define SYMBOL(name, suffix, need, params) #name #suffix,
        TSI_CUDA_FUNCTIONS(SYMBOL)
#undef SYMBOL
    };
    void *library = argc > 1 ? dlopen(argv[1], RTLD_LAZY) : NULL;
    int missing = 0;

    for (size_t i = 0; library != NULL && i < sizeof(symbols) / sizeof(symbols[0]); i++) {
        if (dlsym(library, symbols[i]) == NULL) {
            fprintf(stderr, "%s has no %s\n", argv[1], symbols[i]);
            missing++;
        }
    }
    return missing > 0;
}
