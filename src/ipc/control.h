/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control page of a stream: what consumers need to know to find their next window without asking. One page of
 * shared memory, written by the daemon alone (under the producer's lock), mapped read-only by every consumer.
 *
 *      position   0 ........ floor ............. head ................. floor + capacity
 *                 |  reused  |  may be read      |  being filled        |
 *
 *      epoch e occupies the positions [start[e], start[e] + len[e]), and start[e + 1] == start[e] + len[e].
 *
 * len[e] can only shrink, and only while head < start[e] + len[e]: a sample that cannot be used is decided when head
 * reaches it. So head <= start[e] + len[e] for the newest epoch, always; and once head has reached start[e] + len[e],
 * epoch e is decided: neither number changes any more.
 *
 * Orders. The writer stores start and len before `begun` or `head` (release); a reader loads head, then begun, then
 * start and len (acquire). A reader that sees an old head and a newer, smaller len is right as well, since the newer
 * len is never below the older head. A reader that sees a newer head sees every len that was stored before it.
 *
 * The floor is raised before anything below it is written over; a reader looks at it after it has read (check twice):
 * if floor is still at or below its window then, what it read was whole. The entries of start and len are a ring of
 * TSI_EPOCHS: an entry is reused only when floor has passed its epoch, so the same check covers them.
 *
 * A seat is a consumer's number on the page. While its bit is set, it is summoned: it must tell the daemon where it
 * stands before it takes another window, and is told where to read on.
 *
 * Behind the page lie capacity + 1 words, for as many positions: how many samples the epoch had lost when head passed
 * that position. With it a consumer can name a place from which the rest of the epoch can be made again, elsewhere or
 * later. (One more than slots, so that the one before the floor is there as well.)
 */
#ifndef TSI_CONTROL_H
#define TSI_CONTROL_H

#include <assert.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TSI_CONTROL_MAGIC   UINT32_C(0x6b637374) /* "tsck" */
#define TSI_CONTROL_VERSION UINT32_C(2)
#define TSI_CONTROL_BYTES   4096u /* of the page, without the words behind it */
#define TSI_SEATS           4096u
#define TSI_WHY_MAX         256u
#define TSI_EPOCHS          64u        /* epochs that can be in a ring at once */
#define TSI_LEN_OPEN        UINT64_MAX /* len of an epoch whose end the producer does not know yet */

enum tsi_state {
    TSI_RUNNING = 1,
    TSI_FINISHED = 2, /* the last epoch is decided: no more will begin */
    TSI_CLOSING = 3,  /* the daemon was told to stop before that */
    TSI_FAILED = 4,   /* the daemon gave up (too many bad samples, the disk fails) */
};

struct tsi_control_epoch {
    _Atomic uint64_t start;
    _Atomic uint64_t len;
};

struct tsi_control {
    uint32_t magic; /* constant once consumers can see the page */
    uint32_t version;
    _Atomic uint32_t state; /* enum tsi_state; release / acquire */
    uint32_t unused;
    _Alignas(64) _Atomic uint64_t head;
    _Atomic uint64_t begun; /* epochs 0 .. begun - 1 have an entry below, or had one */
    _Alignas(64) _Atomic uint64_t floor;
    _Alignas(64) struct tsi_control_epoch epochs[TSI_EPOCHS]; /* epoch e is at e % TSI_EPOCHS */
    _Atomic uint64_t summoned[TSI_SEATS / 64];                /* a bit per seat; relaxed: the messages do the rest */
    char why[TSI_WHY_MAX]; /* constant once the state is TSI_FAILED, and then not empty where there is a reason */
};

static_assert(offsetof(struct tsi_control, state) == 8, "the page is shared between builds");
static_assert(offsetof(struct tsi_control, head) == 64, "the page is shared between builds");
static_assert(offsetof(struct tsi_control, begun) == 72, "the page is shared between builds");
static_assert(offsetof(struct tsi_control, floor) == 128, "the page is shared between builds");
static_assert(offsetof(struct tsi_control, epochs) == 192, "the page is shared between builds");
static_assert(offsetof(struct tsi_control, summoned) == 1216, "the page is shared between builds");
static_assert(offsetof(struct tsi_control, why) == 1728, "the page is shared between builds");
static_assert(sizeof(struct tsi_control) <= TSI_CONTROL_BYTES, "the page is one page");
static_assert(ATOMIC_LLONG_LOCK_FREE == 2, "a lock inside shared memory could be held by the dead");

/* Bytes of the page with the words of a ring of `capacity` slots. */
uint64_t tsi_control_bytes(uint64_t capacity);

/* --- the daemon, with the producer's lock held */
void tsi_control_init(struct tsi_control *control);
void tsi_control_begin(struct tsi_control *control, uint64_t epoch, uint64_t start, uint64_t len);
/* The same where nobody reads: the numbers of epochs may jump, positions never go back. */
void tsi_control_restart(struct tsi_control *control, uint64_t epoch, uint64_t start, uint64_t len);
/* Of the epoch begun last, which has no sample yet and will have none: after the state became TSI_FINISHED. */
void tsi_control_take_back(struct tsi_control *control, uint64_t epoch);
void tsi_control_shorten(struct tsi_control *control, uint64_t epoch, uint64_t len);
void tsi_control_publish(struct tsi_control *control, uint64_t head);
void tsi_control_raise_floor(struct tsi_control *control, uint64_t floor);
void tsi_control_set_state(struct tsi_control *control, enum tsi_state state);
/* To TSI_FAILED; `why` is cut to fit, and what is not printable ASCII in it is quoted. Again: nothing. */
void tsi_control_fail(struct tsi_control *control, const char *why);
void tsi_control_summon(struct tsi_control *control, uint32_t seat, bool on);
/* Before the head that passes `position` is published. */
void tsi_control_note_removed(struct tsi_control *control, uint64_t capacity, uint64_t position, uint64_t removed);

/* --- readers */
struct tsi_sight { /* one look at the page, for one epoch */
    uint64_t head;
    uint64_t begun;
    uint64_t start; /* these two only if begun > epoch */
    uint64_t len;
};

struct tsi_sight tsi_control_look(const struct tsi_control *control, uint64_t epoch);

/* After the data of a window that begins at `position` was read: whether it was whole. */
int tsi_control_still_holds(const struct tsi_control *control, uint64_t position);

enum tsi_state tsi_control_state(const struct tsi_control *control);
/* After TSI_FAILED was seen: the reason, one line, maybe empty. The page is another process's: it may lack its end. */
void tsi_control_why(const struct tsi_control *control, char why_out[TSI_WHY_MAX]);
bool tsi_control_summoned(const struct tsi_control *control, uint32_t seat);

/* Samples that the epoch had lost when head passed `position`, which the reader has seen below head. */
uint64_t tsi_control_removed(const struct tsi_control *control, uint64_t capacity, uint64_t position);

#endif
