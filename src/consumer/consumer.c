/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The consumer: walks one stream window by window.
 *
 *     next:    look at the control page -- window ready? --> hand it out (no system call)
 *                   ^                          | no
 *                   +-- READY -- sleep <-- WANT
 */
#include "handle.h"

#include <inttypes.h>
#include <poll.h>
#include <string.h>

#include "../ipc/clock.h"
#include "../ipc/error.h"
#include "../ipc/lifeline.h"
#include "../ipc/step.h"

enum {
    LOOK_MS = 1,
};

#define MIN(a, b) ((a) < (b) ? (a) : (b))

/* --- reading data */

int tsc_handle_read(const struct tsocket *ts, void *to, const void *from, uint64_t bytes)
{
    int rc;

    if (ts->kind == TSI_ARENA_HOST) {
        memcpy(to, from, bytes);
        return TSOCKET_OK;
    }
    rc = tsc_gpu_copy_out(ts->gpu, to, (uintptr_t)from, bytes);
    return rc == TSOCKET_OK ? tsc_gpu_finish(ts->gpu) : rc;
}

int tsocket_copy(const struct tsocket *ts, const struct tsocket_batch *batch, uint32_t field, void *to)
{
    if (ts == NULL || batch == NULL || to == NULL || field >= ts->n_fields)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_copy: NULL, or no such field");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    if (tsc_held_find(&ts->held, batch->id) == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_copy: batch %" PRIu64 " is not held by this handle", batch->id);
    return tsc_handle_read(ts, to, batch->data[field],
                           ts->welcome.layout.fields[ts->fields[field]].sample_bytes * batch->count);
}

int tsocket_convert_on(struct tsocket *ts, const struct tsocket_conversion *conversion, const struct tsocket_pick *pick,
                       const uint8_t *from, uint64_t images, uint64_t pixels, void *to, void *stream)
{
    static const struct tsocket_pick all = {.index = NULL};
    struct tsc_convert_shape shape;
    int rc;

    if (ts == NULL || conversion == NULL || from == NULL || to == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_convert_on: NULL");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    if (ts->kind == TSI_ARENA_HOST)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_convert_on: the data is in host memory; use tsocket_convert_picked");
    rc = tsc_convert_check(conversion);
    if (rc == TSOCKET_OK)
        rc = tsc_convert_shape(conversion, pick != NULL ? pick : &all, images, pixels, &shape);
    if (rc == TSOCKET_OK && images > 0 && pixels > 0 && ts->convert == NULL)
        rc = tsc_convert_gpu_open(ts->gpu, &ts->convert);
    if (rc != TSOCKET_OK || images == 0 || pixels == 0)
        return rc;
    return tsc_convert_gpu_run(ts->convert, conversion, pick != NULL ? pick : &all, &shape, (uintptr_t)from,
                               (uintptr_t)to, stream);
}

/* --- telling the daemon */

int tsc_handle_send(struct tsocket *ts, enum tsi_kind kind, uint64_t a, uint64_t b)
{
    struct tsi_hot hot = {.kind = kind, .ring = ts->ring->name, .a = a, .b = b};
    unsigned char message[TSI_HOT_BYTES];

    tsi_hot_pack(&hot, message);
    return tsi_socket_send(ts->link.socket, 0, message, sizeof(message));
}

/* A resident stream is the same positions in each pass. To the daemon they count on. */
static uint64_t passed_before(const struct tsocket *ts)
{
    return ts->welcome.resident ? (ts->walk.epoch - ts->welcome.epoch) * ts->ended.samples : 0;
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
    return tsc_held_floor(&ts->held, ts->ring, passed_before(ts) + MIN(next, limit));
}

/* Small steps are saved up, unless this consumer is about to wait (maybe for this very room) or may be away for long.
 */
void tsc_handle_tell_release(struct tsocket *ts, bool urgent)
{
    uint64_t position = release_position(ts);

    if (position > ts->released && (urgent || position - ts->released >= ts->save_up)) {
        ts->released = position;
        ts->release_due = true;
    }
    if (!ts->release_due)
        return;
    TSI_STEP(RELEASED);
    if (tsc_handle_send(ts, TSI_RELEASE, ts->released, ts->received_all) == TSOCKET_EAGAIN)
        return;
    ts->release_due = false;
    TSI_STEP(RELEASE_TOLD);
}

/* --- handing out */

/* The length of the lap, as far as is known, in an epoch that is now `len` samples long. */
static uint64_t lap_end(const struct tsocket *ts, uint64_t len)
{
    return ts->walk.until > 0 ? MIN(ts->walk.until, len) : len;
}

