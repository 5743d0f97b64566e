/* SPDX-License-Identifier: Apache-2.0 */
/* A consumer that reads elsewhere: see src/producer/side.h for the other side of it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ipc/clock.h"
#include "../ipc/error.h"
#include "../ipc/lifeline.h"
#include "../ipc/log.h"
#include "../ipc/step.h"
#include "handle.h"

#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))

enum {
    ANSWER_AGAIN_MS = 2000, /* for a daemon that has come back */
};

/* --- asking where to read */

bool tsc_move_is_due(const struct tsocket *ts)
{
    return ts->must_ask || ts->asked_place || tsi_control_summoned(ts->ring->control, ts->welcome.seat);
}

static int say_place(struct tsocket *ts, const char *type)
{
    struct tsi_hello message = {.place = ts->walk.from, .number = ++ts->said, .again = ts->detour};

    strcpy(message.type, type);
    return tsc_link_say(&ts->link, &message);
}

bool tsc_move_ask(struct tsocket *ts)
{
    if (ts->asked_place || ts->n_unsaid > 0) /* these first: they are tried again soon */
        return true;
    TSI_STEP(PLACE_DUE);
    ts->asked_place = say_place(ts, "PLACE") == TSOCKET_OK;
    TSI_STEP(PLACE_SAID);
    return ts->asked_place;
}

/* Nothing that was seen of the ring holds for what comes next. */
static void forget_place(struct tsocket *ts)
{
    ts->placed = false;
    ts->as_given = false;
    ts->head_seen = 0;
    ts->len_seen = 0;
    ts->asked_index = 0;
}

void tsc_move_to(struct tsocket *ts, const struct tsc_walk *walk)
{
    tsc_handle_tell_release(ts, true);
    ts->walk = *walk;
    ts->must_ask = true;
    ts->asked_place = false;
    forget_place(ts);
}

/* --- rings */

static struct tsc_ring *find_ring(const struct tsocket *ts, uint32_t name)
{
    struct tsc_ring *ring = ts->rings;

    while (ring != NULL && (ring->name != name || ring->gone))
        ring = ring->next;
    return ring;
}

static void read_from(struct tsocket *ts, struct tsc_ring *ring)
{
    ts->ring = ring;
    ts->released = 0;
    ts->release_due = false;
    ts->save_up = tsc_handle_save_up(ts);
}

/* Not while an answer is on its way, which may name any of them. */
void tsc_move_leave_unused(struct tsocket *ts)
{
    if (ts->asked_place)
        return;
    for (struct tsc_ring **at = &ts->rings; *at != NULL;) {
        struct tsc_ring *ring = *at;
        struct tsi_hot hot = {.kind = TSI_LEFT, .ring = ring->name};
        unsigned char message[TSI_HOT_BYTES];

        tsi_hot_pack(&hot, message);
        if (ring == ts->ring || ring == ts->group || ring->held > 0 ||
            (!ring->gone && tsi_socket_send(ts->link.socket, 0, message, sizeof(message)) != TSOCKET_OK)) {
            at = &ring->next; /* or the queue is full: the next time */
            continue;
        }
        *at = ring->next;
        TSI_STEP(RING_LEFT);
        tsc_ring_close(ring);
    }
}

void tsc_move_unmap_unused(struct tsocket *ts)
{
    bool all = true;

    if (!ts->emptied)
        return;
    for (struct tsc_ring *ring = ts->rings; ring != NULL; ring = ring->next) {
        if (ring->held == 0)
            tsc_ring_unmap(ring);
        all = all && ring->held == 0;
    }
    if (all)
        tsi_lifeline_hang_up(ts->link.lifeline); /* a daemon that is closing waits for that (tsp_loop_part) */
}

