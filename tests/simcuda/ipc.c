/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of other processes, and their events, by 64-byte handles. The handle says which descriptor of which process it
 * is, and enough to notice that it is not that any more.
 */
#include "sim.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HANDLE_MAGIC UINT32_C(0x43504953)

struct handle {
    uint32_t magic;
    int32_t pid;
    uint64_t started; /* of the process, in clock ticks since boot: pids come again */
    uint64_t pid_namespace;
    int32_t fd;
    int32_t unused;
    uint64_t inode;
    uint64_t nonce;
    uint64_t offset;
    uint64_t reserved;
};
static_assert(sizeof(struct handle) == TSI_CU_IPC_HANDLE_BYTES, "as the driver's");

/* 0: there is no such process. */
static uint64_t start_of(int pid)
{
    char path[32], text[1024];
    FILE *file;
    const char *at;
    uint64_t started = 0;
    size_t len;

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    len = fread(text, 1, sizeof(text) - 1, file);
    fclose(file);
    text[len] = '\0';
    at = strrchr(text, ')'); /* the name before it may hold anything */
    for (int field = 2; at != NULL && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (at != NULL)
        started = strtoull(at, NULL, 10);
    return started;
}

/* Of this process. Handles mean something in it alone. */
static uint64_t pid_namespace(void)
{
    struct stat status = {0};

    return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

bool sim_handle_make(int fd, uint64_t nonce, uint64_t offset, struct tsi_cu_ipc_handle *handle_out)
{
    struct handle handle = {
        .magic = HANDLE_MAGIC,
        .pid = getpid(),
        .started = start_of(getpid()),
        .pid_namespace = pid_namespace(),
        .fd = fd,
        .nonce = nonce,
        .offset = offset,
    };
    struct stat status;

    if (fstat(fd, &status) != 0)
        return false;
    handle.inode = status.st_ino;
    memcpy(handle_out, &handle, sizeof(handle));
    return true;
}

int sim_handle_open(const struct tsi_cu_ipc_handle *opaque, int *fd_out)
{
    struct handle handle;
    struct stat status;
    char path[48];
    int fd;

    memcpy(&handle, opaque, sizeof(handle));
    if (handle.magic != HANDLE_MAGIC)
        return TSI_CU_ERROR_INVALID_VALUE;
    if (handle.pid == getpid() || handle.pid_namespace != pid_namespace() || start_of(handle.pid) != handle.started)
        return TSI_CU_ERROR_INVALID_CONTEXT;
    snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle.pid, handle.fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return TSI_CU_ERROR_INVALID_VALUE;
    if (fstat(fd, &status) != 0 || status.st_ino != handle.inode) {
        close(fd);
        return TSI_CU_ERROR_INVALID_VALUE;
    }
    *fd_out = fd;
    return TSI_CU_SUCCESS;
}

int cuIpcGetMemHandle(struct tsi_cu_ipc_handle *handle_out, uint64_t address)
{
    struct tsi_cu_context *context;
    const struct sim_range *range;
    int result = sim_enter(SIM_cuIpcGetMemHandle, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    range = sim_range_at(SIM_ALLOCATED, address);
    if (range == NULL ||
        !sim_handle_make(range->physical->fd, range->physical->shared->nonce, range->offset, handle_out))
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    return sim_leave(TSI_CU_SUCCESS);
}

static void set_opener(struct sim_shared *shared, int from, int to)
{
    for (int i = 0; i < SIM_OPENERS_MAX; i++) {
        int expected = from;

        if (__atomic_compare_exchange_n((int *)&shared->openers[i], &expected, to, false, __ATOMIC_SEQ_CST,
                                        __ATOMIC_SEQ_CST))
            return;
    }
}

/* Takes fd over. Opens the whole block: that is what the real driver shares. */
static int open_block(struct tsi_cu_context *context, int fd, const struct handle *handle, struct sim_range **range_out)
{
    struct sim_physical *physical = sim_physical_open(fd);
    struct sim_range *range;

    if (physical == NULL)
        return TSI_CU_ERROR_INVALID_VALUE;
    if (physical->shared->nonce != handle->nonce || physical->device != context->device)
        goto unref;
    physical->address = sim_address_take(physical->bytes);
    if (physical->address == 0)
        goto unref;
    range = sim_range_add(SIM_OPENED, physical->address, physical->bytes);
    if (range == NULL)
        goto give_address;
    range->context = context;
    range->physical = physical;
    range->access = TSI_CU_ACCESS_READ_WRITE;
    range->inode = handle->inode;
    set_opener(physical->shared, 0, getpid());
    sim.live[SIM_KIND_MAPPING]++;
    *range_out = range;
    return TSI_CU_SUCCESS;
give_address:
    sim_address_give(physical->address, physical->bytes);
unref:
    sim_physical_unref(physical);
    return TSI_CU_ERROR_MAP_FAILED;
}

static struct sim_range *find_again(const struct tsi_cu_context *context, const struct handle *handle)
{
    struct sim_range *range = sim.ranges;

    while (range != NULL && (range->kind != SIM_OPENED || range->context != context || range->inode != handle->inode ||
                             range->physical->shared->nonce != handle->nonce))
        range = range->next;
    return range;
}

int cuIpcOpenMemHandle_v2(uint64_t *address_out, struct tsi_cu_ipc_handle opaque, unsigned flags)
{
    struct tsi_cu_context *context;
    struct sim_range *range;
    struct handle handle;
    int fd, result = sim_enter(SIM_cuIpcOpenMemHandle, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    if (flags != TSI_CU_IPC_LAZY_PEER)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    memcpy(&handle, &opaque, sizeof(handle));
    result = sim_handle_open(&opaque, &fd);
    if (result != TSI_CU_SUCCESS)
        return sim_leave(result);
    range = find_again(context, &handle);
    if (range != NULL)
        close(fd);
    else
        result = open_block(context, fd, &handle, &range);
    if (result != TSI_CU_SUCCESS)
        return sim_leave(result);
    range->opened++;
    *address_out = range->address + handle.offset;
    return sim_leave(TSI_CU_SUCCESS);
}

static struct sim_range *find_opened(uint64_t address)
{
    struct sim_range *range = sim.ranges;

    while (range != NULL && (range->kind != SIM_OPENED || address - range->address >= range->bytes))
        range = range->next;
    return range;
}

int cuIpcCloseMemHandle(uint64_t address)
{
    struct tsi_cu_context *context;
    struct sim_range *range;
    int result;

    if (!sim_enter_free(SIM_cuIpcCloseMemHandle, &context, &result))
        return result;
    range = find_opened(address);
    if (range == NULL) {
        sim_violation(SIMCUDA_DOUBLE_FREE);
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    }
    if (--range->opened > 0)
        return sim_leave(result);
    set_opener(range->physical->shared, getpid(), 0);
    sim_address_give(range->address, range->bytes);
    sim_physical_unref(range->physical);
    sim_range_remove(range);
    sim.live[SIM_KIND_MAPPING]--;
    return sim_leave(result);
}
