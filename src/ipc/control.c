/* SPDX-License-Identifier: Apache-2.0 */
#include "control.h"

#include <string.h>

#include "log.h"

uint64_t tsi_control_bytes(uint64_t capacity)
{
    uint64_t bytes = TSI_CONTROL_BYTES + (capacity + 1) * sizeof(uint64_t);

    return (bytes + TSI_CONTROL_BYTES - 1) / TSI_CONTROL_BYTES * TSI_CONTROL_BYTES;
}

static _Atomic uint64_t *removed_at(const struct tsi_control *control, uint64_t capacity, uint64_t position)
{
    return (_Atomic uint64_t *)((uintptr_t)control + TSI_CONTROL_BYTES) + position % (capacity + 1);
}

void tsi_control_init(struct tsi_control *control)
{
    control->magic = TSI_CONTROL_MAGIC;
    control->version = TSI_CONTROL_VERSION;
    atomic_store_explicit(&control->state, TSI_RUNNING, memory_order_release);
}

void tsi_control_begin(struct tsi_control *control, uint64_t epoch, uint64_t start, uint64_t len)
{
    assert(epoch == atomic_load_explicit(&control->begun, memory_order_relaxed));
    tsi_control_restart(control, epoch, start, len);
}

void tsi_control_restart(struct tsi_control *control, uint64_t epoch, uint64_t start, uint64_t len)
{
    struct tsi_control_epoch *entry = &control->epochs[epoch % TSI_EPOCHS];

    atomic_store_explicit(&entry->start, start, memory_order_relaxed);
    atomic_store_explicit(&entry->len, len, memory_order_relaxed);
    atomic_store_explicit(&control->begun, epoch + 1, memory_order_release); /* with look's load of begun */
}

void tsi_control_take_back(struct tsi_control *control, uint64_t epoch)
{
    assert(epoch + 1 == atomic_load_explicit(&control->begun, memory_order_relaxed));
    atomic_store_explicit(&control->begun, epoch, memory_order_release); /* with look's load of begun */
}

void tsi_control_shorten(struct tsi_control *control, uint64_t epoch, uint64_t len)
{
    struct tsi_control_epoch *entry = &control->epochs[epoch % TSI_EPOCHS];

    assert(len < atomic_load_explicit(&entry->len, memory_order_relaxed));
    atomic_store_explicit(&entry->len, len, memory_order_relaxed); /* published by the head that comes next */
}

void tsi_control_publish(struct tsi_control *control, uint64_t head)
{
    assert(head >= atomic_load_explicit(&control->head, memory_order_relaxed));
    atomic_store_explicit(&control->head, head, memory_order_release); /* with look's load of head */
}

void tsi_control_raise_floor(struct tsi_control *control, uint64_t floor)
{
    assert(floor >= atomic_load_explicit(&control->floor, memory_order_relaxed));
    atomic_store_explicit(&control->floor, floor,
                          memory_order_release); /* a summons that made room for it comes first */
    /* The floor is seen before any byte that is written over below it: with the fence in still_holds. */
    atomic_thread_fence(memory_order_seq_cst);
}

void tsi_control_set_state(struct tsi_control *control, enum tsi_state state)
{
    atomic_store_explicit(&control->state, state, memory_order_release);
}

void tsi_control_fail(struct tsi_control *control, const char *why)
{
    if (tsi_control_state(control) == TSI_FAILED)
        return;
    tsi_log_quote(why, control->why, sizeof(control->why));
    tsi_control_set_state(control, TSI_FAILED);
}

void tsi_control_summon(struct tsi_control *control, uint32_t seat, bool on)
{
    _Atomic uint64_t *word = &control->summoned[seat / 64];
    uint64_t bit = UINT64_C(1) << (seat % 64);
    uint64_t bits = atomic_load_explicit(word, memory_order_relaxed);

    atomic_store_explicit(word, on ? bits | bit : bits & ~bit, memory_order_relaxed);
}

void tsi_control_note_removed(struct tsi_control *control, uint64_t capacity, uint64_t position, uint64_t removed)
{
    atomic_store_explicit(removed_at(control, capacity, position), removed, memory_order_relaxed);
}

struct tsi_sight tsi_control_look(const struct tsi_control *control, uint64_t epoch)
{
    const struct tsi_control_epoch *entry = &control->epochs[epoch % TSI_EPOCHS];
    struct tsi_sight sight;

    sight.head = atomic_load_explicit(&control->head, memory_order_acquire);
    sight.begun = atomic_load_explicit(&control->begun, memory_order_acquire);
    sight.start = atomic_load_explicit(&entry->start, memory_order_relaxed);
    sight.len = atomic_load_explicit(&entry->len, memory_order_relaxed);
    return sight;
}

int tsi_control_still_holds(const struct tsi_control *control, uint64_t position)
{
    atomic_thread_fence(memory_order_acquire); /* what was read before stays before this load */
    return atomic_load_explicit(&control->floor, memory_order_relaxed) <= position;
}

enum tsi_state tsi_control_state(const struct tsi_control *control)
{
    return (enum tsi_state)atomic_load_explicit(&control->state, memory_order_acquire);
}

void tsi_control_why(const struct tsi_control *control, char why_out[TSI_WHY_MAX])
{
    memcpy(why_out, control->why, TSI_WHY_MAX);
    why_out[TSI_WHY_MAX - 1] = '\0';
}

bool tsi_control_summoned(const struct tsi_control *control, uint32_t seat)
{
    atomic_thread_fence(memory_order_acquire); /* who saw a floor sees the summons that came before it */
    return atomic_load_explicit(&control->summoned[seat / 64], memory_order_relaxed) >> (seat % 64) & 1;
}

uint64_t tsi_control_removed(const struct tsi_control *control, uint64_t capacity, uint64_t position)
{
    return atomic_load_explicit(removed_at(control, capacity, position), memory_order_relaxed);
}