static int take_ring(struct tsocket *ts, const struct tsi_move *move, struct tsc_ring **ring_out)
{
    const struct tsi_layout *group = &ts->welcome.layout;
    struct tsi_layout layout;
    int rc = tsi_layout_init(group->fields, group->n_fields, move->capacity, group->mirror, &layout);

    if (rc == TSOCKET_OK)
        rc = tsc_link_take_ring(&ts->link, &layout, move->arena, move->ring, ring_out);
    if (rc != TSOCKET_OK)
        return rc;
    (*ring_out)->next = ts->rings;
    ts->rings = *ring_out;
    return TSOCKET_OK;
}

/* It cannot read on, now or later: what was sent is not sent again. */
static int give_up(struct tsocket *ts, int rc, const char *reason)
{
    ts->refused = rc;
    snprintf(ts->reason, sizeof(ts->reason), "%s", reason);
    return tsi_fail(rc, "%s", ts->reason);
}

int tsc_move_hear(struct tsocket *ts, const char *text, size_t len)
{
    struct tsc_ring *ring;
    struct tsi_move move;
    int rc = tsi_move_unpack(text, len, &move);

    if (rc != TSOCKET_OK)
        return rc;
    if (move.refused != TSOCKET_OK)
        return give_up(ts, move.refused, move.reason);
    TSI_STEP(MOVE_HEARD);
    if (move.memory)
        rc = take_ring(ts, &move, &ring);
    if (rc != TSOCKET_OK)
        return give_up(ts, rc, tsocket_last_error());
    if (!ts->asked_place || move.number != ts->said) /* it is elsewhere meanwhile, and has said so: this was too late */
        return TSOCKET_OK;
    ring = find_ring(ts, move.ring);
    if (ring == NULL)
        return give_up(ts, TSOCKET_EPROTOCOL, "the daemon names a ring that it has not sent");
    if (ring != ts->ring)
        read_from(ts, ring);
    ts->max_lag = move.max_lag;
    ts->must_ask = false;
    ts->asked_place = false;
    forget_place(ts);
    tsc_move_leave_unused(ts);
    return TSOCKET_OK;
}

/* --- lost windows */

static bool is_before(const struct tsc_walk *a, const struct tsc_walk *b)
{
    if (a->own_epoch != b->own_epoch)
        return a->own_epoch < b->own_epoch;
    if ((a->until > 0) != (b->until > 0))
        return b->until > 0;
    return a->round < b->round;
}

void tsc_move_say_lost(struct tsocket *ts)
{
    unsigned char packet[TSI_HOT_BYTES];
    uint32_t said = 0;

    while (said < ts->n_unsaid) {
        tsi_hot_pack(&ts->unsaid[said], packet);
        if (tsi_lifeline_send(ts->link.lifeline, packet, sizeof(packet), NULL, 0) != TSOCKET_OK)
            break;
        said++;
    }
    ts->n_unsaid -= said;
    memmove(&ts->unsaid[0], &ts->unsaid[said], ts->n_unsaid * sizeof(ts->unsaid[0]));
}

static void say(struct tsocket *ts, enum tsi_kind kind, const struct tsc_window *window)
{
    ts->unsaid[ts->n_unsaid++] = (struct tsi_hot){
        .kind = kind, .ring = window->valid, .a = window->walk.epoch, .b = tsc_handle_index(ts, &window->walk)};
    tsc_move_say_lost(ts);
}

void tsc_move_note_lost(struct tsocket *ts, const struct tsc_window *window)
{
    const struct tsc_walk *now = ts->detour ? &ts->ahead : &ts->walk;
    uint32_t i = ts->n_lost++;

    while (i > 0 && is_before(&window->walk, &ts->lost[i - 1].walk)) {
        ts->lost[i] = ts->lost[i - 1];
        i--;
    }
    ts->lost[i] = *window;
    if (window->walk.own_epoch == now->own_epoch)
        ts->received -= window->valid;
    if (!window->again) /* else the daemon knows that it is owed */
        say(ts, TSI_LOST, window);
}

