/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_arena.h"

#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "error.h"
#include "layout.h"
#include "log.h"

enum {
    BLOCK = 2 << 20, /* CUDA IPC shares memory in these */
};

static uint64_t address_of(const struct tsi_arena *arena)
{
    return (uintptr_t)arena->base;
}

static void *base_of(uint64_t address)
{
    return (void *)(uintptr_t)address;
}

static uint64_t round_up(uint64_t bytes, uint64_t block)
{
    return (bytes + block - 1) / block * block;
}

/* --- CUDA_VMM: memory, an address for it, access; undone in the opposite order */

static struct tsi_cu_allocation_prop prop_of(const struct tsi_device *device)
{
    return (struct tsi_cu_allocation_prop){
        .type = TSI_CU_ALLOCATION_PINNED,
        .handle_types = TSI_CU_HANDLE_POSIX_FD,
        .location = {.type = TSI_CU_LOCATION_DEVICE, .id = device->number},
    };
}

static bool can_vmm(const struct tsi_device *device)
{
    return tsi_cuda_has_vmm(&device->cuda) && tsi_device_attribute(device, TSI_CU_ATTRIBUTE_VMM) != 0 &&
           tsi_device_attribute(device, TSI_CU_ATTRIBUTE_POSIX_FD) != 0;
}

/* Maps arena->handle; the handle stays what it is when that fails. */
static int map_handle(struct tsi_arena *arena, int access)
{
    const struct tsi_cuda *cuda = &arena->device->cuda;
    struct tsi_cu_access wanted = {.location = prop_of(arena->device).location, .flags = access};
    uint64_t address;
    int result = cuda->cuMemAddressReserve(&address, arena->reserved, 0, 0, 0);

    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "cuMemAddressReserve of %" PRIu64 " bytes", arena->reserved);
    result = cuda->cuMemMap(address, arena->reserved, 0, arena->handle, 0);
    if (result != TSI_CU_SUCCESS) {
        tsi_cuda_fail(cuda, result, "cuMemMap of %" PRIu64 " bytes", arena->reserved);
        goto free_address;
    }
    result = cuda->cuMemSetAccess(address, arena->reserved, &wanted, 1);
    if (result != TSI_CU_SUCCESS) {
        tsi_cuda_fail(cuda, result, "cuMemSetAccess");
        goto unmap;
    }
    arena->base = base_of(address);
    return TSOCKET_OK;
unmap:
    cuda->cuMemUnmap(address, arena->reserved);
free_address:
    cuda->cuMemAddressFree(address, arena->reserved);
    return result == TSI_CU_ERROR_OUT_OF_MEMORY ? TSOCKET_ENOMEM : TSOCKET_EDEVICE;
}

static void unmap_handle(struct tsi_arena *arena)
{
    const struct tsi_cuda *cuda = &arena->device->cuda;

    cuda->cuMemUnmap(address_of(arena), arena->reserved);
    cuda->cuMemAddressFree(address_of(arena), arena->reserved);
    cuda->cuMemRelease(arena->handle);
}

static int no_memory(const struct tsi_device *device, uint64_t bytes)
{
    size_t free_bytes = 0, total = 0;

    device->cuda.cuMemGetInfo(&free_bytes, &total); /* zeros where even that fails */
    return tsi_fail(TSOCKET_ENOMEM,
                    "the ring needs %" PRIu64 " bytes on %s (%s), %zu of %zu are free; use a smaller --ring or "
                    "--max-batch",
                    bytes, device->name, device->uuid_text, free_bytes, total);
}

static int create_vmm(struct tsi_arena *arena)
{
    const struct tsi_cuda *cuda = &arena->device->cuda;
    struct tsi_cu_allocation_prop prop = prop_of(arena->device);
    size_t block;
    int rc, result = cuda->cuMemGetAllocationGranularity(&block, &prop, TSI_CU_GRANULARITY_MINIMUM);

    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "cuMemGetAllocationGranularity");
    arena->reserved = round_up(arena->bytes, block);
    result = cuda->cuMemCreate(&arena->handle, arena->reserved, &prop, 0);
    if (result == TSI_CU_ERROR_OUT_OF_MEMORY)
        return no_memory(arena->device, arena->reserved);
    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "cuMemCreate of %" PRIu64 " bytes", arena->reserved);
    rc = map_handle(arena, TSI_CU_ACCESS_READ_WRITE);
    if (rc != TSOCKET_OK)
        goto release;
    result = cuda->cuMemExportToShareableHandle(&arena->fd, arena->handle, TSI_CU_HANDLE_POSIX_FD, 0);
    if (result == TSI_CU_SUCCESS)
        return TSOCKET_OK;
    arena->fd = -1;
    rc = tsi_cuda_fail(cuda, result, "cuMemExportToShareableHandle");
    unmap_handle(arena);
    return rc;
