/* SPDX-License-Identifier: Apache-2.0 */
#include "ring.h"

#include <stdlib.h>

#include "../ipc/error.h"

/* Both mapped, and the page that says so is one of ours. */
static int map(struct tsc_ring *ring, const int fds[2])
{
    int rc = tsi_arena_map(fds[0], tsi_control_bytes(ring->layout.capacity), &ring->page);

    if (rc != TSOCKET_OK)
        return rc;
    ring->control = ring->page.base;
    if (ring->control->magic != TSI_CONTROL_MAGIC || ring->control->version != TSI_CONTROL_VERSION)
        return tsi_fail(TSOCKET_EPROTOCOL, "the daemon's control page is version %u, this library knows %u",
                        ring->control->version, (unsigned)TSI_CONTROL_VERSION);
    return tsi_arena_map(fds[1], ring->layout.bytes, &ring->memory);
}

int tsc_ring_open(const int fds[2], const struct tsi_layout *layout, uint32_t name, struct tsc_ring **ring_out)
{
    struct tsc_ring *ring = calloc(1, sizeof(*ring));
    int rc;

    if (ring == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for a ring's description");
    ring->page.fd = -1;
    ring->memory.fd = -1;
    ring->layout = *layout;
    ring->name = name;
    rc = map(ring, fds);
    if (rc == TSOCKET_OK)
        *ring_out = ring;
    else
        tsc_ring_close(ring);
    return rc;
}

void tsc_ring_close(struct tsc_ring *ring)
{
    if (ring == NULL)
        return;
    tsi_arena_close(&ring->memory);
    tsi_arena_close(&ring->page);
    free(ring);
}