void tsc_move_note_again(struct tsocket *ts, const struct tsc_window *window)
{
    say(ts, TSI_AGAIN, window);
}

/* A daemon that has come back knows of no window that is owed. */
static void say_anew(struct tsocket *ts)
{
    ts->n_unsaid = 0;
    for (uint32_t i = 0; i < ts->n_lost; i++)
        say(ts, TSI_LOST, &ts->lost[i]);
    for (uint64_t id = ts->held.oldest; id < ts->held.next; id++) {
        const struct tsc_window *window = tsc_held_find(&ts->held, id);

        if (window != NULL && window->again)
            say(ts, TSI_LOST, window);
    }
}

/* The walk that leads to the first window of its own way that it has not given back. */
static const struct tsc_walk *unreleased(const struct tsocket *ts)
{
    for (uint64_t id = ts->held.oldest; id < ts->held.next; id++) {
        const struct tsc_window *window = tsc_held_find(&ts->held, id);

        if (window != NULL && !window->again)
            return &window->walk;
    }
    return ts->detour ? &ts->ahead : &ts->walk;
}

bool tsc_move_passed(const struct tsocket *ts, struct tsi_hot *hot_out)
{
    const struct tsc_walk *walk = unreleased(ts);
    bool between = walk->own_epoch > 0 && walk->until == 0 && walk->from.index == 0; /* two epochs */

    /* a rank's place is not its job's; positions in a resident stream stay; who got nothing has released nothing */
    if (ts->world > 1 || ts->welcome.resident || ts->received_all == 0)
        return false;
    hot_out->a = between ? ts->ended.epoch : walk->from.epoch;
    hot_out->b = between ? ts->ended.samples : walk->from.index;
    return true;
}

/* --- pause */

static int check_free(const struct tsocket *ts, const char *call)
{
    if (ts->held.oldest < ts->held.next)
        return tsi_fail(TSOCKET_EHELD, "%s: batches are held, which would be written over; release them first", call);
    if (!ts->welcome.side)
        return tsi_fail(TSOCKET_EREFUSED,
                        "%s: the stream %s/%s has no side ring on which this consumer could go on; start tsocketd with "
                        "--side-rings 1 or more, and --side-ring as large as what it holds",
                        call, ts->welcome.daemon, ts->welcome.stream);
    return TSOCKET_OK;
}

