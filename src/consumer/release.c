/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving windows back: at once, or as soon as the work that a GPU has been given with them is done.
 *
 *     held --release--> given back
 *       |
 *       +--put_back: as if next had not given it
 *       |
 *       +--release_after: an event on the caller's stream--> pending --the event has passed, seen at the next call-->
 * given back
 */
#include "handle.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../ipc/error.h"
#include "../ipc/log.h"

/* --- one window */

/* What is done with every window that is not held any more. False: it has been written over meanwhile. */
static bool let_go(struct tsocket *ts, const struct tsc_window *window, uint64_t id)
{
    bool whole = window->private || tsi_control_still_holds(window->ring->control, window->position);

    if (whole)
        tsc_witness_again(ts, window, id);
    tsc_held_release(&ts->held, id);
    tsc_handle_tell_release(ts, false);
    if (window->ring != ts->ring)
        tsc_move_leave_unused(ts);
    tsc_move_unmap_unused(ts);
    return whole;
}

/* Its data must not have changed while it was held; TSOCKET_ELAPPED, and it will be given again. */
static int give_back(struct tsocket *ts, uint64_t id)
{
    const struct tsc_window *window = tsc_held_find(&ts->held, id); /* its place stays as it is until the next one */
    bool whole = let_go(ts, window, id);

    if (whole && window->again)
        tsc_move_note_again(ts, window);
    if (whole)
        return TSOCKET_OK;
    tsc_move_note_lost(ts, window);
    return tsi_fail(TSOCKET_ELAPPED,
                    "the batch that ended at sample %" PRIu64 " of epoch %" PRIu64
                    " was written over while it was held, since this consumer had kept the group waiting for too long; "
                    "next gives it again",
                    tsc_handle_index(ts, &window->walk) + window->valid, window->walk.epoch);
}

static int find(const struct tsocket *ts, const struct tsocket_batch *batch, const char *call)
{
    const struct tsc_window *window;

    if (ts == NULL || batch == NULL)
        return tsi_fail(TSOCKET_EINVAL, "%s: NULL", call);
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    window = tsc_held_find(&ts->held, batch->id);
    if (window == NULL || window->pending)
        return tsi_fail(TSOCKET_EINVAL, "%s: batch %" PRIu64 " is not held by this handle", call, batch->id);
    return TSOCKET_OK;
}

int tsocket_release(struct tsocket *ts, const struct tsocket_batch *batch)
{
    int rc = find(ts, batch, "tsocket_release");

    if (rc != TSOCKET_OK)
        return rc;
    tsc_release_progress(ts);
    return give_back(ts, batch->id);
}

/* --- unread */

/* Nothing has happened since next gave it, so that this consumer can simply stand where it stood before. */
static bool is_newest(const struct tsocket *ts, const struct tsc_window *window, uint64_t id)
{
    return id + 1 == ts->held.next && window->ring == ts->ring && ts->as_given && !ts->asked_place &&
           window->again == ts->detour && window->walk.own_epoch == ts->walk.own_epoch &&
           window->walk.until == ts->walk.until;
}

int tsocket_put_back(struct tsocket *ts, const struct tsocket_batch *batch)
{
    const struct tsc_window *window;
    int rc = find(ts, batch, "tsocket_put_back");

    if (rc != TSOCKET_OK)
        return rc;
    window = tsc_held_find(&ts->held, batch->id);
    if (!is_newest(ts, window, batch->id))
        return tsi_fail(TSOCKET_EINVAL, "tsocket_put_back: batch %" PRIu64 " is not the last one that next gave",
                        batch->id);
    ts->walk = window->walk;
    ts->skipped_now = batch->skipped;
    if (window->again) {
        tsc_move_note_lost(ts, window);
    } else {
        ts->received -= window->valid;
        ts->received_all -= window->valid;
    }
    let_go(ts, window, batch->id);
    tsc_held_retract(&ts->held, batch->id);
    return TSOCKET_OK;
}

/* --- behind work of a GPU */

static uint32_t event_of(const struct tsocket *ts, uint64_t id)
{
    return (uint32_t)(id % ts->held.hold);
}

int tsocket_release_after(struct tsocket *ts, const struct tsocket_batch *batch, void *stream)
{
    int rc = find(ts, batch, "tsocket_release_after");

    if (rc != TSOCKET_OK)
        return rc;
    tsc_release_progress(ts);
    if (ts->gpu == NULL)
        rc = tsc_gpu_open(NULL, ts->held.hold, &ts->gpu);
    if (rc == TSOCKET_OK)
        rc = tsc_gpu_record(ts->gpu, event_of(ts, batch->id), stream);
    if (rc == TSOCKET_OK)
        tsc_held_set_pending(&ts->held, batch->id);
    return rc;
}

/* Nothing that this handle gave can be trusted any more. */
static void fail_for_good(struct tsocket *ts, int rc)
{
    ts->refused = rc;
    snprintf(ts->reason, sizeof(ts->reason), "%s", tsocket_last_error());
}

/* In the order of the events: behind one that has not passed, others hardly have, and are not asked. */
void tsc_release_progress(struct tsocket *ts)
{
    uint64_t id;
    bool passed = true;

    while (ts->refused == TSOCKET_OK && tsc_held_first_pending(&ts->held, &id)) {
        int rc = tsc_gpu_passed(ts->gpu, event_of(ts, id), &passed);

        if (rc != TSOCKET_OK) {
            fail_for_good(ts, rc);
            return;
        }
        if (!passed)
            return;
        if (give_back(ts, id) == TSOCKET_ELAPPED)
            ts->lapsed = true;
    }
}

void tsc_release_await(struct tsocket *ts)
{
    uint64_t id;

    while (tsc_held_first_pending(&ts->held, &id)) {
        tsc_gpu_await(ts->gpu, event_of(ts, id));
        tsc_held_release(&ts->held, id);
    }
}

int tsocket_flush(struct tsocket *ts)
{
    if (ts == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_flush: NULL");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    tsc_release_progress(ts);
    tsc_handle_tell_release(ts, true);
    if (ts->refused != TSOCKET_OK)
        return tsi_fail(ts->refused, "%s", ts->reason);
    if (ts->held.n_pending > 0)
        return tsi_fail(TSOCKET_EAGAIN, "%u batches are released behind work that is not done", ts->held.n_pending);
    return ts->release_due ? tsi_fail(TSOCKET_EAGAIN, "the queue to the daemon is full") : TSOCKET_OK;
}