/*
 * Windows that this rank gets of the current lap, which now ends at `end`. A shard counts by the length without bad
 * samples, so that all ranks agree whenever they look: what is missing in the end is padded.
 */
static uint64_t rounds(const struct tsocket *ts, uint64_t end)
{
    uint64_t samples = ts->world > 1 ? ts->welcome.epoch_samples : end;

    return tsc_handle_windows(ts, samples > ts->walk.begin ? samples - ts->walk.begin : 0);
}

/* The floor has passed what was to be read: because this consumer was parked a moment ago, or for good. */
static int elapsed(const struct tsocket *ts, uint64_t position)
{
    if (tsc_move_is_due(ts))
        return TSOCKET_EAGAIN;
    return tsi_fail(TSOCKET_ELAPPED,
                    "the daemon has reused the memory at position %" PRIu64
                    ": this consumer no longer counts; close it and open again",
                    position);
}

/* Real samples count for the epoch that goes on, and only once. */
static void count(struct tsocket *ts, uint32_t valid)
{
    if (!ts->detour || ts->ahead.own_epoch == ts->walk.own_epoch)
        ts->received += valid;
    if (!ts->detour)
        ts->received_all += valid;
}

/* Samples that the epoch had lost before that index. Of one that is whole as far as was seen, the page says so. */
static uint64_t removed_before(const struct tsocket *ts, uint64_t index)
{
    if (index == 0 || ts->len_seen == ts->welcome.epoch_samples)
        return 0;
    return tsi_control_removed(ts->ring->control, ts->ring->layout.capacity, ts->start + index - 1);
}

/* A window is whole only if the floor has not passed it after we looked: invariant 3. */
static int hand_out(struct tsocket *ts, const struct tsocket_batch *batch, struct tsc_window *window,
                    struct tsocket_batch *batch_out)
{
    window->ring = ts->ring;
    window->walk = ts->walk;
    window->after = ts->walk.from;
    window->valid = batch->valid;
    window->again = ts->detour;
    if (batch->valid > 0) { /* a rank needs its last sample still: there may be none behind, and windows to be padded */
        window->after.index = batch->first + batch->valid - (ts->world > 1);
        window->after.removed = removed_before(ts, window->after.index);
    }
    tsc_witness_first(ts, batch, ts->held.next);
    if (!tsi_control_still_holds(ts->ring->control, window->position))
        return elapsed(ts, window->position);
    window->position += passed_before(ts);
    *batch_out = *batch;
    batch_out->id = tsc_held_add(&ts->held, window);
    ts->as_given = true;
    ts->skipped_now = 0;
    ts->walk.round++;
    ts->walk.from = window->after;
    count(ts, batch->valid);
    if (ts->detour) {
        ts->n_lost--;
        memmove(&ts->lost[0], &ts->lost[1], ts->n_lost * sizeof(ts->lost[0]));
    }
    TSI_STEP(GIVEN);
    return TSOCKET_OK;
}

static struct tsocket_batch describe_window(const struct tsocket *ts, uint32_t n, uint32_t valid)
{
    return (struct tsocket_batch){
        .epoch = ts->walk.epoch,
        .own_epoch = ts->walk.own_epoch,
        .first = tsc_handle_next_index(ts),
        .position = ts->start + tsc_handle_next_index(ts),
        .count = n,
        .valid = valid,
        .skipped = ts->skipped_now,
    };
}

static void *sample_at(const struct tsocket *ts, uint32_t field, uint64_t position)
{
    return tsi_layout_at(&ts->ring->layout, ts->ring->memory.base, field, position);
}

static int give_window(struct tsocket *ts, uint32_t n, struct tsocket_batch *batch_out)
{
    struct tsocket_batch batch = describe_window(ts, n, n);
    struct tsc_window window = {.position = batch.position};

    for (uint32_t i = 0; i < ts->n_fields; i++)
        batch.data[i] = sample_at(ts, ts->fields[i], batch.position);
    return hand_out(ts, &batch, &window, batch_out);
}

/* A full batch of private memory: the window's own samples, repeated; of none, the lap's last. */
static int give_padded(struct tsocket *ts, uint32_t valid, uint64_t end, struct tsocket_batch *batch_out)
{
    struct tsocket_batch batch = describe_window(ts, ts->batch, valid);
    struct tsc_window window = {.position = valid > 0 ? batch.position : end - 1, .private = true};
    struct tsc_padding padding = {
        .which = ts->held.next, .position = window.position, .count = batch.count, .cycle = valid > 0 ? valid : 1};
    int rc = tsc_pad_fill(&ts->pad, ts->ring, ts->fields, ts->n_fields, &padding, batch.data);

    if (rc != TSOCKET_OK)
        return rc;
    return hand_out(ts, &batch, &window, batch_out);
}

