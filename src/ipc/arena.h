/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where shared memory lives. This is the `host` arena: a sealed memfd.
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

struct tsi_arena {
    int fd; /* -1 on the consumer's side: the mapping is enough */
    void *base;
    uint64_t bytes;
};

/* Daemon: `bytes` of zeroed memory, really there. TSOCKET_ENOMEM or TSOCKET_ESYSTEM. */
int tsi_arena_create(const char *label, uint64_t bytes, struct tsi_arena *arena_out);

/*
 * Consumer: maps `bytes` of fd read-only, every page at once, so that no first touch costs time later. The descriptor
 * stays the caller's. TSOCKET_EPROTOCOL: it is smaller, or not sealed; TSOCKET_ENOMEM, TSOCKET_ESYSTEM.
 */
int tsi_arena_map(int fd, uint64_t bytes, struct tsi_arena *arena_out);

void tsi_arena_close(struct tsi_arena *arena); /* {.fd = -1} and closed ones are allowed */

#endif
