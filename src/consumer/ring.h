/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring with its control page, as a consumer has it mapped. A handle reads one at a time, the group's ring or a side
 * ring, and keeps others for as long as windows of theirs are held.
 */
#ifndef TSC_RING_H
#define TSC_RING_H

#include "../ipc/control.h"
#include "../ipc/cuda_arena.h"
#include "../ipc/layout.h"

struct tsc_ring {
    struct tsc_ring *next; /* the handle's list */
    struct tsi_arena page;
    struct tsi_arena memory;
    struct tsi_device device;          /* that the memory is of; all zero: it is the host's */
    const struct tsi_control *control; /* in page */
    struct tsi_layout layout;
    uint32_t name; /* on the wire; 0: the group's */
    uint32_t held; /* windows of it that are held */
    bool gone;     /* its daemon is: nobody is to be told anything about it */
};

/* What came over the lifeline: the control page, and the ring's memory where that is shared by a descriptor. */
struct tsc_ring_fds {
    int fds[2];
    uint32_t n;
};

/*
 * Maps the control page and the ring of that layout, which lies where `ticket` says, all of it checked. The descriptors
 * stay the caller's. TSOCKET_OK: *ring_out is the caller's. TSOCKET_EPROTOCOL, TSOCKET_ENOMEM, TSOCKET_EDEVICE,
 * TSOCKET_ESYSTEM.
 */
int tsc_ring_open(const struct tsc_ring_fds *fds, const struct tsi_layout *layout, const char *ticket, uint32_t name,
                  struct tsc_ring **ring_out);

/* Gives the memory of a GPU back, and leaves the control page: nothing of it will be read any more. */
void tsc_ring_unmap(struct tsc_ring *ring);

void tsc_ring_close(struct tsc_ring *ring); /* NULL is allowed */

#endif