/* --- ends */

/* In a resident stream the next epoch is the same samples once more; else it lies behind this one. */
static void begin_next_epoch(struct tsocket *ts, uint64_t len)
{
    bool elsewhere = ts->walk.until > 0; /* this ring ends where the lap ends */

    ts->walk = (struct tsc_walk){
        .epoch = ts->walk.epoch + 1, .own_epoch = ts->walk.own_epoch + 1, .from = {.epoch = ts->walk.epoch + 1}};
    if (!ts->welcome.resident)
        ts->start += len;
    ts->len_seen = 0; /* not looked at yet: nothing of it is given back */
    if (elsewhere)
        tsc_move_to(ts, &ts->walk);
}

static int end_epoch(struct tsocket *ts, uint64_t len)
{
    uint64_t whole = ts->walk.until > 0 ? ts->walk.whole : len;

    ts->ended = (struct tsocket_epoch){.epoch = ts->walk.epoch,
                                       .own_epoch = ts->walk.own_epoch,
                                       .samples = whole,
                                       .received = ts->received,
                                       .skipped = ts->skipped};
    begin_next_epoch(ts, len);
    ts->received = 0;
    ts->skipped = 0;
    tsc_handle_tell_release(ts, true); /* what `drop` left out, and what other ranks read, must not be waited for */
    return TSOCKET_EPOCH_END;
}

/* The first lap of a consumer that joined late is over: what it missed is next. */
static int begin_second_lap(struct tsocket *ts, uint64_t len)
{
    struct tsc_walk walk = {.epoch = ts->walk.epoch,
                            .own_epoch = ts->walk.own_epoch,
                            .until = ts->walk.wrap,
                            .whole = len,
                            .from = {.epoch = ts->walk.epoch}};

    tsc_move_to(ts, &walk);
    return TSOCKET_EAGAIN;
}

/* The lap's end is certain, and what is left of it does not fill a window. */
static int give_tail(struct tsocket *ts, uint64_t end, uint64_t len, struct tsocket_batch *batch_out)
{
    uint64_t index = tsc_handle_next_index(ts);
    uint32_t valid = (uint32_t)(index < end ? end - index : 0);

    if (ts->walk.round >= rounds(ts, end) || end == 0)
        return ts->walk.wrap > 0 ? begin_second_lap(ts, len) : end_epoch(ts, len);
    if (tsc_held_full(&ts->held))
        return TSOCKET_EHELD;
    if (ts->world > 1 || ts->last == TSOCKET_LAST_PAD)
        return give_padded(ts, valid, ts->start + end, batch_out);
    return give_window(ts, valid, batch_out);
}

/* --- looking */

static bool no_more_epochs(const struct tsocket *ts)
{
    uint64_t limit = ts->welcome.epochs;

    return (ts->epochs > 0 && ts->walk.own_epoch >= ts->epochs) || (limit > 0 && ts->walk.epoch >= limit);
}

/*
 * Leaves samples out, in whole windows and within the epoch, if it is more than max_lag behind the newest one. What it
 * holds stays its own: the group waits for that as ever.
 */
static void skip(struct tsocket *ts, uint64_t ready, uint64_t end)
{
    uint64_t index = tsc_handle_next_index(ts);
    uint64_t newest = ts->head_seen > ts->start ? ts->head_seen - ts->start : 0;
    uint64_t round, samples;

    if (ts->max_lag == 0 || ts->ring != ts->group || ts->detour || ts->world > 1 || index >= ready ||
        newest <= index + ts->max_lag)
        return;
    round = MIN((newest - ts->max_lag - ts->walk.begin) / ts->batch, rounds(ts, end));
    if (round <= ts->walk.round)
        return;
    samples = MIN(ts->walk.begin + round * ts->batch, ready) - index;
    if (tsc_handle_send(ts, TSI_SKIPPED, ts->start + index, samples) != TSOCKET_OK)
        return; /* the daemon must be able to count it: at the next look, then */
    ts->walk.round = round;
    ts->walk.from.index = index + samples;
    ts->walk.from.removed = removed_before(ts, ts->walk.from.index);
    ts->skipped += samples;
    ts->skipped_now += samples;
}

static bool is_there(const struct tsocket *ts, const struct tsc_walk *target)
{
    return target->epoch == ts->walk.epoch && target->until == ts->walk.until && target->round == ts->walk.round;
}

