/* SPDX-License-Identifier: Apache-2.0 */
#include "filler.h"

#include <assert.h>
#include <stdlib.h>

#include "../ipc/control.h"
#include "../ipc/error.h"

static struct tsp_slot *slot_at(const struct tsp_filler *filler, uint64_t position)
{
    return &filler->slots[position % filler->capacity];
}

static void clear(struct tsp_slot *slot)
{
    free(slot->why);
    *slot = (struct tsp_slot){.state = TSP_SLOT_FREE};
}

static uint64_t end_of(const struct tsp_filler *filler)
{
    return filler->len == TSI_LEN_OPEN ? UINT64_MAX : filler->start + filler->len;
}

int tsp_filler_init(struct tsp_filler *filler, uint64_t capacity)
{
    *filler = (struct tsp_filler){.slots = calloc(capacity, sizeof(*filler->slots)), .capacity = capacity};
    return filler->slots != NULL ? TSOCKET_OK : tsi_fail(TSOCKET_ENOMEM, "no memory for the state of a ring");
}

void tsp_filler_fini(struct tsp_filler *filler)
{
    for (uint64_t i = 0; filler->slots != NULL && i < filler->capacity; i++)
        free(filler->slots[i].why);
    free(filler->slots);
    filler->slots = NULL;
}

void tsp_filler_begin(struct tsp_filler *filler, uint64_t epoch, uint64_t start, uint64_t len, uint64_t index)
{
    assert(filler->out == 0 && index <= len && start + index >= filler->head);
    for (uint64_t position = filler->head; position < filler->next; position++) /* made for places that are no more */
        clear(slot_at(filler, position));
    filler->epoch = epoch;
    filler->start = start;
    filler->len = len;
    filler->head = start + index;
    filler->next = filler->head;
    filler->limit = filler->head;
    filler->ending = false;
    filler->redo = false;
    filler->stopped = false;
}

void tsp_filler_stop(struct tsp_filler *filler)
{
    filler->stopped = true;
    filler->limit = filler->next;
}

void tsp_filler_go_on(struct tsp_filler *filler)
{
    filler->stopped = false;
}

bool tsp_filler_allow(struct tsp_filler *filler, uint64_t limit)
{
    if (limit > end_of(filler))
        limit = end_of(filler);
    if (limit <= filler->limit || filler->ending || filler->stopped)
        return false;
    assert(limit <= filler->head + filler->capacity);
    filler->limit = limit;
    return true;
}

bool tsp_filler_take(struct tsp_filler *filler, uint64_t *position_out, uint64_t *ordinal_out)
{
    uint64_t position;

    if (filler->stopped)
        return false;
    if (filler->redo) {
        position = filler->head;
        *ordinal_out = filler->redo_ordinal;
        filler->redo = false;
    } else if (filler->next < filler->limit) {
        position = filler->next++;
        *ordinal_out = position - filler->start;
    } else {
        return false;
    }
    assert(slot_at(filler, position)->state == TSP_SLOT_FREE);
    slot_at(filler, position)->state = TSP_SLOT_OUT;
    filler->out++;
    *position_out = position;
    return true;
}

bool tsp_filler_put(struct tsp_filler *filler, uint64_t position, enum tsp_slot_state state, const char *kind,
                    char *why)
{
    struct tsp_slot *slot = slot_at(filler, position);

    assert(slot->state == TSP_SLOT_OUT && filler->out > 0);
    *slot = (struct tsp_slot){.state = state, .kind = kind, .why = why};
    filler->out--;
    if (state == TSP_SLOT_END) {
        filler->ending = true;
        filler->limit = filler->next;
    }
    return position == filler->head || (filler->out == 0 && (filler->stopped || tsp_filler_decided(filler)));
}

enum tsp_slot_state tsp_filler_advance(struct tsp_filler *filler)
{
    while (filler->head < filler->next && filler->head < end_of(filler)) {
        struct tsp_slot *slot = slot_at(filler, filler->head);

        if (slot->state != TSP_SLOT_READY)
            return slot->state;
        slot->state = TSP_SLOT_FREE;
        filler->head++;
    }
    return TSP_SLOT_FREE;
}

static void shorten(struct tsp_filler *filler, uint64_t len)
{
    filler->len = len;
    if (filler->limit > end_of(filler))
        filler->limit = end_of(filler);
}

void tsp_filler_skip(struct tsp_filler *filler)
{
    assert(slot_at(filler, filler->head)->state == TSP_SLOT_BAD && filler->head < end_of(filler));
    clear(slot_at(filler, filler->head));
    shorten(filler, filler->len - 1);
    if (filler->head < end_of(filler)) {
        filler->redo = true;
        filler->redo_ordinal = filler->len; /* the last remaining one: it has just lost its own place */
    }
}

void tsp_filler_pass(struct tsp_filler *filler)
{
    clear(slot_at(filler, filler->head));
    slot_at(filler, filler->head)->state = TSP_SLOT_READY;
}

void tsp_filler_cut(struct tsp_filler *filler)
{
    filler->redo = false;
    shorten(filler, filler->head - filler->start);
}

bool tsp_filler_decided(const struct tsp_filler *filler)
{
    return filler->head == end_of(filler);
}

void tsp_filler_jump(struct tsp_filler *filler)
{
    filler->head = filler->limit;
    filler->next = filler->limit;
}
