/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer: walks one stream window by window.
 *
 *     next:    look at the control page -- window ready? --> hand it out (no system call)
 *                   ^                          | no
 *                   +-- READY -- sleep <-- WANT
 *     release: mark the window; tell the daemon how far nothing of ours is held
 */
#include "handle.h"

#include <inttypes.h>
#include <string.h>

#include "../ipc/clock.h"
#include "../ipc/error.h"
#include "../ipc/lifeline.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* --- telling the daemon */

static int send_hot(struct tsocket *ts, enum tsi_kind kind, uint64_t a, uint64_t b)
{
    struct tsi_hot hot = {.kind = kind, .a = a, .b = b};
    unsigned char message[TSI_HOT_BYTES];

    tsi_hot_pack(&hot, message);
    return tsi_socket_send(ts->attachment.link.socket, 0, message, sizeof(message));
}

/*
 * The position below which this consumer reads nothing any more. Never past the head, for the daemon takes it as room,
 * nor past the epoch's end, where the next window does not follow the stride. A rank keeps the newest sample of its
 * epoch that it knows of: the last one, from which a window behind the end is padded, is that or a later one.
 */
static uint64_t release_position(const struct tsocket *ts)
{
    uint64_t end = ts->len_seen == TSI_LEN_OPEN ? UINT64_MAX : ts->start + ts->len_seen;
    uint64_t limit = MIN(ts->head_seen, end);
    uint64_t next;

    if (!ts->placed)
        return ts->released;
    next = ts->start + tsc_handle_next_index(ts);
    if (ts->world > 1 && limit > ts->start && next >= limit)
        limit--;
    return tsc_held_floor(&ts->held, MIN(next, limit));
}

/*
 * Tells how far nothing is held. Small steps are saved up, unless it is `urgent`, because this consumer is about to
 * wait (maybe for this very room) or may be away for long.
 */
static void tell_release(struct tsocket *ts, bool urgent)
{
    uint64_t position = release_position(ts);

    if (position > ts->released && (urgent || position - ts->released >= ts->save_up)) {
        ts->released = position;
        ts->release_due = true;
    }
    if (ts->release_due && send_hot(ts, TSI_RELEASE, ts->released, ts->received_all) != TSOCKET_EAGAIN)
        ts->release_due = false;
}

