/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A ring with its control page, as a consumer has it mapped. A handle reads one at a time, the group's ring or a side
 * ring, and keeps others for as long as windows of theirs are held.
 */
#ifndef TSC_RING_H
#define TSC_RING_H

#include "../ipc/arena.h"
#include "../ipc/control.h"
#include "../ipc/layout.h"

struct tsc_ring {
    struct tsc_ring *next; /* the handle's list */
    struct tsi_arena page;
    struct tsi_arena memory;
    const struct tsi_control *control; /* in page */
    struct tsi_layout layout;
    uint32_t name; /* on the wire; 0: the group's */
    uint32_t held; /* windows of it that are held */
    bool gone;     /* its daemon is: nobody is to be told anything about it */
};

/*
 * Maps the control page fds[0] and the ring fds[1] of that layout, both checked. The descriptors stay the caller's.
 * TSOCKET_OK: *ring_out is the caller's. TSOCKET_EPROTOCOL, TSOCKET_ENOMEM, TSOCKET_ESYSTEM.
 */
int tsc_ring_open(const int fds[2], const struct tsi_layout *layout, uint32_t name, struct tsc_ring **ring_out);

void tsc_ring_close(struct tsc_ring *ring); /* NULL is allowed */

#endif
