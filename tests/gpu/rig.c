/* SPDX-License-Identifier: Apache-2.0 */
#include "rig.h"

#include <tsocket/tsocket.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels.h"

void rig_check(const struct rig *rig, int result, const char *call)
{
    if (result == TSI_CU_SUCCESS)
        return;
    fprintf(stderr, "%s: %s (%d)\n", call, rig_name_of(rig, result), result);
    exit(1);
}

void rig_observe(const char *what, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    printf("observed %s: ", what);
    vprintf(format, args);
    printf("\n");
    fflush(stdout);
    va_end(args);
}

const char *rig_name_of(const struct rig *rig, int result)
{
    const char *name = NULL;

    rig->cuda.cuGetErrorName(result, &name);
    return name != NULL ? name : "an unknown error";
}

void rig_open(struct rig *rig, int ordinal)
{
    int rc;

    rc = tsi_cuda_load(&rig->cuda);
    if (rc != TSOCKET_OK) {
        fprintf(stderr, "%s\n", tsocket_last_error());
        exit(rc == TSOCKET_ENOTFOUND ? 77 : 1);
    }
    CHECK(rig, cuDeviceGet(&rig->device, ordinal));
    CHECK(rig, cuDevicePrimaryCtxRetain(&rig->context, rig->device));
    CHECK(rig, cuCtxPushCurrent(rig->context));
    CHECK(rig, cuStreamCreate(&rig->stream, TSI_CU_STREAM_NON_BLOCKING));
    CHECK(rig, cuModuleLoadData(&rig->kernels, kernels_ptx));
}

void rig_close(struct rig *rig)
{
    CHECK(rig, cuModuleUnload(rig->kernels));
    CHECK(rig, cuStreamDestroy(rig->stream));
    CHECK(rig, cuCtxPopCurrent(NULL));
    CHECK(rig, cuDevicePrimaryCtxRelease(rig->device));
}

uint64_t rig_allocate(const struct rig *rig, size_t bytes, unsigned char value)
{
    uint64_t address;

    CHECK(rig, cuMemAlloc(&address, bytes));
    CHECK(rig, cuMemsetD8Async(address, value, bytes, rig->stream));
    CHECK(rig, cuStreamSynchronize(rig->stream));
    return address;
}

void rig_write(const struct rig *rig, uint64_t to, const void *host, size_t bytes)
{
    CHECK(rig, cuMemcpyHtoDAsync(to, host, bytes, rig->stream));
    CHECK(rig, cuStreamSynchronize(rig->stream));
}

void rig_read(const struct rig *rig, void *host, uint64_t from, size_t bytes)
{
    CHECK(rig, cuMemcpyDtoHAsync(host, from, bytes, rig->stream));
    CHECK(rig, cuStreamSynchronize(rig->stream));
}

static void launch(const struct rig *rig, const char *name, void **params)
{
    struct tsi_cu_function *function;

    CHECK(rig, cuModuleGetFunction(&function, rig->kernels, name));
    CHECK(rig, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, rig->stream, params, NULL));
}

void rig_sum(const struct rig *rig, uint64_t data, uint32_t n, uint64_t out)
{
    launch(rig, "test_sum", (void *[]){&data, &n, &out});
}

void rig_store(const struct rig *rig, uint64_t data, uint32_t value)
{
    launch(rig, "test_store", (void *[]){&data, &value});
}

void rig_map(const struct rig *rig, size_t bytes, int fd, int access, struct rig_mapping *mapping_out)
{
    struct tsi_cu_allocation_prop prop = {
        .type = TSI_CU_ALLOCATION_PINNED,
        .handle_types = TSI_CU_HANDLE_POSIX_FD,
        .location = {.type = TSI_CU_LOCATION_DEVICE, .id = rig->device},
    };
    struct tsi_cu_access wanted = {.location = prop.location, .flags = access};
    struct rig_mapping mapping = {.bytes = bytes};

    if (fd < 0)
        CHECK(rig, cuMemCreate(&mapping.handle, bytes, &prop, 0));
    else
        CHECK(rig, cuMemImportFromShareableHandle(&mapping.handle, (void *)(intptr_t)fd, TSI_CU_HANDLE_POSIX_FD));
    CHECK(rig, cuMemAddressReserve(&mapping.address, bytes, 0, 0, 0));
    CHECK(rig, cuMemMap(mapping.address, bytes, 0, mapping.handle, 0));
    CHECK(rig, cuMemSetAccess(mapping.address, bytes, &wanted, 1));
    *mapping_out = mapping;
}

void rig_unmap(const struct rig *rig, struct rig_mapping *mapping)
{
    CHECK(rig, cuMemUnmap(mapping->address, mapping->bytes));
    CHECK(rig, cuMemAddressFree(mapping->address, mapping->bytes));
    CHECK(rig, cuMemRelease(mapping->handle));
}
