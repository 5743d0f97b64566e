/* SPDX-License-Identifier: Apache-2.0 */
#include "held.h"

#include <assert.h>
#include <stdlib.h>

#include "../ipc/error.h"

int tsc_held_init(struct tsc_held *held, uint32_t hold)
{
    *held = (struct tsc_held){.windows = calloc(hold, sizeof(*held->windows)), .hold = hold};
    return held->windows != NULL ? TSOCKET_OK : tsi_fail(TSOCKET_ENOMEM, "no memory for %u windows", hold);
}

void tsc_held_fini(struct tsc_held *held)
{
    free(held->windows);
    held->windows = NULL;
}

static struct tsc_window *at(const struct tsc_held *held, uint64_t id)
{
    return &held->windows[id % held->hold];
}

bool tsc_held_full(const struct tsc_held *held)
{
    return held->next - held->oldest >= held->hold;
}

uint64_t tsc_held_add(struct tsc_held *held, const struct tsc_window *window)
{
    assert(!tsc_held_full(held));
    *at(held, held->next) = *window;
    at(held, held->next)->held = true;
    window->ring->held++;
    return held->next++;
}

const struct tsc_window *tsc_held_find(const struct tsc_held *held, uint64_t id)
{
    return id >= held->oldest && id < held->next && at(held, id)->held ? at(held, id) : NULL;
}

void tsc_held_release(struct tsc_held *held, uint64_t id)
{
    assert(tsc_held_find(held, id) != NULL);
    held->n_pending -= at(held, id)->pending;
    at(held, id)->pending = false;
    at(held, id)->held = false;
    at(held, id)->ring->held--;
    while (held->oldest < held->next && !at(held, held->oldest)->held)
        held->oldest++;
}

void tsc_held_retract(struct tsc_held *held, uint64_t id)
{
    assert(id + 1 == held->next && !at(held, id)->held);
    held->next = id;
    if (held->oldest > id)
        held->oldest = id;
}

void tsc_held_set_pending(struct tsc_held *held, uint64_t id)
{
    assert(tsc_held_find(held, id) != NULL && !at(held, id)->pending);
    at(held, id)->pending = true;
    held->n_pending++;
}

bool tsc_held_first_pending(const struct tsc_held *held, uint64_t *id_out)
{
    for (uint64_t id = held->oldest; held->n_pending > 0 && id < held->next; id++) {
        if (at(held, id)->held && at(held, id)->pending) {
            *id_out = id;
            return true;
        }
    }
    return false;
}

bool tsc_held_will_move(const struct tsc_held *held)
{
    return tsc_held_full(held) && at(held, held->oldest)->pending;
}

/* Of those that are held of that ring, the one that begins first there; NULL: none is. */
static const struct tsc_window *first_in(const struct tsc_held *held, const struct tsc_ring *ring)
{
    const struct tsc_window *first = NULL;

    for (uint64_t id = held->oldest; id < held->next; id++) {
        const struct tsc_window *window = at(held, id);

        if (window->held && window->ring == ring && (first == NULL || window->position < first->position))
            first = window; /* what was lost comes again behind others that lie further on */
    }
    return first;
}

uint64_t tsc_held_floor(const struct tsc_held *held, const struct tsc_ring *ring, uint64_t otherwise)
{
    const struct tsc_window *first = first_in(held, ring);

    return first != NULL ? first->position : otherwise;
}

bool tsc_held_keeps_out(const struct tsc_held *held, const struct tsc_ring *ring, uint64_t end)
{
    const struct tsc_window *first = first_in(held, ring);

    return first != NULL && !first->pending && end > first->position + ring->layout.capacity;
}
