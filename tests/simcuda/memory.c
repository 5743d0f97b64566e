/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses and what lies behind them; allocation; registered host memory. */
#include "sim.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SMALL = 512, /* small allocations are multiples of it */
};

/* --- physical memory */

/* Maps what fd holds and makes it known; fd is the new piece's, or closed. */
static struct sim_physical *adopt(int device, int fd, size_t bytes)
{
    struct sim_physical *physical = calloc(1, sizeof(*physical));

    if (physical == NULL)
        goto close_fd;
    physical->data = mmap(NULL, bytes + SIM_TRAILER, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (physical->data == MAP_FAILED)
        goto free_physical;
    physical->refs = 1;
    physical->device = device;
    physical->fd = fd;
    physical->bytes = bytes;
    physical->shared = (struct sim_shared *)(void *)(physical->data + bytes);
    return physical;
free_physical:
    free(physical);
close_fd:
    close(fd);
    return NULL;
}

struct sim_physical *sim_physical_create(int device, size_t bytes)
{
    struct sim_physical *physical;
    int fd;

    if (bytes > sim.memory_bytes - sim.used_bytes[device])
        return NULL;
    fd = memfd_create("simcuda", MFD_CLOEXEC);
    if (fd < 0)
        return NULL;
    if (ftruncate(fd, (off_t)(bytes + SIM_TRAILER)) != 0) {
        close(fd);
        return NULL;
    }
    physical = adopt(device, fd, bytes);
    if (physical == NULL)
        return NULL;
    physical->shared->magic = SIM_SHARED_MAGIC;
    if (getrandom(&physical->shared->nonce, sizeof(physical->shared->nonce), 0) < 0)
        abort();
    physical->shared->physical_device = sim.physical_device[device];
    physical->shared->mig = sim.mig;
    physical->own = true;
    sim.used_bytes[device] += bytes;
    return physical;
}

/* The device of this process that another one's memory lies on; -1: it sees none such. */
static int find_device(const struct sim_shared *shared)
{
    for (int i = 0; i < sim.n_devices; i++) {
        if (sim.physical_device[i] == shared->physical_device && sim.mig == shared->mig)
            return i;
    }
    return -1;
}

struct sim_physical *sim_physical_open(int fd)
{
    struct stat status;
    struct sim_physical *physical;