release:
    cuda->cuMemRelease(arena->handle);
    return rc;
}

/* --- CUDA_IPC */

static int create_ipc(struct tsi_arena *arena)
{
    const struct tsi_cuda *cuda = &arena->device->cuda;
    uint64_t address;
    int result;

    arena->reserved = round_up(arena->bytes, BLOCK);
    result = cuda->cuMemAlloc(&address, arena->reserved);
    if (result == TSI_CU_ERROR_OUT_OF_MEMORY)
        return no_memory(arena->device, arena->reserved);
    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "cuMemAlloc of %" PRIu64 " bytes", arena->reserved);
    arena->base = base_of(address);
    return TSOCKET_OK;
}

/* --- the daemon's side */

/* The context is current. What the memory held before belongs to somebody else. */
static int clear(const struct tsi_arena *arena)
{
    const struct tsi_cuda *cuda = &arena->device->cuda;
    int result = cuda->cuMemsetD8Async(address_of(arena), 0, arena->reserved, NULL);

    if (result == TSI_CU_SUCCESS)
        result = cuda->cuStreamSynchronize(NULL);
    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "cannot clear %" PRIu64 " bytes: cuMemsetD8Async", arena->reserved);
    return TSOCKET_OK;
}

/*
 * Gives the memory back. Errors are no news: what breaks a context has been said where it was met, and the memory goes
 * with the process then. What belongs to CUDA_VMM is of no context.
 */
void tsi_cuda_arena_unmap(struct tsi_arena *arena)
{
    const struct tsi_cuda *cuda = &arena->device->cuda;

    if (arena->hold == TSI_ARENA_BORROWED)
        return;
    if (arena->kind == TSI_ARENA_CUDA_VMM) {
        unmap_handle(arena);
        return;
    }
    if (tsi_device_enter(arena->device) != TSOCKET_OK)
        return;
    if (arena->hold == TSI_ARENA_OPENED)
        cuda->cuIpcCloseMemHandle(address_of(arena));
    else
        cuda->cuMemFree(address_of(arena));
    tsi_device_leave(arena->device);
}

static int create(struct tsi_arena *arena)
{
    const struct tsi_device *device = arena->device;
    int rc = tsi_device_enter(device);

    if (rc != TSOCKET_OK)
        return rc;
    rc = arena->kind == TSI_ARENA_CUDA_VMM ? create_vmm(arena) : create_ipc(arena);
    if (rc == TSOCKET_OK) {
        rc = clear(arena);
        if (rc != TSOCKET_OK)
            tsi_arena_close(arena);
    }
    tsi_device_leave(device);
    return rc;
}

int tsi_cuda_arena_create(const struct tsi_device *device, enum tsi_share share, uint64_t bytes,
                          struct tsi_arena *arena_out)
{
    struct tsi_arena arena = {.fd = -1, .bytes = bytes, .device = device, .kind = TSI_ARENA_CUDA_IPC};
    bool vmm = can_vmm(device);
    int rc;

    if (bytes == 0 || bytes > TSI_RING_BYTES_MAX)
        return tsi_fail(TSOCKET_EINVAL, "%" PRIu64 " bytes on a device; 1 to %" PRIu64 " are possible", bytes,
                        TSI_RING_BYTES_MAX);
    if (share == TSI_SHARE_VMM && !vmm)
        return tsi_fail(TSOCKET_EINVAL, "%s (%s) cannot share memory by descriptors; use --share ipc or auto",
                        device->name, device->uuid_text);
    if (share != TSI_SHARE_IPC && vmm)
        arena.kind = TSI_ARENA_CUDA_VMM;
    rc = create(&arena);
    if (rc == TSOCKET_EDEVICE && share == TSI_SHARE_AUTO && vmm) {
        tsi_log('I', "sharing GPU memory by CUDA IPC, since descriptors do not work here: %s", tsocket_last_error());
        arena = (struct tsi_arena){.fd = -1, .bytes = bytes, .device = device, .kind = TSI_ARENA_CUDA_IPC};
        rc = create(&arena);
    }
    if (rc == TSOCKET_OK)
        *arena_out = arena;
    return rc;
}

/* A number that no two PID namespaces of a machine share. */
static int pid_namespace(uint64_t *number_out)
{
    struct stat status;

    if (stat("/proc/self/ns/pid", &status) != 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "/proc/self/ns/pid");
    *number_out = status.st_ino;
    return TSOCKET_OK;
}

