/* SPDX-License-Identifier: Apache-2.0 */
#include "ring.h"

#include <stdlib.h>

#include "../ipc/error.h"

/* The page that says so is one of ours. */
static int map_page(struct tsc_ring *ring, int fd)
{
    int rc = tsi_arena_map(fd, tsi_control_bytes(ring->layout.capacity), &ring->page);

    if (rc != TSOCKET_OK)
        return rc;
    ring->control = ring->page.base;
    if (ring->control->magic != TSI_CONTROL_MAGIC || ring->control->version != TSI_CONTROL_VERSION)
        return tsi_fail(TSOCKET_EPROTOCOL, "the daemon's control page is version %u, this library knows %u",
                        ring->control->version, (unsigned)TSI_CONTROL_VERSION);
    return TSOCKET_OK;
}

static int map_memory(struct tsc_ring *ring, const struct tsi_arena_ticket *ticket, const struct tsc_ring_fds *fds)
{
    int rc;

    if (ticket->kind == TSI_ARENA_HOST)
        return tsi_arena_map(fds->fds[1], ring->layout.bytes, &ring->memory);
    rc = tsi_device_open_uuid(&ticket->uuid, &ring->device);
    if (rc != TSOCKET_OK)
        return rc;
    return tsi_cuda_arena_map(&ring->device, ticket, fds->n > 1 ? fds->fds[1] : -1, ring->layout.bytes, &ring->memory);
}

static int map(struct tsc_ring *ring, const char *text, const struct tsc_ring_fds *fds)
{
    struct tsi_arena_ticket ticket;
    int rc = tsi_ticket_unpack(text, &ticket);

    if (rc == TSOCKET_OK && fds->n != (ticket.kind == TSI_ARENA_CUDA_IPC ? 1 : 2))
        rc = tsi_fail(TSOCKET_EPROTOCOL, "the daemon sent %u descriptors with memory of the kind %s", fds->n,
                      tsi_arena_word(ticket.kind));
    if (rc == TSOCKET_OK)
        rc = map_page(ring, fds->fds[0]);
    return rc == TSOCKET_OK ? map_memory(ring, &ticket, fds) : rc;
}

int tsc_ring_open(const struct tsc_ring_fds *fds, const struct tsi_layout *layout, const char *ticket, uint32_t name,
                  struct tsc_ring **ring_out)
{
    struct tsc_ring *ring = calloc(1, sizeof(*ring));
    int rc;

    if (ring == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for a ring's description");
    ring->page.fd = -1;
    ring->memory.fd = -1;
    ring->layout = *layout;
    ring->name = name;
    rc = map(ring, ticket, fds);
    if (rc == TSOCKET_OK)
        *ring_out = ring;
    else
        tsc_ring_close(ring);
    return rc;
}

void tsc_ring_unmap(struct tsc_ring *ring)
{
    if (ring->memory.kind == TSI_ARENA_HOST)
        return;
    tsi_arena_close(&ring->memory);
    tsi_device_close(&ring->device);
}

void tsc_ring_close(struct tsc_ring *ring)
{
    if (ring == NULL)
        return;
    tsi_arena_close(&ring->memory);
    tsi_device_close(&ring->device);
    tsi_arena_close(&ring->page);
    free(ring);
}
