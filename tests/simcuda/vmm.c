/* SPDX-License-Identifier: Apache-2.0 */
/* Virtual memory management: memory, addresses and access are things of their own, and memory travels as a descriptor.
 */
#include "sim.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool is_supported(void)
{
    return sim_attribute(TSI_CU_ATTRIBUTE_VMM) != 0;
}

static bool is_prop(const struct tsi_cu_allocation_prop *prop)
{
    return prop->type == TSI_CU_ALLOCATION_PINNED && prop->location.type == TSI_CU_LOCATION_DEVICE &&
           prop->location.id >= 0 && prop->location.id < sim.n_devices &&
           (prop->handle_types == 0 || prop->handle_types == TSI_CU_HANDLE_POSIX_FD);
}

static struct sim_physical *physical_of(uint64_t handle)
{
    return (struct sim_physical *)(uintptr_t)handle;
}

int cuMemGetAllocationGranularity(size_t *bytes_out, const struct tsi_cu_allocation_prop *prop, int option)
{
    int result = sim_enter(SIM_cuMemGetAllocationGranularity, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (!is_supported())
        return sim_leave(TSI_CU_ERROR_NOT_SUPPORTED);
    if (!is_prop(prop) || option < 0 || option > 1)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    *bytes_out = SIM_BLOCK;
    return sim_leave(TSI_CU_SUCCESS);
}

int cuMemCreate(uint64_t *handle_out, size_t bytes, const struct tsi_cu_allocation_prop *prop, unsigned long long flags)
{
    struct sim_physical *physical;
    int result = sim_enter(SIM_cuMemCreate, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (!is_supported())
        return sim_leave(TSI_CU_ERROR_NOT_SUPPORTED);
    if (!is_prop(prop) || bytes == 0 || bytes % SIM_BLOCK != 0 || flags != 0)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    physical = bytes <= sim.memory_bytes ? sim_physical_create(prop->location.id, bytes) : NULL;
    if (physical == NULL)
        return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
    physical->shareable = prop->handle_types == TSI_CU_HANDLE_POSIX_FD;
    sim.live[SIM_KIND_HANDLE]++;
    *handle_out = (uintptr_t)physical;
    return sim_leave(TSI_CU_SUCCESS);
}

int cuMemRelease(uint64_t handle)
{
    int result;

    if (!sim_enter_free(SIM_cuMemRelease, NULL, &result))
        return result;
    sim_physical_unref(physical_of(handle));
    sim.live[SIM_KIND_HANDLE]--;
    return sim_leave(result);
}

int cuMemExportToShareableHandle(void *shareable_out, uint64_t handle, int type, unsigned long long flags)
{
    int fd, result = sim_enter(SIM_cuMemExportToShareableHandle, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (type != TSI_CU_HANDLE_POSIX_FD || flags != 0 || !physical_of(handle)->shareable)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    if (sim_attribute(TSI_CU_ATTRIBUTE_POSIX_FD) == 0)
        return sim_leave(TSI_CU_ERROR_NOT_SUPPORTED);
    fd = fcntl(physical_of(handle)->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return sim_leave(TSI_CU_ERROR_OPERATING_SYSTEM);
    memcpy(shareable_out, &fd, sizeof(fd));
    return sim_leave(TSI_CU_SUCCESS);
}

/* The descriptor itself is handed over in the pointer's place; it stays the caller's. */
int cuMemImportFromShareableHandle(uint64_t *handle_out, void *shareable, int type)
{
    struct sim_physical *physical;
    int fd, result = sim_enter(SIM_cuMemImportFromShareableHandle, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (!is_supported())
        return sim_leave(TSI_CU_ERROR_NOT_SUPPORTED);
    if (type != TSI_CU_HANDLE_POSIX_FD)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    fd = fcntl((int)(intptr_t)shareable, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    physical = sim_physical_open(fd);
    if (physical == NULL)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    physical->shareable = true;
    sim.live[SIM_KIND_HANDLE]++;
    *handle_out = (uintptr_t)physical;
    return sim_leave(TSI_CU_SUCCESS);
}

int cuMemAddressReserve(uint64_t *address_out, size_t bytes, size_t align, uint64_t near, unsigned long long flags)
{
    uint64_t address;
    int result = sim_enter(SIM_cuMemAddressReserve, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (bytes == 0 || bytes % SIM_BLOCK != 0 || align > SIM_BLOCK || near != 0 || flags != 0)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    address = sim_address_take(bytes);
    if (address == 0)
        return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
    if (sim_range_add(SIM_RESERVED, address, bytes) == NULL) {
        sim_address_give(address, bytes);
        return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
    }
    sim.live[SIM_KIND_MEMORY]++;
    *address_out = address;
    return sim_leave(TSI_CU_SUCCESS);
}

/* A mapping that touches [address, address + bytes). */
static struct sim_range *mapping_in(uint64_t address, size_t bytes)
{
    struct sim_range *range = sim.ranges;

    while (range != NULL &&
           (range->kind != SIM_MAPPED || range->address >= address + bytes || address >= range->address + range->bytes))
        range = range->next;
    return range;
}

int cuMemAddressFree(uint64_t address, size_t bytes)
{
    struct sim_range *range;
    int result;

    if (!sim_enter_free(SIM_cuMemAddressFree, NULL, &result))
        return result;
    range = sim_range_at(SIM_RESERVED, address);
    if (range == NULL || range->bytes != bytes || mapping_in(address, bytes) != NULL) {
        sim_violation(SIMCUDA_DOUBLE_FREE);
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    }
    sim_address_give(address, bytes);
    sim_range_remove(range);
    sim.live[SIM_KIND_MEMORY]--;
    return sim_leave(result);
}

static bool is_reserved(uint64_t address, size_t bytes)
{
    const struct sim_range *range = sim.ranges;

    while (range != NULL &&
           (range->kind != SIM_RESERVED || address < range->address || address + bytes > range->address + range->bytes))
        range = range->next;
    return range != NULL;
}

int cuMemMap(uint64_t address, size_t bytes, size_t offset, uint64_t handle, unsigned long long flags)
{
    struct sim_range *range;
    int result = sim_enter(SIM_cuMemMap, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (offset != 0 || flags != 0 || bytes == 0 || bytes % SIM_BLOCK != 0 || bytes > physical_of(handle)->bytes ||
        !is_reserved(address, bytes) || mapping_in(address, bytes) != NULL)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    range = sim_range_add(SIM_MAPPED, address, bytes);
    if (range == NULL)
        return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
    range->physical = physical_of(handle);
    range->physical->refs++;
    sim.live[SIM_KIND_MAPPING]++;
    return sim_leave(TSI_CU_SUCCESS);
}

/* Like freeing, it waits for work that may use the memory. */
int cuMemUnmap(uint64_t address, size_t bytes)
{
    struct sim_range *range;
    int result;

    if (!sim_enter_free(SIM_cuMemUnmap, NULL, &result))
        return result;
    range = sim_range_at(SIM_MAPPED, address);
    if (range == NULL || range->bytes != bytes) {
        sim_violation(SIMCUDA_DOUBLE_FREE);
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    }
    sim_drain(&sim.contexts[range->physical->device]);
    sim_physical_unref(range->physical);
    sim_range_remove(range);
    sim.live[SIM_KIND_MAPPING]--;
    return sim_leave(result);
}

int cuMemSetAccess(uint64_t address, size_t bytes, const struct tsi_cu_access *access, size_t count)
{
    struct sim_range *range;
    int result = sim_enter(SIM_cuMemSetAccess, NULL);

    if (result != TSI_CU_SUCCESS)
        return result;
    range = sim_range_at(SIM_MAPPED, address);
    if (range == NULL || range->bytes != bytes || count != 1 || access->location.type != TSI_CU_LOCATION_DEVICE)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    if (access->location.id != range->physical->device) /* another device's access: not simulated */
        return sim_leave(TSI_CU_ERROR_NOT_SUPPORTED);
    range->access = access->flags;
    return sim_leave(TSI_CU_SUCCESS);
}