/*
 * Windows that were lost are given again before anything else. The daemon hears where that begins and where it ends,
 * also if the way goes straight on: what is released between is no progress.
 */
static void steer(struct tsocket *ts)
{
    const struct tsc_walk *target = tsc_move_next(ts);
    bool detour = ts->n_lost > 0;

    if (!detour && !ts->detour)
        return;
    if (!ts->detour)
        ts->ahead = ts->walk;
    if (!is_there(ts, target) || (!detour && tsc_handle_send(ts, TSI_AHEAD, 0, 0) != TSOCKET_OK))
        tsc_move_to(ts, target);
    ts->detour = detour;
}

/* One look. TSOCKET_EAGAIN: not ready. */
static int try_next(struct tsocket *ts, struct tsocket_batch *batch_out)
{
    uint64_t epoch, index, ready, end;
    struct tsi_sight sight;

    steer(ts);
    if (no_more_epochs(ts) && !ts->detour)
        return TSOCKET_END;
    if (tsc_move_is_due(ts))
        return TSOCKET_EAGAIN;
    epoch = ts->welcome.resident ? 0 : ts->walk.epoch;
    sight = tsi_control_look(ts->ring->control, epoch);
    ts->head_seen = sight.head;
    if (sight.begun <= epoch)
        return tsi_control_state(ts->ring->control) == TSI_FINISHED ? TSOCKET_END : TSOCKET_EAGAIN;
    if (!ts->placed) {
        ts->start = sight.start;
        ts->placed = true;
    }
    ts->len_seen = sight.len;
    end = lap_end(ts, sight.len);
    ready = sight.head > ts->start ? MIN(sight.head - ts->start, end) : 0; /* head may be older than start */
    skip(ts, ready, end);
    index = tsc_handle_next_index(ts);
    if (!tsi_control_still_holds(ts->ring->control, MIN(ts->start + index, sight.head)))
        return elapsed(ts, ts->start + index);
    if (ready >= index + ts->batch && ts->walk.round < rounds(ts, end))
        return tsc_held_full(&ts->held) ? TSOCKET_EHELD : give_window(ts, ts->batch, batch_out);
    if (ready == end)
        return give_tail(ts, end, sight.len, batch_out);
    return TSOCKET_EAGAIN;
}

/* --- waiting */

/* Takes in what the daemon said: "look again", or where to read on. Sets *heard_out if there was something. */
static int hear(struct tsocket *ts, bool *heard_out)
{
    char message[TSI_MESSAGE_MAX];
    size_t len;
    int rc, worst = TSOCKET_OK;

    *heard_out = false;
    while ((rc = tsi_socket_recv(ts->link.socket, NULL, message, sizeof(message) - 1, &len)) != TSOCKET_EAGAIN) {
        *heard_out = true;
        ts->asked_index = 0;
        if (rc == TSOCKET_OK && len != TSI_HOT_BYTES) {
            message[len] = '\0';
            rc = tsc_move_hear(ts, message, len);
            worst = rc != TSOCKET_OK ? rc : worst;
        }
    }
    return worst;
}

/*
 * Asks to be woken when the next window may be there; once, until an answer has come. Returns whether the daemon will
 * hear of it: otherwise the queue is full.
 */
static bool ask(struct tsocket *ts)
{
    uint64_t epoch = ts->welcome.resident ? 0 : ts->walk.epoch;
    uint64_t index = tsc_handle_next_index(ts) + ts->batch;

    if (ts->walk.until > 0 && index > ts->walk.until)
        index = ts->walk.until;
    if (ts->asked_epoch == epoch && ts->asked_index == index)
        return true;
    TSI_STEP(WANT_DUE);
    if (tsc_handle_send(ts, TSI_WANT, epoch, index) != TSOCKET_OK)
        return false;
    TSI_STEP(WANT_SENT);
    ts->asked_epoch = epoch;
    ts->asked_index = index;
    return true;
}

/* Sleeps until something has happened that is worth another look, or the time is over. */
static int sleep_once(struct tsocket *ts, bool to_send, int left_ms)
{
    bool heard;
    int rc = tsi_socket_wait(ts->link.socket, ts->link.lifeline, to_send, left_ms);

    if (rc == TSOCKET_EINTR)
        return tsi_fail(rc, "a signal arrived while waiting");
    rc = hear(ts, &heard);
    if (rc != TSOCKET_OK)
        return rc;
    if (!heard)
        ts->gone = ts->gone || tsi_lifeline_hung_up(ts->link.lifeline);
    return left_ms == 0 && !ts->gone ? TSOCKET_EAGAIN : TSOCKET_OK;
}