    if (fstat(fd, &status) != 0 || status.st_size < SIM_TRAILER || fcntl(fd, F_GET_SEALS) < 0) {
        close(fd);
        return NULL;
    }
    physical = adopt(-1, fd, (size_t)status.st_size - SIM_TRAILER);
    if (physical == NULL)
        return NULL;
    if (physical->shared->magic == SIM_SHARED_MAGIC)
        physical->device = find_device(physical->shared);
    if (physical->device < 0) {
        sim_physical_unref(physical);
        return NULL;
    }
    return physical;
}

void sim_physical_unref(struct sim_physical *physical)
{
    if (--physical->refs > 0)
        return;
    if (physical->own)
        sim.used_bytes[physical->device] -= physical->bytes;
    munmap(physical->data, physical->bytes + SIM_TRAILER);
    close(physical->fd);
    free(physical);
}

/* --- addresses */

/* Nobody can read there, and it begins where a block does. */
uint64_t sim_address_take(size_t bytes)
{
    uint8_t *base = mmap(NULL, bytes + SIM_BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    size_t before;

    if (base == MAP_FAILED)
        return 0;
    before = (SIM_BLOCK - (uintptr_t)base % SIM_BLOCK) % SIM_BLOCK;
    if (before > 0)
        munmap(base, before);
    if (before < SIM_BLOCK)
        munmap(base + before + bytes, SIM_BLOCK - before);
    return (uintptr_t)base + before;
}

void sim_address_give(uint64_t address, size_t bytes)
{
    munmap((void *)(uintptr_t)address, bytes);
}

struct sim_range *sim_range_add(enum sim_range_kind kind, uint64_t address, size_t bytes)
{
    struct sim_range *range = calloc(1, sizeof(*range));

    if (range == NULL)
        return NULL;
    range->next = sim.ranges;
    range->kind = kind;
    range->address = address;
    range->bytes = bytes;
    sim.ranges = range;
    return range;
}

struct sim_range *sim_range_at(enum sim_range_kind kind, uint64_t address)
{
    struct sim_range *range = sim.ranges;

    while (range != NULL && (range->kind != kind || range->address != address))
        range = range->next;
    return range;
}

void sim_range_remove(struct sim_range *range)
{
    struct sim_range **at = &sim.ranges;

    while (*at != range)
        at = &(*at)->next;
    *at = range->next;
    free(range);
}

static struct sim_range *find(uint64_t address, size_t bytes)
{
    for (struct sim_range *range = sim.ranges; range != NULL; range = range->next) {
        if (range->physical != NULL && address >= range->address && address - range->address <= range->bytes &&
            bytes <= range->bytes - (address - range->address))
            return range;
    }
    return NULL;
}

uint8_t *sim_translate(const struct tsi_cu_context *context, uint64_t address, size_t bytes, bool write,
                       struct sim_physical **physical_out)
{
    struct sim_range *range = find(address, bytes);

    if (range == NULL || range->access == 0 || range->physical->device != context->device) {
        sim_violation(SIMCUDA_BAD_ADDRESS);
        return NULL;
    }
    if (write && range->access != TSI_CU_ACCESS_READ_WRITE) {
        sim_violation(SIMCUDA_READ_ONLY_WRITE);
        return NULL;
    }
    range->physical->refs++;
    *physical_out = range->physical;
    return range->physical->data + range->offset + (address - range->address);
}

/* --- allocation */

static struct sim_physical *block_with_room(const struct tsi_cu_context *context, size_t bytes)
{
    for (struct sim_range *range = sim.ranges; range != NULL; range = range->next) {
        if (range->kind == SIM_ALLOCATED && range->context == context && range->physical->used > 0 &&
            bytes <= range->physical->bytes - range->physical->used)
            return range->physical;
    }
    return NULL;
}

static struct sim_physical *new_block(const struct tsi_cu_context *context, size_t bytes)
{
    struct sim_physical *physical = sim_physical_create(context->device, bytes);

    if (physical == NULL)
        return NULL;
    physical->address = sim_address_take(bytes);
    if (physical->address == 0) {
        sim_physical_unref(physical);
        return NULL;
    }
    return physical;
}

static void drop_block(struct sim_physical *physical)
{
    if (physical->refs == 1)
        sim_address_give(physical->address, physical->bytes);
    sim_physical_unref(physical);
}

/* Small allocations share a block, so that who shares one by IPC shares its neighbours. */
static struct sim_range *allocate(struct tsi_cu_context *context, size_t bytes)
{
    bool small = bytes <= SIM_BLOCK / 2;
    size_t granule = small ? SMALL : SIM_BLOCK;
    size_t rounded = (bytes + granule - 1) / granule * granule;
    struct sim_physical *physical = small ? block_with_room(context, rounded) : NULL;
    struct sim_range *range;

    if (physical != NULL)
        physical->refs++;
    else
        physical = new_block(context, small ? SIM_BLOCK : rounded);
    if (physical == NULL)
        return NULL;
    range = sim_range_add(SIM_ALLOCATED, physical->address + physical->used, rounded);
    if (range == NULL) {
        drop_block(physical);
        return NULL;
    }
    range->context = context;
    range->physical = physical;
    range->offset = physical->used;
    range->access = TSI_CU_ACCESS_READ_WRITE;
    physical->used += small ? rounded : 0;
    return range;
}

int cuMemGetInfo_v2(size_t *free_out, size_t *total_out)
{
    struct tsi_cu_context *context;
    int result = sim_enter(SIM_cuMemGetInfo, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    *free_out = sim.memory_bytes - sim.used_bytes[context->device];
    *total_out = sim.memory_bytes;
    return sim_leave(TSI_CU_SUCCESS);
}

int cuMemAlloc_v2(uint64_t *address_out, size_t bytes)
{
    struct tsi_cu_context *context;
    struct sim_range *range;
    int result = sim_enter(SIM_cuMemAlloc, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (bytes == 0)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    range = bytes <= sim.memory_bytes ? allocate(context, bytes) : NULL;
    if (range == NULL)
        return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
    sim.live[SIM_KIND_MEMORY]++;
    *address_out = range->address;
    return sim_leave(TSI_CU_SUCCESS);
}

/* A process that was killed has nothing open, also while nobody has waited for it. */
static bool is_alive(int pid)
{
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d/exe", pid);
    return access(path, F_OK) == 0;
}

static bool is_open_elsewhere(const struct sim_physical *physical)
{
    for (int i = 0; i < SIM_OPENERS_MAX; i++) {
        int pid = physical->shared->openers[i];

        if (pid != 0 && pid != getpid() && is_alive(pid))
            return true;
    }
    return false;
}

int cuMemFree_v2(uint64_t address)
{
    struct tsi_cu_context *context;
    struct sim_range *range;
    int result;

    if (!sim_enter_free(SIM_cuMemFree, &context, &result))
        return result;
    if (address == 0)
        return sim_leave(result);
    sim_drain(context);
    range = sim_range_at(SIM_ALLOCATED, address);
    if (range == NULL) {
        sim_violation(SIMCUDA_DOUBLE_FREE);
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    }
    if (is_open_elsewhere(range->physical))
        sim_violation(SIMCUDA_FREE_BEFORE_CLOSE);
    drop_block(range->physical);
    sim_range_remove(range);
    sim.live[SIM_KIND_MEMORY]--;
    return sim_leave(result);
}

/* --- host memory */

static bool overlaps(const struct sim_registration *registration, uintptr_t address, size_t bytes)
{
    return address < registration->address + registration->bytes && registration->address < address + bytes;
}

bool sim_is_registered(const struct tsi_cu_context *context, const void *host, size_t bytes)
{
    uintptr_t address = (uintptr_t)host;

    for (const struct sim_registration *r = sim.registrations; r != NULL; r = r->next) {
        if ((r->context == NULL || r->context == context) && address >= r->address &&
            address - r->address <= r->bytes && bytes <= r->bytes - (address - r->address))
            return true;
    }
    return false;
}

static bool add_registration(struct tsi_cu_context *context, const void *host, size_t bytes)
{
    struct sim_registration *registration = calloc(1, sizeof(*registration));

    if (registration == NULL)
        return false;
    *registration = (struct sim_registration){
        .next = sim.registrations, .context = context, .address = (uintptr_t)host, .bytes = bytes};
    sim.registrations = registration;
    sim.live[SIM_KIND_REGISTRATION]++;
    return true;
}

/* Pages of our own, registered; write-combined ones are no different here. */
int cuMemHostAlloc(void **host_out, size_t bytes, unsigned flags)
{
    struct tsi_cu_context *context;
    void *host;
    int result = sim_enter(SIM_cuMemHostAlloc, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (bytes == 0 || (flags & ~7u) != 0)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    host = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (host == MAP_FAILED)
        return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
    if (!add_registration((flags & TSI_CU_HOST_PORTABLE) != 0 ? NULL : context, host, bytes)) {
        munmap(host, bytes);
        return sim_leave(TSI_CU_ERROR_OUT_OF_MEMORY);
    }
    *host_out = host;
    return sim_leave(TSI_CU_SUCCESS);
}

int cuMemHostRegister_v2(void *host, size_t bytes, unsigned flags)
{
    struct tsi_cu_context *context;
    struct sim_registration *registration;
    int result = sim_enter(SIM_cuMemHostRegister, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (host == NULL || bytes == 0)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    if ((flags & TSI_CU_HOST_READ_ONLY) != 0 && sim_attribute(TSI_CU_ATTRIBUTE_READ_ONLY_HOST) == 0)
        return sim_leave(TSI_CU_ERROR_NOT_SUPPORTED);
    for (registration = sim.registrations; registration != NULL; registration = registration->next) {
        if (overlaps(registration, (uintptr_t)host, bytes))
            return sim_leave(TSI_CU_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
    }
    return sim_leave(add_registration((flags & TSI_CU_HOST_PORTABLE) != 0 ? NULL : context, host, bytes)
                         ? TSI_CU_SUCCESS
                         : TSI_CU_ERROR_OUT_OF_MEMORY);
}

/* The registration that begins at `host` is forgotten; the bytes it had, or 0: there is none. */
static size_t remove_registration(const void *host)
{
    struct sim_registration **at = &sim.registrations;
    struct sim_registration *found;
    size_t bytes;

    while (*at != NULL && (*at)->address != (uintptr_t)host)
        at = &(*at)->next;
    if (*at == NULL) {
        sim_violation(SIMCUDA_DOUBLE_FREE);
        return 0;
    }
    found = *at;
    *at = found->next;
    bytes = found->bytes;
    free(found);
    sim.live[SIM_KIND_REGISTRATION]--;
    return bytes;
}

/* Like freeing memory of the device, it waits for work that may use it. */
int cuMemFreeHost(void *host)
{
    struct tsi_cu_context *context;
    size_t bytes;
    int result;

    if (!sim_enter_free(SIM_cuMemFreeHost, &context, &result))
        return result;
    sim_drain(context);
    bytes = remove_registration(host);
    if (bytes == 0)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    munmap(host, bytes);
    return sim_leave(result);
}

int cuMemHostUnregister(void *host)
{
    struct tsi_cu_context *context;
    int result;

    if (!sim_enter_free(SIM_cuMemHostUnregister, &context, &result))
        return result;
    return sim_leave(remove_registration(host) > 0 ? result : TSI_CU_ERROR_HOST_MEMORY_NOT_REGISTERED);
}