int tsocket_pause(struct tsocket *ts)
{
    int rc;

    if (ts == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_pause: NULL");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    if (ts->paused || ts->welcome.resident)
        return TSOCKET_OK;
    tsc_release_progress(ts);
    rc = check_free(ts, "tsocket_pause");
    if (rc == TSOCKET_OK && tsi_lifeline_hung_up(ts->link.lifeline))
        rc = tsi_fail(TSOCKET_GONE, "tsocket_pause: the daemon %s is gone", ts->welcome.daemon);
    if (rc == TSOCKET_OK) {
        tsc_handle_tell_release(ts, true);
        rc = say_place(ts, "PAUSE");
    }
    if (rc != TSOCKET_OK)
        return rc;
    ts->paused = true;
    read_from(ts, ts->group); /* a side ring is given up: others may need it */
    ts->must_ask = true;
    ts->asked_place = false;
    forget_place(ts);
    tsc_move_leave_unused(ts);
    return TSOCKET_OK;
}

int tsocket_resume(struct tsocket *ts)
{
    if (ts == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_resume: NULL");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    if (!ts->paused)
        return TSOCKET_OK;
    if (tsi_lifeline_hung_up(ts->link.lifeline))
        return tsi_fail(TSOCKET_GONE, "tsocket_resume: the daemon %s is gone", ts->welcome.daemon);
    if (!tsc_move_ask(ts))
        return tsi_fail(TSOCKET_EAGAIN, "tsocket_resume: the queue to the daemon is full");
    ts->paused = false;
    return TSOCKET_OK;
}

/* --- tokens */

/* Of the place `after`, behind which `walk` leads on. */
static int make_token(const struct tsocket *ts, const struct tsi_place *after, const struct tsc_walk *walk,
                      char text_out[TSOCKET_TOKEN_MAX + 1])
{
    uint64_t index = tsc_handle_index(ts, walk) - (uint64_t)ts->rank * ts->batch; /* the job's, not this rank's */
    struct tsi_token token = {
        .from = *after,
        .ahead = index > after->index ? index - after->index : 0,
        .wrap = walk->wrap,
        .until = walk->until,
    };

    if (ts->welcome.origin[0] == '\0')
        return tsi_fail(TSOCKET_EREFUSED, "the stream %s/%s cannot go back: there are no tokens of it",
                        ts->welcome.daemon, ts->welcome.stream);
    memcpy(token.origin, ts->welcome.origin, sizeof(token.origin));
    return tsi_token_pack(&token, text_out);
}

const struct tsc_walk *tsc_move_next(const struct tsocket *ts)
{
    return ts->n_lost > 0 ? &ts->lost[0].walk : ts->detour ? &ts->ahead : &ts->walk;
}

static int token_of_next(const struct tsocket *ts, char text_out[TSOCKET_TOKEN_MAX + 1])
{
    const struct tsc_walk *walk = tsc_move_next(ts);

    return make_token(ts, &walk->from, walk, text_out);
}

int tsocket_token(const struct tsocket *ts, const struct tsocket_batch *batch, char text_out[TSOCKET_TOKEN_MAX + 1])
{
    const struct tsc_window *window;
    struct tsc_walk next;

    if (ts == NULL || text_out == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_token: NULL");
    if (tsc_handle_check(ts) != TSOCKET_OK)
        return TSOCKET_EFORK;
    if (batch == NULL)
        return token_of_next(ts, text_out);
    window = tsc_held_find(&ts->held, batch->id);
    if (window == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_token: batch %" PRIu64 " is not held by this handle", batch->id);
    if (window->again) /* those behind it have been given already */
        return token_of_next(ts, text_out);
    next = window->walk;
    next.round++;
    return make_token(ts, &window->after, &next, text_out);
}

/* --- a daemon that has gone */

static int gone(const struct tsocket *ts)
{
    static const char *const why[] = {
        [0] = "has died",
        [TSI_RUNNING] = "has died",
        [TSI_FINISHED] = "has ended",
        [TSI_CLOSING] = "is closing: it was told to stop",
        [TSI_FAILED] = "has given up",
    };
    enum tsi_state state = tsi_control_state(ts->ring->control);
    char said[TSI_WHY_MAX] = "";

    if (state == TSI_FAILED)
        tsi_control_why(ts->ring->control, said);
    return tsi_fail(TSOCKET_GONE, "the daemon %s %s%s%s", ts->welcome.daemon,
                    (size_t)state < sizeof(why) / sizeof(why[0]) ? why[state] : why[0], said[0] != '\0' ? ": " : "",
                    said);
}

/* Pointers must go on to mean what they meant. */
static int check_memory(const struct tsocket *ts, const struct tsc_ring *ring)
{
    const struct tsi_device *mine = tsc_gpu_device(ts->gpu);
    bool host = ring->memory.kind == TSI_ARENA_HOST;

    if (mine == NULL ? host : !host && memcmp(&mine->uuid, &ring->device.uuid, sizeof(mine->uuid)) == 0)
        return TSOCKET_OK;
    return tsi_fail(TSOCKET_EREFUSED, "the daemon has come back with its data elsewhere: it was %s",
                    mine != NULL ? mine->uuid_text : "in host memory");
}

static int check_same(const struct tsi_layout *a, const struct tsi_layout *b)
{
    bool same = a->n_fields == b->n_fields && a->mirror == b->mirror;

    for (uint32_t i = 0; same && i < a->n_fields; i++)
        same = memcmp(&a->fields[i], &b->fields[i], sizeof(a->fields[i])) == 0;
    return same ? TSOCKET_OK
                : tsi_fail(TSOCKET_EREFUSED, "the daemon has come back with other fields or another --max-batch");
}

/* What is held stays mapped: nobody writes there any more. */
static int adopt(struct tsocket *ts, struct tsc_attachment *attachment)
{
    int rc = check_same(&ts->welcome.layout, &attachment->welcome.layout);

    if (rc == TSOCKET_OK)
        rc = check_memory(ts, attachment->ring);
    if (rc != TSOCKET_OK) {
        tsc_detach(attachment);
        return rc;
    }
    for (struct tsc_ring *ring = ts->rings; ring != NULL; ring = ring->next)
        ring->gone = true;
    tsi_fork_forget(&ts->guard);
    tsc_link_close(&ts->link);
    ts->link = attachment->link;
    ts->welcome = attachment->welcome;
    attachment->ring->next = ts->rings;
    ts->rings = ts->group = attachment->ring;
    read_from(ts, ts->group);
    ts->gone = false;
    ts->gone_ns = 0;
    ts->emptied = false;
    ts->must_ask = ts->detour; /* the daemon takes it for where its own way goes on */
    ts->asked_place = false;
    forget_place(ts);
    say_anew(ts);
    tsc_move_leave_unused(ts);
    return tsc_handle_guard(ts);
}

/*
 * Tells the new daemon where this consumer is, as any other that resumes. What it has lost lies before that. Who is in
 * a hurry waits a little longer than that for an answer, or would never get one; not for long, where it is stopped.
 */
static int attach_again(struct tsocket *ts, int timeout_ms, struct tsc_attachment *attachment_out)
{
    const struct tsc_walk *walk = ts->detour ? &ts->ahead : &ts->walk;
    int answer_ms = timeout_ms < 0 ? TSC_ANSWER_MS : MIN(MAX(timeout_ms, ANSWER_AGAIN_MS), TSC_ANSWER_MS);
    int rc = make_token(ts, &walk->from, walk, ts->hello.resume);

    return rc == TSOCKET_OK ? tsc_attach(ts->welcome.daemon, &ts->hello, timeout_ms, answer_ms, attachment_out) : rc;
}

int tsc_move_come_back(struct tsocket *ts, uint64_t deadline_ns)
{
    struct tsc_attachment attachment;
    uint64_t now_ns = tsi_clock_ns(), give_up_ns;
    int rc;

    ts->emptied = true;
    tsc_move_unmap_unused(ts);
    rc = gone(ts);

    TSI_STEP(GONE_NOTICED);
    if (ts->reconnect_ms == 0 || ts->welcome.origin[0] == '\0')
        return rc;
    if (ts->gone_ns == 0) {
        tsi_log('W', "%s; waiting for its return", tsocket_last_error());
        ts->gone_ns = now_ns;
    }
    give_up_ns = ts->reconnect_ms < 0 ? UINT64_MAX : ts->gone_ns + (uint64_t)ts->reconnect_ms * TSI_NS_PER_MS;
    if (deadline_ns > give_up_ns)
        deadline_ns = give_up_ns;
    rc = attach_again(ts, tsi_clock_left_ms(now_ns, deadline_ns), &attachment);
    if (rc == TSOCKET_OK) {
        TSI_STEP(CAME_BACK);
        return adopt(ts, &attachment);
    }
    if (rc != TSOCKET_ENOTFOUND && rc != TSOCKET_GONE && rc != TSOCKET_EAGAIN)
        return rc;
    now_ns = tsi_clock_ns();
    if (now_ns >= give_up_ns)
        return gone(ts);
    /* it was dying when it was asked, or is stopped: once more */
    return rc != TSOCKET_ENOTFOUND && now_ns < deadline_ns ? TSOCKET_OK : TSOCKET_EAGAIN;
}