/* While work of a GPU stands behind releases, or the lifeline is full, it is looked at so often: nobody says when. */
static int patience_ms(const struct tsocket *ts, uint64_t deadline_ns)
{
    int left_ms = tsi_clock_left_ms(tsi_clock_ns(), deadline_ns);

    if (ts->held.n_pending == 0 && ts->n_unsaid == 0)
        return left_ms;
    return left_ms < 0 || left_ms > LOOK_MS ? LOOK_MS : left_ms;
}

/* Room comes only from this consumer's own work, whatever the daemon does. */
static int wait_for_work(const struct tsocket *ts, uint64_t deadline_ns)
{
    int left_ms = patience_ms(ts, deadline_ns);

    if (left_ms == 0)
        return TSOCKET_EAGAIN;
    if (poll(NULL, 0, left_ms) < 0)
        return tsi_fail(TSOCKET_EINTR, "a signal arrived while waiting");
    return TSOCKET_OK;
}

/* Says what is to be said and sleeps once. */
static int wait_once(struct tsocket *ts, uint64_t deadline_ns)
{
    bool told;

    if (tsc_held_will_move(&ts->held))
        return wait_for_work(ts, deadline_ns);
    if (ts->gone)
        return tsc_move_come_back(ts, deadline_ns);
    tsc_handle_tell_release(ts, true);
    tsc_move_say_lost(ts);
    told = (tsc_move_is_due(ts) ? tsc_move_ask(ts) : ask(ts)) && !ts->release_due;
    return sleep_once(ts, !told, patience_ms(ts, deadline_ns));
}

/*
 * What it holds may be the very room that it would wait for: also less than it announced, where a window that was lost
 * has to be made again behind it.
 */
static bool is_stuck(const struct tsocket *ts)
{
    uint64_t end = MIN(tsc_handle_next_index(ts) + ts->batch, lap_end(ts, ts->len_seen));

    return (tsc_held_full(&ts->held) && !tsc_held_will_move(&ts->held)) ||
           (ts->placed && tsc_held_keeps_out(&ts->held, ts->ring, ts->start + end));
}

/* One look, after one at the work that releases wait for. */
static int look(struct tsocket *ts, struct tsocket_batch *batch_out)
{
    int rc;

    tsc_release_progress(ts);
    if (ts->refused != TSOCKET_OK)
        return tsi_fail(ts->refused, "%s", ts->reason);
    if (ts->lapsed) {
        ts->lapsed = false;
        return tsi_fail(TSOCKET_ELAPPED, "a batch was written over before the work behind its release was done; it is "
                                         "given again");
    }
    rc = try_next(ts, batch_out);
    return rc == TSOCKET_EHELD && tsc_held_will_move(&ts->held) ? TSOCKET_EAGAIN : rc;
}

/* Sleeps and looks again until there is something, or the time is over. */
static int wait_next(struct tsocket *ts, int timeout_ms, struct tsocket_batch *batch_out)
{
    uint64_t deadline_ns = tsi_clock_deadline(tsi_clock_ns(), timeout_ms);
    int rc;

    do {
        rc = wait_once(ts, deadline_ns);
        if (rc == TSOCKET_EAGAIN)
            return tsi_fail(rc, "nothing is ready within %d ms", timeout_ms);
        if (rc != TSOCKET_OK)
            return rc;
        rc = look(ts, batch_out);
        if (rc == TSOCKET_EAGAIN && is_stuck(ts))
            rc = TSOCKET_EHELD;
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
    if (ts->refused != TSOCKET_OK)
        return tsi_fail(ts->refused, "%s", ts->reason);
    ts->paused = false;
    rc = look(ts, batch_out);
    if (rc == TSOCKET_EAGAIN && is_stuck(ts) && ts->reconnect_ms == 0 && tsi_lifeline_hung_up(ts->link.lifeline))
        return tsc_move_come_back(ts, 0);
    if (rc == TSOCKET_EAGAIN && is_stuck(ts))
        rc = TSOCKET_EHELD;
    if (rc == TSOCKET_EAGAIN)
        rc = wait_next(ts, timeout_ms, batch_out);
    if (rc == TSOCKET_EHELD && tsc_held_full(&ts->held))
        return tsi_fail(rc, "%u batches are held, as many as announced at open (options.hold)", ts->held.hold);
    if (rc == TSOCKET_EHELD)
        return tsi_fail(rc,
                        "what comes next was lost, and can be made again only when a batch that is held is released");
    if (rc == TSOCKET_END)
        return tsi_fail(rc, "the stream %s/%s has ended", ts->welcome.daemon, ts->welcome.stream);
    return rc;
}
