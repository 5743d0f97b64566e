/* SPDX-License-Identifier: Apache-2.0 */
#include "arena.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cuda_arena.h"
#include "error.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

enum {
    SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL,
};

/* posix_fallocate gives the error back and leaves errno alone; a signal may interrupt it. */
static int reserve(int fd, uint64_t bytes)
{
    int error;

    do
        error = posix_fallocate(fd, 0, (off_t)bytes);
    while (error == EINTR);
    if (error == 0)
        return TSOCKET_OK;
    errno = error;
    return tsi_fail_errno(TSOCKET_ENOMEM, "cannot reserve %" PRIu64 " bytes of shared memory", bytes);
}

int tsi_arena_create(const char *label, uint64_t bytes, struct tsi_arena *arena_out)
{
    struct tsi_arena arena = {.bytes = bytes};
    int rc;

    arena.fd = memfd_create(label, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (arena.fd < 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "memfd_create");
    rc = reserve(arena.fd, bytes);
    if (rc != TSOCKET_OK)
        goto close_fd;
    arena.base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, arena.fd, 0);
    if (arena.base == MAP_FAILED) {
        rc = tsi_fail_errno(TSOCKET_ENOMEM, "cannot map %" PRIu64 " bytes of shared memory", bytes);
        goto close_fd;
    }
    if (fcntl(arena.fd, F_ADD_SEALS, SEALS) != 0) {
        rc = tsi_fail_errno(TSOCKET_ESYSTEM, "cannot seal the shared memory (Linux 5.1 or newer is needed)");
        goto unmap;
    }
    *arena_out = arena;
    return TSOCKET_OK;
unmap:
    munmap(arena.base, bytes);
close_fd:
    close(arena.fd);
    return rc;
}

int tsi_arena_map(int fd, uint64_t bytes, struct tsi_arena *arena_out)
{
    struct stat status;
    int seals = fcntl(fd, F_GET_SEALS);
    void *base;

    if (seals < 0 || (seals & SEALS) != SEALS)
        return tsi_fail(TSOCKET_EPROTOCOL, "the daemon sent memory that is not sealed (seals 0x%x)", (unsigned)seals);
    if (fstat(fd, &status) != 0)
        return tsi_fail_errno(TSOCKET_ESYSTEM, "fstat of the shared memory");
    if (status.st_size < 0 || (uint64_t)status.st_size < bytes)
        return tsi_fail(TSOCKET_EPROTOCOL,
                        "the daemon sent %" PRIi64 " bytes of memory where %" PRIu64 " were announced",
                        (int64_t)status.st_size, bytes);
    base = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
    if (base == MAP_FAILED)
        return tsi_fail_errno(errno == ENOMEM ? TSOCKET_ENOMEM : TSOCKET_ESYSTEM,
                              "cannot map %" PRIu64 " bytes of shared memory", bytes);
    *arena_out = (struct tsi_arena){.fd = -1, .base = base, .bytes = bytes};
    return TSOCKET_OK;
}

void tsi_arena_close(struct tsi_arena *arena)
{
    if (arena->kind == TSI_ARENA_HOST && arena->base != NULL)
        munmap(arena->base, arena->bytes);
    else if (arena->kind != TSI_ARENA_HOST)
        tsi_cuda_arena_unmap(arena);
    if (arena->fd >= 0)
        close(arena->fd);
    *arena = (struct tsi_arena){.fd = -1};
}
