/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arenas in a GPU's memory.
 *
 *     daemon:    create --> ticket in WELCOME, and for CUDA_VMM a descriptor over the lifeline
 *     consumer:  ticket (and descriptor) --> map --> tsi_arena_close
 *
 * CUDA_VMM is mapped read-only by the consumer: a kernel of his that writes there breaks his own context, nobody else's
 * data. That keeps accidents away, not malice: whoever has the descriptor may map it for writing. CUDA_IPC cannot be
 * mapped read-only at all. Both come in whole blocks of 2 MiB or what the driver asks for: a smaller allocation would
 * share its block, and so its neighbours, with every consumer.
 *
 * A consumer in the producer's own process uses the daemon's address of CUDA_IPC memory, which CUDA does not open
 * there: then only as long as the producer has it. CUDA_VMM is mapped once more, and lives on like everywhere.
 *
 * When the daemon is gone, an open mapping keeps the memory, and its contents, until it is closed.
 */
#ifndef TSI_CUDA_ARENA_H
#define TSI_CUDA_ARENA_H

#include "arena.h"
#include "device.h"
#include "ticket.h"

enum tsi_share {
    TSI_SHARE_AUTO, /* VMM where it works, else IPC */
    TSI_SHARE_VMM,
    TSI_SHARE_IPC,
};

/*
 * Daemon: `bytes` of zeroed memory on the device. TSOCKET_ENOMEM with both numbers; TSOCKET_EDEVICE; TSOCKET_EINVAL:
 * VMM was asked for and the device has none. The device must outlive the arena.
 */
int tsi_cuda_arena_create(const struct tsi_device *device, enum tsi_share share, uint64_t bytes,
                          struct tsi_arena *arena_out);

/* Daemon: what consumers are told. */
int tsi_cuda_arena_ticket(const struct tsi_arena *arena, struct tsi_arena_ticket *ticket_out);

/*
 * Consumer: maps at least `bytes` on the device that the ticket names. fd stays the caller's; only CUDA_VMM looks at
 * it. TSOCKET_EPROTOCOL: the ticket does not fit; TSOCKET_EDEVICE: the driver refuses, with what to change where that
 * is known.
 */
int tsi_cuda_arena_map(const struct tsi_device *device, const struct tsi_arena_ticket *ticket, int fd, uint64_t bytes,
                       struct tsi_arena *arena_out);

/* tsi_arena_close's part for these kinds. */
void tsi_cuda_arena_unmap(struct tsi_arena *arena);

#endif
