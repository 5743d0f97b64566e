/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where shared memory lives: in host memory, or in that of a GPU (cuda_arena.h). This is the `host` arena: a sealed
 * memfd.
 *
 *     daemon:    create --(map writable, reserve, touch, seal)--> fd over the lifeline
 *     consumer:  map read-only (size and seals checked first) --> close
 *
 * A memfd has no name: after a SIGKILL of everybody the kernel frees it. It does not live in /dev/shm, so a container's
 * 64 MB there do not matter. The seals make it impossible to shrink it under a reader (SIGBUS), and for anybody but the
 * daemon's own mapping to write it.
 */
#ifndef TSI_ARENA_H
#define TSI_ARENA_H

#include <stdint.h>

enum tsi_arena_kind {
    TSI_ARENA_HOST,
    TSI_ARENA_CUDA_IPC, /* a GPU's, shared by a handle of 64 bytes; writable for whoever has it */
    TSI_ARENA_CUDA_VMM, /* a GPU's, shared by a descriptor; the consumer maps it read-only */
};

enum tsi_arena_hold {
    TSI_ARENA_OWN,      /* made here */
    TSI_ARENA_OPENED,   /* another process's */
    TSI_ARENA_BORROWED, /* this process's own: another arena gives it back */
};

struct tsi_device;

struct tsi_arena {
    int fd;     /* what the other side is sent; -1: nothing, or this is the other side */
    void *base; /* of a GPU's: an address of the device, not to be followed on the host */
    uint64_t bytes;
    enum tsi_arena_kind kind;

    /* a GPU's */
    const struct tsi_device *device;
    uint64_t reserved; /* bytes in whole blocks */
    uint64_t handle;   /* of a CUDA_VMM one */
    enum tsi_arena_hold hold;
};

/* Daemon: `bytes` of zeroed memory, really there. TSOCKET_ENOMEM or TSOCKET_ESYSTEM. */
int tsi_arena_create(const char *label, uint64_t bytes, struct tsi_arena *arena_out);

/*
 * Consumer: maps `bytes` of fd read-only, every page at once, so that no first touch costs time later. The descriptor
 * stays the caller's. TSOCKET_EPROTOCOL: it is smaller, or not sealed; TSOCKET_ENOMEM, TSOCKET_ESYSTEM.
 */
int tsi_arena_map(int fd, uint64_t bytes, struct tsi_arena *arena_out);

/* Of any kind; {.fd = -1} and closed ones are allowed. */
void tsi_arena_close(struct tsi_arena *arena);

#endif
