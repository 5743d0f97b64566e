/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of other processes by 64-byte handles. The handle says which descriptor of which process it is, and enough to
 * notice that it is not that any more.
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

int cuIpcGetMemHandle(struct tsi_cu_ipc_handle *handle_out, uint64_t address)
{
    struct handle handle = {.magic = HANDLE_MAGIC, .pid = getpid(), .pid_namespace = pid_namespace()};
    struct tsi_cu_context *context;
    const struct sim_range *range;
    struct stat status;
    int result = sim_enter(SIM_cuIpcGetMemHandle, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    handle.started = start_of(handle.pid);
    range = sim_range_at(SIM_ALLOCATED, address);
    if (range == NULL || fstat(range->physical->fd, &status) != 0)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    handle.fd = range->physical->fd;
    handle.inode = status.st_ino;
    handle.nonce = range->physical->shared->nonce;
    handle.offset = range->offset;
    memcpy(handle_out, &handle, sizeof(handle));
    return sim_leave(TSI_CU_SUCCESS);
}

/* The memory that the handle means; NULL: it is not there any more. */
static struct sim_physical *fetch(const struct handle *handle)
{
    struct sim_physical *physical;
    char path[48];
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/fd/%d", handle->pid, handle->fd);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return NULL;
    physical = sim_physical_open(fd);
    if (physical != NULL && physical->shared->nonce != handle->nonce) {
        sim_physical_unref(physical);
        return NULL;
    }
    return physical;
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

/* Opens the whole block: that is what the real driver shares. */
static int open_block(struct tsi_cu_context *context, const struct handle *handle, struct sim_range **range_out)
{
    struct sim_physical *physical = fetch(handle);
    struct sim_range *range;

    if (physical == NULL)
        return TSI_CU_ERROR_INVALID_VALUE;
    if (physical->device != context->device)
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

int cuIpcOpenMemHandle_v2(uint64_t *address_out, struct tsi_cu_ipc_handle opaque, unsigned flags)
{
    struct tsi_cu_context *context;
    struct sim_range *range = sim.ranges;
    struct handle handle;
    int result = sim_enter(SIM_cuIpcOpenMemHandle, &context);

    if (result != TSI_CU_SUCCESS)
        return result;
    memcpy(&handle, &opaque, sizeof(handle));
    if (handle.magic != HANDLE_MAGIC || flags != TSI_CU_IPC_LAZY_PEER)
        return sim_leave(TSI_CU_ERROR_INVALID_VALUE);
    if (handle.pid == getpid() || handle.pid_namespace != pid_namespace() || start_of(handle.pid) != handle.started)
        return sim_leave(TSI_CU_ERROR_INVALID_CONTEXT);
    for (range = sim.ranges; range != NULL; range = range->next) {
        if (range->kind == SIM_OPENED && range->context == context && range->inode == handle.inode &&
            range->physical->shared->nonce == handle.nonce)
            break;
    }
    if (range == NULL)
        result = open_block(context, &handle, &range);
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