int tsi_cuda_arena_ticket(const struct tsi_arena *arena, struct tsi_arena_ticket *ticket_out)
{
    struct tsi_arena_ticket ticket = {
        .kind = arena->kind,
        .bytes = arena->reserved,
        .uuid = arena->device->uuid,
        .pid = getpid(),
        .address = address_of(arena),
    };
    const struct tsi_cuda *cuda = &arena->device->cuda;
    int result = TSI_CU_SUCCESS, rc = pid_namespace(&ticket.pid_namespace);

    if (rc == TSOCKET_OK)
        rc = tsi_device_enter(arena->device);
    if (rc != TSOCKET_OK)
        return rc;
    if (arena->kind == TSI_ARENA_CUDA_IPC)
        result = cuda->cuIpcGetMemHandle(&ticket.handle, ticket.address);
    tsi_device_leave(arena->device);
    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "cuIpcGetMemHandle");
    *ticket_out = ticket;
    return TSOCKET_OK;
}

/* --- the consumer's side */

static int map_vmm(struct tsi_arena *arena, int fd)
{
    const struct tsi_cuda *cuda = &arena->device->cuda;
    int rc,
        result = cuda->cuMemImportFromShareableHandle(&arena->handle, base_of((uint64_t)fd), TSI_CU_HANDLE_POSIX_FD);

    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "the daemon's GPU memory cannot be opened: cuMemImportFromShareableHandle");
    rc = map_handle(arena, TSI_CU_ACCESS_READ);
    if (rc != TSOCKET_OK)
        cuda->cuMemRelease(arena->handle);
    return rc;
}

static int map_ipc(struct tsi_arena *arena, const struct tsi_cu_ipc_handle *handle)
{
    const struct tsi_cuda *cuda = &arena->device->cuda;
    uint64_t address;
    int result = cuda->cuIpcOpenMemHandle(&address, *handle, TSI_CU_IPC_LAZY_PEER);

    if (result == TSI_CU_ERROR_INVALID_CONTEXT)
        return tsi_cuda_fail(cuda, result,
                             "the daemon's GPU memory cannot be opened from another PID namespace; start the daemon "
                             "with --share vmm, or both containers with one PID namespace: cuIpcOpenMemHandle");
    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "the daemon's GPU memory cannot be opened: cuIpcOpenMemHandle");
    arena->base = base_of(address);
    return TSOCKET_OK;
}

static int check_ticket(const struct tsi_device *device, const struct tsi_arena_ticket *ticket, int fd, uint64_t bytes)
{
    if (ticket->kind != TSI_ARENA_CUDA_IPC && ticket->kind != TSI_ARENA_CUDA_VMM)
        return tsi_fail(TSOCKET_EPROTOCOL, "the daemon shares memory of an unknown kind %d", (int)ticket->kind);
    if (ticket->bytes < bytes || ticket->bytes > TSI_RING_BYTES_MAX)
        return tsi_fail(TSOCKET_EPROTOCOL,
                        "the daemon sent %" PRIu64 " bytes of GPU memory where %" PRIu64 " were announced",
                        ticket->bytes, bytes);
    if (memcmp(&ticket->uuid, &device->uuid, sizeof(device->uuid)) != 0)
        return tsi_fail(TSOCKET_EPROTOCOL, "the daemon sent memory of another device than was asked for");
    if (ticket->kind == TSI_ARENA_CUDA_VMM && (fd < 0 || !can_vmm(device)))
        return tsi_fail(TSOCKET_EPROTOCOL, "the daemon shares GPU memory by a descriptor, and %s",
                        fd < 0 ? "sent none" : "this process's driver cannot open it");
    return TSOCKET_OK;
}

int tsi_cuda_arena_map(const struct tsi_device *device, const struct tsi_arena_ticket *ticket, int fd, uint64_t bytes,
                       struct tsi_arena *arena_out)
{
    struct tsi_arena arena = {.fd = -1,
                              .bytes = bytes,
                              .kind = ticket->kind,
                              .device = device,
                              .reserved = ticket->bytes,
                              .hold = TSI_ARENA_OPENED};
    uint64_t namespace = 0;
    bool own;
    int rc = check_ticket(device, ticket, fd, bytes);

    if (rc == TSOCKET_OK)
        rc = pid_namespace(&namespace);
    if (rc == TSOCKET_OK)
        rc = tsi_device_enter(device);
    if (rc != TSOCKET_OK)
        return rc;
    own = ticket->pid == getpid() && ticket->pid_namespace == namespace;
    if (ticket->kind == TSI_ARENA_CUDA_VMM)
        rc = map_vmm(&arena, fd);
    else if (!own)
        rc = map_ipc(&arena, &ticket->handle);
    if (own && (ticket->kind == TSI_ARENA_CUDA_IPC || rc != TSOCKET_OK)) {
        arena.base = base_of(ticket->address);
        arena.hold = TSI_ARENA_BORROWED;
        rc = TSOCKET_OK;
    }
    tsi_device_leave(device);
    if (rc == TSOCKET_OK)
        *arena_out = arena;
    return rc;
}