int tsocket_flush(struct tsocket *ts)
{
    if (ts == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_flush: NULL");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    tell_release(ts, true);
    return ts->release_due ? tsi_fail(TSOCKET_EAGAIN, "the queue to the daemon is full") : TSOCKET_OK;
}

/* --- handing out */

/*
 * Windows that this rank gets of the current epoch, now `len` samples long. A shard counts by the length without bad
 * samples, so that all ranks agree whenever they look: what is missing in the end is padded.
 */
static uint64_t rounds(const struct tsocket *ts, uint64_t len)
{
    uint64_t samples = ts->world > 1 ? ts->attachment.welcome.epoch_samples : len;

    return tsc_handle_windows(ts, samples > ts->skip ? samples - ts->skip : 0);
}

static int elapped(uint64_t position)
{
    return tsi_fail(TSOCKET_ELAPPED,
                    "the daemon has reused the memory at position %" PRIu64
                    ": this consumer no longer counts; close it and open again",
                    position);
}

/* A window is whole only if the floor has not passed it after we looked: invariant 3. */
static int hand_out(struct tsocket *ts, const struct tsocket_batch *batch, uint64_t floor_position, bool private,
                    struct tsocket_batch *batch_out)
{
    if (!tsi_control_still_holds(ts->control, floor_position))
        return elapped(floor_position);
    *batch_out = *batch;
    batch_out->id = tsc_held_add(&ts->held, floor_position, private);
    ts->round++;
    ts->received += batch->valid;
    ts->received_all += batch->valid;
    return TSOCKET_OK;
}

static struct tsocket_batch describe_window(const struct tsocket *ts, uint32_t count, uint32_t valid)
{
    return (struct tsocket_batch){
        .epoch = ts->epoch,
        .own_epoch = ts->own_epoch,
        .first = tsc_handle_next_index(ts),
        .position = ts->start + tsc_handle_next_index(ts),
        .count = count,
        .valid = valid,
    };
}

static int give_window(struct tsocket *ts, uint32_t count, struct tsocket_batch *batch_out)
{
    struct tsocket_batch batch = describe_window(ts, count, count);

    for (uint32_t i = 0; i < ts->n_fields; i++)
        batch.data[i] = tsi_layout_at(ts->layout, ts->attachment.ring.base, ts->fields[i], batch.position);
    return hand_out(ts, &batch, batch.position, false, batch_out);
}

/* A full batch of private memory: the window's own samples, repeated; of none, the epoch's last. */
static int give_padded(struct tsocket *ts, uint32_t valid, uint64_t end, struct tsocket_batch *batch_out)
{
    struct tsocket_batch batch = describe_window(ts, ts->batch, valid);
    uint64_t from = valid > 0 ? batch.position : end - 1;
    uint32_t cycle = valid > 0 ? valid : 1;
    unsigned char *pad = ts->pad + ts->pad_bytes * (ts->held.next % ts->held.hold);

    for (uint32_t i = 0; i < ts->n_fields; i++) {
        uint64_t sample_bytes = ts->layout->fields[ts->fields[i]].sample_bytes;

        for (uint32_t n = 0; n < batch.count; n++)
            memcpy(pad + ts->pad_offset[i] + n * sample_bytes,
                   tsi_layout_at(ts->layout, ts->attachment.ring.base, ts->fields[i], from + n % cycle), sample_bytes);
        batch.data[i] = pad + ts->pad_offset[i];
    }
    return hand_out(ts, &batch, from, true, batch_out);
}

static int end_epoch(struct tsocket *ts, uint64_t len)
{
    ts->ended = (struct tsocket_epoch){
        .epoch = ts->epoch, .own_epoch = ts->own_epoch, .samples = len, .received = ts->received};
    ts->epoch++;
    ts->own_epoch++;
    ts->start += len;
    ts->len_seen = 0; /* not looked at yet: nothing of it is given back */
    ts->round = 0;
    ts->skip = 0;
    ts->received = 0;
    tell_release(ts, true); /* what `drop` left out, and what other ranks read, must not be waited for */
    return TSOCKET_EPOCH_END;
}

/* The epoch is decided, and what is left of it does not fill a window. */
static int give_tail(struct tsocket *ts, uint64_t len, struct tsocket_batch *batch_out)
{
    uint64_t index = tsc_handle_next_index(ts);
    uint32_t valid = (uint32_t)(index < len ? len - index : 0);

    if (ts->round >= rounds(ts, len) || len == 0)
        return end_epoch(ts, len);
    if (tsc_held_full(&ts->held))
        return TSOCKET_EHELD;
    if (ts->world > 1 || ts->last == TSOCKET_LAST_PAD)
        return give_padded(ts, valid, ts->start + len, batch_out);
    return give_window(ts, valid, batch_out);
}

static bool no_more_epochs(const struct tsocket *ts)
{
    uint64_t limit = ts->attachment.welcome.epochs;

    return (ts->epochs > 0 && ts->own_epoch >= ts->epochs) || (limit > 0 && ts->epoch >= limit);
}

/* One look. TSOCKET_EAGAIN: not ready. */
static int try_next(struct tsocket *ts, struct tsocket_batch *batch_out)
{
    struct tsi_sight sight;
    uint64_t index = tsc_handle_next_index(ts);
    uint64_t ready;

    if (no_more_epochs(ts))
        return TSOCKET_END;
    sight = tsi_control_look(ts->control, ts->epoch);
    ts->head_seen = sight.head;
    if (sight.begun <= ts->epoch)
        return tsi_control_state(ts->control) == TSI_FINISHED ? TSOCKET_END : TSOCKET_EAGAIN;
    if (!ts->placed) {
        ts->start = sight.start;
        ts->placed = true;
    }
    ts->len_seen = sight.len;
    if (!tsi_control_still_holds(ts->control, MIN(ts->start + index, sight.head)))
        return elapped(ts->start + index);
    ready = sight.head > ts->start ? MIN(sight.head - ts->start, sight.len) : 0; /* head may be older than start */
    if (ready >= index + ts->batch && ts->round < rounds(ts, sight.len))
        return tsc_held_full(&ts->held) ? TSOCKET_EHELD : give_window(ts, ts->batch, batch_out);
    if (ready == sight.len)
        return give_tail(ts, sight.len, batch_out);
    return TSOCKET_EAGAIN;
}

/* --- waiting */

/* Takes in what the daemon said. All it ever says is "look again": returns whether it did. */
static bool hear(struct tsocket *ts)
{
    unsigned char message[TSI_HOT_BYTES];
    bool heard = false;
    size_t len;

    while (tsi_socket_recv(ts->attachment.link.socket, NULL, message, sizeof(message), &len) != TSOCKET_EAGAIN)
        heard = true;
    if (heard)
        ts->asked_index = 0;
    return heard;
}

static int gone(const struct tsocket *ts)
{
    static const char *const why[] = {
        [0] = "has died",
        [TSI_RUNNING] = "has died",
        [TSI_FINISHED] = "has ended",
        [TSI_CLOSING] = "is closing: it was told to stop",
        [TSI_FAILED] = "has given up; its log says why",
    };
    enum tsi_state state = tsi_control_state(ts->control);

    return tsi_fail(TSOCKET_GONE, "the daemon %s %s", ts->attachment.welcome.daemon,
                    (size_t)state < sizeof(why) / sizeof(why[0]) ? why[state] : why[0]);
}

/*
 * Asks to be woken when the next window may be there; once, until an answer has come. Returns whether the daemon will
 * hear of it: otherwise the queue is full.
 */
static bool ask(struct tsocket *ts)
{
    uint64_t index = tsc_handle_next_index(ts) + ts->batch;

    if (ts->asked_epoch == ts->epoch && ts->asked_index == index)
        return true;
    if (send_hot(ts, TSI_WANT, ts->epoch, index) != TSOCKET_OK)
        return false;
    ts->asked_epoch = ts->epoch;
    ts->asked_index = index;
    return true;
}

/* Sleeps until something has happened that is worth another look, or the time is over. */
static int sleep_once(struct tsocket *ts, bool to_send, int left_ms)
{
    int rc = tsi_socket_wait(ts->attachment.link.socket, ts->attachment.link.lifeline, to_send, left_ms);

    if (rc == TSOCKET_EINTR)
        return tsi_fail(rc, "a signal arrived while waiting");
    if (!hear(ts))
        ts->gone = ts->gone || tsi_lifeline_hung_up(ts->attachment.link.lifeline);
    return left_ms == 0 && !ts->gone ? TSOCKET_EAGAIN : TSOCKET_OK;
}

/* Sleeps and looks again until there is something, or the time is over. */
static int wait_next(struct tsocket *ts, int timeout_ms, struct tsocket_batch *batch_out)
{
    uint64_t deadline_ns = tsi_clock_deadline(tsi_clock_ns(), timeout_ms);
    bool told;
    int rc;

    do {
        if (ts->gone)
            return gone(ts);
        tell_release(ts, true);
        told = ask(ts) && !ts->release_due;
        rc = sleep_once(ts, !told, tsi_clock_left_ms(tsi_clock_ns(), deadline_ns));
        if (rc == TSOCKET_EINTR)
            return rc;
        if (rc == TSOCKET_EAGAIN)
            return tsi_fail(rc, "nothing is ready within %d ms", timeout_ms);
        rc = try_next(ts, batch_out);
    } while (rc == TSOCKET_EAGAIN);
    return rc;
}

int tsocket_next(struct tsocket *ts, int timeout_ms, struct tsocket_batch *batch_out)
{
    int rc;

    if (ts == NULL || batch_out == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_next: NULL");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    rc = try_next(ts, batch_out);
    if (rc == TSOCKET_EAGAIN &&
        tsc_held_full(&ts->held)) /* what it holds may be the very room that it would wait for */
        rc = tsi_lifeline_hung_up(ts->attachment.link.lifeline) ? gone(ts) : TSOCKET_EHELD;
    if (rc == TSOCKET_EAGAIN)
        rc = wait_next(ts, timeout_ms, batch_out);
    if (rc == TSOCKET_EHELD)
        return tsi_fail(rc, "%u batches are held, as many as announced at open (options.hold)", ts->held.hold);
    if (rc == TSOCKET_END)
        return tsi_fail(rc, "the stream %s/%s has ended", ts->attachment.welcome.daemon, ts->attachment.welcome.stream);
    return rc;
}

int tsocket_release(struct tsocket *ts, const struct tsocket_batch *batch)
{
    const struct tsc_window *window;
    bool whole;

    if (ts == NULL || batch == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_release: NULL");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    window = tsc_held_find(&ts->held, batch->id);
    if (window == NULL)
        return tsi_fail(TSOCKET_EINVAL, "batch %" PRIu64 " is not held by this handle", batch->id);
    whole = window->private || tsi_control_still_holds(ts->control, window->position);
    tsc_held_release(&ts->held, batch->id);
    tell_release(ts, false);
    return whole ? TSOCKET_OK : elapped(batch->position);
}
