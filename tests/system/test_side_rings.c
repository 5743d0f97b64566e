/* SPDX-License-Identifier: Apache-2.0 */
/* Consumers that pause, lag and come late: nothing lost, nothing twice, nobody waits for them. */
#include <inttypes.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "rig.h"

enum {
    PATIENCE_MS = 20000,
    EVERY_MS = 1,
    MAX_HOLD_MS = 600, /* longer than this machine stands still, hopefully */
};

static void nap(long ms)
{
    const struct timespec time = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};

    nanosleep(&time, NULL);
}

/* --- a consumer in a thread of its own, which reads epochs and checks every sample */

struct reader {
    pthread_t thread;
    struct tsocket *ts;
    uint64_t epochs;
    atomic_uint_fast64_t samples;
    atomic_bool good;
};

static void *read_epochs(void *context)
{
    struct reader *reader = context;
    uint64_t ended = 0;

    while (ended < reader->epochs) {
        struct tsocket_batch batch;
        int rc = tsocket_next(reader->ts, PATIENCE_MS, &batch);

        if (rc == TSOCKET_EPOCH_END) {
            ended++;
            continue;
        }
        bool holds = rc == TSOCKET_OK && rig_holds(&batch);
        int released = rc == TSOCKET_OK ? tsocket_release(reader->ts, &batch) : rc;

        if (rc == TSOCKET_OK && released == TSOCKET_ELAPPED) /* this machine has stood still: it comes again */
            continue;
        if (released != TSOCKET_OK || !holds) {
            print_error("next: %d, release: %d, as promised: %d, %" PRIu64 " samples before: %s\n", rc, released, holds,
                        (uint64_t)reader->samples, tsocket_last_error());
            reader->good = false;
            break;
        }
        reader->samples += batch.valid;
    }
    return NULL;
}

static void reader_start(struct reader *reader, uint32_t batch, uint64_t epochs)
{
    *reader = (struct reader){.ts = rig_attach(batch, NULL), .epochs = epochs};
    atomic_store(&reader->good, true);
    assert_int_equal(pthread_create(&reader->thread, NULL, read_epochs, reader), 0);
}

static void reader_finish(struct reader *reader)
{
    pthread_join(reader->thread, NULL);
    assert_true(reader->good);
    tsocket_close(reader->ts);
}

static void wait_for_samples(const struct reader *reader, uint64_t samples)
{
    for (int i = 0; i < PATIENCE_MS && reader->samples < samples; i++)
        nap(EVERY_MS);
    assert_true(reader->samples >= samples);
}

/* On a machine that stands still for longer than max_hold_ms it may be lost, and comes again. */
static void expect_and_release(struct tsocket *ts, uint64_t epoch, uint64_t first, uint32_t count)
{
    struct tsocket_batch batch;
    int rc;

    do {
        rig_expect_batch(ts, epoch, first, count, &batch);
        rc = tsocket_release(ts, &batch);
    } while (rc == TSOCKET_ELAPPED);
    assert_int_equal(rc, TSOCKET_OK);
}

/* The windows of an epoch from `first` on, and its end. */
static void expect_rest(struct tsocket *ts, uint64_t epoch, uint64_t first, uint32_t batch, uint64_t samples)
{
    for (; first < samples; first += batch)
        expect_and_release(ts, epoch, first, (uint32_t)(samples - first < batch ? samples - first : batch));
    rig_expect_epoch_end(ts, epoch, samples);
}

/* --- pause */

static void a_pause_that_nobody_notices_changes_nothing(void **state)
{
    struct rig *rig = rig_open(
        &(struct rig_options){.epoch_samples = 103, .epochs = 2, .capacity = 40, .max_batch = 10, .side_rings = 1});
    struct tsocket *ts = rig_attach(10, NULL);

    (void)state;
    for (uint64_t first = 0; first < 50; first += 10) {
        rig_expect_and_release(ts, 0, first, 10);
        assert_int_equal(tsocket_pause(ts), TSOCKET_OK);
        if (first % 20 == 0)
            assert_int_equal(tsocket_resume(ts), TSOCKET_OK);
    }
    expect_rest(ts, 0, 50, 10, 103);
    assert_int_equal(tsocket_pause(ts), TSOCKET_OK); /* between two epochs, as for a validation */
    expect_rest(ts, 1, 0, 10, 103);
    tsocket_close(ts);
    rig_close(rig);
}

static void who_pauses_holds_nobody_up_and_goes_on_where_it_was(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = 103,
                                                     .epochs = 5,
                                                     .capacity = 40,
                                                     .max_batch = 10,
                                                     .threads = 2,
                                                     .wait_for = 2,
                                                     .side_rings = 1});
    struct tsocket *ts = rig_attach(7, NULL);
    struct reader other;

    (void)state;
    reader_start(&other, 10, 5);
    for (uint64_t first = 0; first < 35; first += 7)
        rig_expect_and_release(ts, 0, first, 7);
    assert_int_equal(tsocket_pause(ts), TSOCKET_OK);
    wait_for_samples(&other, 2 * 103); /* far beyond what the ring holds */
    expect_rest(ts, 0, 35, 7, 103);
    for (uint64_t epoch = 1; epoch < 5; epoch++)
        expect_rest(ts, epoch, 0, 7, 103);
    reader_finish(&other);
    tsocket_close(ts);
    rig_close(rig);
}

/* The value of the last sample of the epoch that it is about to read. */
static int64_t read_epoch(struct tsocket *ts)
{
    int64_t last = -1;
    int rc;

    do {
        struct tsocket_batch batch;

        rc = tsocket_next(ts, PATIENCE_MS, &batch);
        if (rc != TSOCKET_OK)
            continue;
        last = rig_number(batch.data[0], batch.count - 1);
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    } while (rc == TSOCKET_OK);
    assert_int_equal(rc, TSOCKET_EPOCH_END);
    return last;
}

/* Half of the samples are bad, so that no rank's last window has any; what it is padded with must be made again. */
static void a_rank_without_samples_left_is_padded_with_the_last_one_after_a_pause(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = 24,
                                                     .epochs = 4,
                                                     .capacity = 40,
                                                     .max_batch = 10,
                                                     .on_bad = TSOCKET_BAD_SKIP,
                                                     .bad_every = 2,
                                                     .wait_for = 2,
                                                     .side_rings = 1});
    struct tsocket *other = rig_attach(4, NULL), *ts;
    struct tsocket_options options;
    struct tsocket_batch batch;
    int64_t last;

    (void)state;
    tsocket_options_init(&options);
    options.shard_world = 2;
    ts = rig_attach(4, &options);
    for (uint64_t first = 0; first < 12; first += 8) {
        assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_OK);
        assert_int_equal(batch.valid, 4);
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    }
    assert_int_equal(tsocket_pause(ts), TSOCKET_OK);
    last = read_epoch(other);
    for (uint64_t epoch = 1; epoch < 4; epoch++)
        assert_int_not_equal(read_epoch(other), last);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_OK);
    assert_int_equal(batch.epoch, 0);
    assert_int_equal(batch.valid, 0);
    assert_int_equal(batch.count, 4);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(rig_number(batch.data[0], i), last);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    rig_expect_epoch_end(ts, 0, 12);
    tsocket_close(ts);
    tsocket_close(other);
    rig_close(rig);
}

static void a_pause_needs_a_side_ring_and_free_hands(void **state)
{
    struct rig *rig =
        rig_open(&(struct rig_options){.epoch_samples = 103, .capacity = 40, .max_batch = 10, .side_rings = 1});
    struct tsocket *ts = rig_attach(10, NULL);
    struct tsocket_batch batch;

    (void)state;
    rig_expect_batch(ts, 0, 0, 10, &batch);
    assert_int_equal(tsocket_pause(ts), TSOCKET_EHELD);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    tsocket_close(ts);
    rig_close(rig);

    rig = rig_open(&(struct rig_options){.epoch_samples = 103, .capacity = 40, .max_batch = 10});
    ts = rig_attach(10, NULL);
    assert_int_equal(tsocket_pause(ts), TSOCKET_EREFUSED);
    assert_non_null(strstr(tsocket_last_error(), "--side-rings"));
    rig_expect_and_release(ts, 0, 0, 10);
    tsocket_close(ts);
    rig_close(rig);
}

/* Two come back at once, and there is one side ring: the second waits its turn. */
static void a_side_ring_serves_one_after_the_other(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){
        .epoch_samples = 100, .epochs = 4, .capacity = 40, .max_batch = 10, .wait_for = 3, .side_rings = 1});
    struct tsocket *first = rig_attach(10, NULL);
    struct tsocket *second = rig_attach(5, NULL);
    struct tsocket_batch batch;
    struct reader other;

    (void)state;
    reader_start(&other, 10, 4);
    rig_expect_and_release(first, 0, 0, 10);
    rig_expect_and_release(second, 0, 0, 5);
    assert_int_equal(tsocket_pause(first), TSOCKET_OK);
    assert_int_equal(tsocket_pause(second), TSOCKET_OK);
    wait_for_samples(&other, 400);
    rig_expect_and_release(first, 0, 10, 10);
    assert_int_equal(tsocket_next(second, 50, &batch), TSOCKET_EAGAIN);
    tsocket_close(first);
    expect_rest(second, 0, 5, 5, 100);
    reader_finish(&other);
    tsocket_close(second);
    rig_close(rig);
}

/* It has asked where to read on, and there is no side ring free; then it pauses: what comes meanwhile is not its own.
 */
static void who_pauses_while_it_waits_for_a_side_ring_holds_nobody_up(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){
        .epoch_samples = 100, .epochs = 4, .capacity = 40, .max_batch = 10, .wait_for = 3, .side_rings = 1});
    struct tsocket *first = rig_attach(10, NULL);
    struct tsocket *second = rig_attach(5, NULL);
    struct tsocket_batch batch;
    struct reader other;

    (void)state;
    reader_start(&other, 10, 4);
    rig_expect_and_release(first, 0, 0, 10);
    rig_expect_and_release(second, 0, 0, 5);
    assert_int_equal(tsocket_pause(first), TSOCKET_OK);
    assert_int_equal(tsocket_pause(second), TSOCKET_OK);
    wait_for_samples(&other, 200);
    rig_expect_and_release(first, 0, 10, 10);
    for (int i = 0; i < 3; i++) { /* each time it asks, and thinks better of it: */
        assert_int_equal(tsocket_next(second, 1, &batch), TSOCKET_EAGAIN);
        assert_int_equal(tsocket_pause(second), TSOCKET_OK);
    }
    assert_int_equal(tsocket_next(second, 1, &batch), TSOCKET_EAGAIN);
    tsocket_close(first); /* now it is answered, maybe after it has paused */
    assert_int_equal(tsocket_pause(second), TSOCKET_OK);
    reader_finish(&other);
    expect_rest(second, 0, 5, 5, 100);
    expect_rest(second, 1, 0, 5, 100);
    tsocket_close(second);
    rig_close(rig);
}

/* The first one holds what it got there, and would for ever. */
static void who_stands_still_on_a_side_ring_gives_it_up_for_others(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = 100,
                                                     .epochs = 4,
                                                     .capacity = 40,
                                                     .max_batch = 10,
                                                     .wait_for = 3,
                                                     .side_rings = 1,
                                                     .max_hold_ms = MAX_HOLD_MS});
    struct tsocket *first = rig_attach(10, NULL);
    struct tsocket *second = rig_attach(5, NULL);
    struct tsocket_batch batch;
    struct reader other;

    (void)state;
    reader_start(&other, 10, 4);
    rig_expect_and_release(first, 0, 0, 10);
    rig_expect_and_release(second, 0, 0, 5);
    assert_int_equal(tsocket_pause(first), TSOCKET_OK);
    assert_int_equal(tsocket_pause(second), TSOCKET_OK);
    wait_for_samples(&other, 400);
    rig_expect_batch(first, 0, 10, 10, &batch);
    expect_rest(second, 0, 5, 5, 100);
    expect_rest(second, 1, 0, 5, 100);
    tsocket_close(second);
    assert_int_equal(tsocket_release(first, &batch), TSOCKET_ELAPPED);
    expect_rest(first, 0, 10, 10, 100);
    reader_finish(&other);
    tsocket_close(first);
    rig_close(rig);
}

/* --- hold */

static void who_holds_the_group_too_long_is_parked_and_gets_its_batch_again(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = 103,
                                                     .epochs = 3,
                                                     .capacity = 40,
                                                     .max_batch = 10,
                                                     .wait_for = 2,
                                                     .side_rings = 1,
                                                     .max_hold_ms = MAX_HOLD_MS});
    struct tsocket *ts = rig_attach(10, NULL);
    struct tsocket_batch batch;
    struct reader other;

    (void)state;
    reader_start(&other, 7, 3);
    rig_expect_and_release(ts, 0, 0, 10);
    rig_expect_batch(ts, 0, 10, 10, &batch);
    wait_for_samples(&other, 2 * 103);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_ELAPPED);
    rig_expect_and_release(ts, 0, 10, 10); /* what was lost comes again, */
    expect_rest(ts, 0, 20, 10, 103);       /* and all goes on */
    expect_rest(ts, 1, 0, 10, 103);
    expect_rest(ts, 2, 0, 10, 103);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_END);
    reader_finish(&other);
    tsocket_close(ts);
    rig_close(rig);
}

/* Three are held; the middle one is given back in time, the others are lost: only those come again. */
static void only_what_was_lost_comes_again(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = 100,
                                                     .epochs = 3,
                                                     .capacity = 60,
                                                     .max_batch = 20,
                                                     .wait_for = 2,
                                                     .side_rings = 1,
                                                     .max_hold_ms = MAX_HOLD_MS});
    struct tsocket_options options;
    struct tsocket_batch batch[4];
    struct tsocket_epoch ended;
    struct tsocket *ts;
    struct reader other;

    (void)state;
    tsocket_options_init(&options);
    options.hold = 4;
    ts = rig_attach(10, &options);
    reader_start(&other, 7, 3);
    for (uint32_t i = 0; i < 3; i++)
        rig_expect_batch(ts, 0, 10 * i, 10, &batch[i]);
    assert_int_equal(tsocket_release(ts, &batch[1]), TSOCKET_OK);
    wait_for_samples(&other, 300);
    assert_int_equal(tsocket_release(ts, &batch[2]), TSOCKET_ELAPPED);
    assert_int_equal(tsocket_release(ts, &batch[0]), TSOCKET_ELAPPED);
    rig_expect_batch(ts, 0, 0, 10, &batch[0]);
    rig_expect_batch(ts, 0, 20, 10, &batch[2]);
    rig_expect_batch(ts, 0, 30, 10, &batch[3]);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(tsocket_release(ts, &batch[i]), i == 1 ? TSOCKET_EINVAL : TSOCKET_OK);
    expect_rest(ts, 0, 40, 10, 100);
    assert_int_equal(tsocket_ended_epoch(ts, &ended), TSOCKET_OK);
    assert_int_equal(ended.received, 100);
    reader_finish(&other);
    tsocket_close(ts);
    rig_close(rig);
}

/*
 * It holds a batch of its side ring when it gives back one that was lost: that comes first, from the same ring, behind
 * what it holds and all that had been made there already.
 */
static void what_was_lost_comes_again_while_something_of_the_side_ring_is_held(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = 200,
                                                     .epochs = 3,
                                                     .capacity = 60,
                                                     .max_batch = 10,
                                                     .wait_for = 2,
                                                     .side_rings = 1,
                                                     .max_hold_ms = MAX_HOLD_MS});
    struct tsocket_batch lost, held, batch;
    struct tsocket *ts = rig_attach(10, NULL);
    struct reader other;

    (void)state;
    reader_start(&other, 7, 3);
    rig_expect_batch(ts, 0, 0, 10, &lost);
    wait_for_samples(&other, 300);
    rig_expect_batch(ts, 0, 10, 10, &held);
    nap(20); /* the side ring is filled as far as it goes */
    assert_int_equal(tsocket_release(ts, &lost), TSOCKET_ELAPPED);
    rig_expect_batch(ts, 0, 0, 10, &batch);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &held), TSOCKET_OK);
    expect_rest(ts, 0, 20, 10, 200);
    expect_rest(ts, 1, 0, 10, 200);
    reader_finish(&other);
    tsocket_close(ts);
    rig_close(rig);
}

/* What is put back are the newest batch, before a pause; one that comes again; and the newest behind that. */
static void what_is_put_back_comes_again_wherever_it_is(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = 100,
                                                     .epochs = 3,
                                                     .capacity = 40,
                                                     .max_batch = 10,
                                                     .wait_for = 2,
                                                     .side_rings = 1,
                                                     .max_hold_ms = 200});
    struct tsocket *ts = rig_attach(10, NULL);
    struct tsocket_batch batch;
    struct tsocket_epoch ended;
    struct reader other;

    (void)state;
    reader_start(&other, 7, 3);
    rig_expect_batch(ts, 0, 0, 10, &batch);
    wait_for_samples(&other, 300);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_ELAPPED);
    for (uint64_t first = 0; first < 20; first += 10) {
        for (int i = 0; i < 2; i++) {
            rig_expect_batch(ts, 0, first, 10, &batch);
            assert_int_equal(tsocket_put_back(ts, &batch), TSOCKET_OK);
        }
        rig_expect_and_release(ts, 0, first, 10);
    }
    rig_expect_batch(ts, 0, 20, 10, &batch);
    assert_int_equal(tsocket_pause(ts), TSOCKET_EHELD);
    assert_int_equal(tsocket_put_back(ts, &batch), TSOCKET_OK);
    assert_int_equal(tsocket_pause(ts), TSOCKET_OK);
    expect_rest(ts, 0, 20, 10, 100);
    assert_int_equal(tsocket_ended_epoch(ts, &ended), TSOCKET_OK);
    assert_int_equal(ended.received, 100);
    reader_finish(&other);
    tsocket_close(ts);
    rig_close(rig);
}

/* It goes on behind the second while it holds the first, as it may: from there to there is more than two batches. */
static void what_is_held_again_leaves_room_for_what_comes_behind_what_was_not_lost(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = 100,
                                                     .epochs = 3,
                                                     .capacity = 40,
                                                     .max_batch = 10,
                                                     .wait_for = 2,
                                                     .side_rings = 1,
                                                     .max_hold_ms = MAX_HOLD_MS});
    struct tsocket *ts = rig_attach(10, NULL);
    struct tsocket_batch first, second;
    struct reader other;

    (void)state;
    reader_start(&other, 7, 3);
    rig_expect_batch(ts, 0, 0, 10, &first);
    rig_expect_batch(ts, 0, 10, 10, &second);
    assert_int_equal(tsocket_release(ts, &second), TSOCKET_OK);
    wait_for_samples(&other, 300);
    assert_int_equal(tsocket_release(ts, &first), TSOCKET_ELAPPED);
    rig_expect_batch(ts, 0, 0, 10, &first);
    rig_expect_batch(ts, 0, 20, 10, &second);
    assert_int_equal(tsocket_release(ts, &first), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &second), TSOCKET_OK);
    expect_rest(ts, 0, 30, 10, 100);
    reader_finish(&other);
    tsocket_close(ts);
    rig_close(rig);
}

static void who_wants_to_be_detached_is_told_and_comes_back_with_its_token(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = 103,
                                                     .epochs = 3,
                                                     .capacity = 40,
                                                     .max_batch = 10,
                                                     .wait_for = 2,
                                                     .side_rings = 1,
                                                     .max_hold_ms = MAX_HOLD_MS});
    struct tsocket_options options;
    char token[TSOCKET_TOKEN_MAX + 1];
    struct tsocket_batch batch;
    struct tsocket *ts;
    struct reader other;

    (void)state;
    tsocket_options_init(&options);
    options.on_lag = TSOCKET_LAG_DETACH;
    ts = rig_attach(10, &options);
    reader_start(&other, 7, 3);
    rig_expect_batch(ts, 0, 0, 10, &batch);
    assert_int_equal(tsocket_token(ts, &batch, token), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    wait_for_samples(&other, 103);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_ELAPPED);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_ELAPPED);
    tsocket_close(ts);
    options.resume = token;
    ts = rig_attach(5, &options);
    expect_rest(ts, 0, 10, 5, 103);
    expect_rest(ts, 1, 0, 5, 103);
    reader_finish(&other);
    tsocket_close(ts);
    rig_close(rig);
}

/* A generator's samples cannot be made again: who keeps the others waiting is told that it is detached. */
static void who_is_detached_is_told_so_also_where_nobody_can_go_back(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_ends_at = 103,
                                                     .epochs = 3,
                                                     .on_bad = TSOCKET_BAD_MASK,
                                                     .capacity = 40,
                                                     .max_batch = 10,
                                                     .wait_for = 2,
                                                     .max_hold_ms = MAX_HOLD_MS});
    struct tsocket_options options;
    struct tsocket_batch batch;
    struct tsocket *ts;
    struct reader other;

    (void)state;
    tsocket_options_init(&options);
    options.on_lag = TSOCKET_LAG_DETACH;
    ts = rig_attach(10, &options);
    reader_start(&other, 7, 3);
    rig_expect_and_release(ts, 0, 0, 10);
    reader_finish(&other);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_ELAPPED);
    tsocket_close(ts);
    rig_close(rig);
}

/* The only reader has stopped in the middle of an epoch; another one waits for the next. */
static void who_waits_for_the_next_epoch_does_not_wait_for_one_that_stopped(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = 103,
                                                     .epochs = 2,
                                                     .capacity = 40,
                                                     .max_batch = 10,
                                                     .join_grace_ms = 1,
                                                     .side_rings = 1,
                                                     .max_hold_ms = MAX_HOLD_MS});
    struct tsocket *stopped = rig_attach(10, NULL), *ts;
    struct tsocket_options options;

    (void)state;
    for (uint64_t first = 0; first < 50; first += 10)
        rig_expect_and_release(stopped, 0, first, 10);
    tsocket_flush(stopped);
    tsocket_options_init(&options);
    options.join = TSOCKET_JOIN_WAIT;
    ts = rig_attach(7, &options);
    expect_rest(ts, 1, 0, 7, 103);
    expect_rest(stopped, 0, 50, 10, 103);
    expect_rest(stopped, 1, 0, 10, 103);
    tsocket_close(stopped);
    tsocket_close(ts);
    rig_close(rig);
}

/* --- skip */

static void who_lags_may_leave_samples_out_and_knows_how_many(void **state)
{
    struct rig *rig =
        rig_open(&(struct rig_options){.epoch_samples = 200, .epochs = 1, .capacity = 100, .max_batch = 10});
    struct tsocket_options options;
    struct tsocket_epoch ended;
    struct tsocket_batch batch;
    uint64_t got = 0, skipped = 0, next = 0;
    struct tsocket *ts;
    int rc;

    (void)state;
    tsocket_options_init(&options);
    options.on_lag = TSOCKET_LAG_SKIP;
    options.max_lag = 30;
    ts = rig_attach(10, &options);
    while ((rc = tsocket_next(ts, PATIENCE_MS, &batch)) == TSOCKET_OK) {
        rig_check(&batch);
        assert_int_equal(batch.first, next + batch.skipped);
        next = batch.first + batch.count;
        skipped += batch.skipped;
        got += batch.valid;
        nap(5); /* the ring fills up meanwhile */
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    }
    assert_int_equal(rc, TSOCKET_EPOCH_END);
    assert_int_equal(tsocket_ended_epoch(ts, &ended), TSOCKET_OK);
    assert_int_equal(ended.skipped + ended.received, 200);
    assert_int_equal(ended.received, got);
    assert_true(skipped > 0 && ended.skipped >= skipped);
    tsocket_close(ts);
    rig_close(rig);
}

/* --- late */

static void who_comes_late_gets_the_whole_epoch_in_two_parts(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = 1000,
                                                     .epochs = 3,
                                                     .capacity = 100,
                                                     .max_batch = 10,
                                                     .join_grace_ms = 1,
                                                     .threads = 2,
                                                     .side_rings = 1});
    struct tsocket *first = rig_attach(10, NULL);
    struct tsocket_info info;
    struct tsocket *late;
    struct reader other;

    (void)state;
    for (uint64_t index = 0; index < 500; index += 10)
        rig_expect_and_release(first, 0, index, 10);
    tsocket_flush(first);
    late = rig_attach(9, NULL);
    assert_int_equal(tsocket_describe(late, &info), TSOCKET_OK);
    assert_true(info.catch_up && info.epoch == 0 && info.first > 0 && info.first <= 510);
    assert_int_equal((1000 - info.first) % 9, 0);
    assert_int_equal(info.first_batches, (1000 - info.first) / 9 + (info.first + 8) / 9);
    other = (struct reader){.ts = first, .epochs = 3};
    atomic_store(&other.good, true);
    assert_int_equal(pthread_create(&other.thread, NULL, read_epochs, &other), 0);
    for (uint64_t index = info.first; index < 1000; index += 9)
        rig_expect_and_release(late, 0, index, 9);
    for (uint64_t index = 0; index < info.first; index += 9)
        rig_expect_and_release(late, 0, index, (uint32_t)(info.first - index < 9 ? info.first - index : 9));
    rig_expect_epoch_end(late, 0, 1000);
    expect_rest(late, 1, 0, 9, 1000);
    expect_rest(late, 2, 0, 9, 1000);
    reader_finish(&other);
    tsocket_close(late);
    rig_close(rig);
}

/* --- resident */

static void a_resident_stream_is_passed_over_at_any_time(void **state)
{
    struct rig *rig = rig_open(
        &(struct rig_options){.epoch_samples = 50, .capacity = 50, .max_batch = 20, .resident = true, .bad_every = 0});
    struct tsocket *one = rig_attach(7, NULL), *two;
    struct tsocket_batch held, batch;
    struct tsocket_info info;

    (void)state;
    assert_int_equal(tsocket_describe(one, &info), TSOCKET_OK);
    assert_true(info.resident);
    assert_int_equal(tsocket_next(one, PATIENCE_MS, &held), TSOCKET_OK); /* and keeps it for ever */
    for (uint64_t pass = 0; pass < 3; pass++) {
        two = rig_attach(20, NULL);
        for (uint64_t epoch = 0; epoch < 2; epoch++) {
            for (uint64_t first = 0; first < 50; first += 20) {
                assert_int_equal(tsocket_next(two, PATIENCE_MS, &batch), TSOCKET_OK);
                assert_true(batch.epoch == epoch && batch.first == first);
                assert_int_equal(rig_number(batch.data[0], 0), rig_value(0, first));
                assert_int_equal(tsocket_release(two, &batch), TSOCKET_OK);
            }
            rig_expect_epoch_end(two, epoch, 50);
        }
        tsocket_close(two);
    }
    assert_int_equal(rig_number(held.data[0], 6), rig_value(0, 6));
    assert_int_equal(tsocket_release(one, &held), TSOCKET_OK);
    tsocket_close(one);
    rig_close(rig);
}

static void a_resident_stream_that_does_not_fit_says_what_it_needs(void **state)
{
    static const struct tsocket_field field = {.name = "x", .dtype = TSOCKET_INT64};
    struct tsocket_producer_options options;
    struct tsocket_stream_options stream;
    struct tsocket_producer *producer;

    (void)state;
    rig_folder_make();
    tsocket_producer_options_init(&options);
    tsocket_stream_options_init(&stream);
    stream.fields = &field;
    stream.n_fields = 1;
    stream.epoch_samples = 5000;
    stream.capacity = 1024;
    stream.resident = true;
    assert_int_equal(tsocket_producer_open(&options, &producer), TSOCKET_OK);
    assert_int_equal(tsocket_producer_add_stream(producer, &stream, NULL), TSOCKET_EINVAL);
    assert_non_null(strstr(tsocket_last_error(), "--ring 5000"));
    tsocket_producer_close(producer);
    rig_folder_check_and_remove();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pause_that_nobody_notices_changes_nothing),
        cmocka_unit_test(who_pauses_holds_nobody_up_and_goes_on_where_it_was),
        cmocka_unit_test(a_rank_without_samples_left_is_padded_with_the_last_one_after_a_pause),
        cmocka_unit_test(a_pause_needs_a_side_ring_and_free_hands),
        cmocka_unit_test(a_side_ring_serves_one_after_the_other),
        cmocka_unit_test(who_stands_still_on_a_side_ring_gives_it_up_for_others),
        cmocka_unit_test(who_pauses_while_it_waits_for_a_side_ring_holds_nobody_up),
        cmocka_unit_test(who_holds_the_group_too_long_is_parked_and_gets_its_batch_again),
        cmocka_unit_test(only_what_was_lost_comes_again),
        cmocka_unit_test(what_was_lost_comes_again_while_something_of_the_side_ring_is_held),
        cmocka_unit_test(what_is_put_back_comes_again_wherever_it_is),
        cmocka_unit_test(what_is_held_again_leaves_room_for_what_comes_behind_what_was_not_lost),
        cmocka_unit_test(who_wants_to_be_detached_is_told_and_comes_back_with_its_token),
        cmocka_unit_test(who_is_detached_is_told_so_also_where_nobody_can_go_back),
        cmocka_unit_test(who_waits_for_the_next_epoch_does_not_wait_for_one_that_stopped),
        cmocka_unit_test(who_lags_may_leave_samples_out_and_knows_how_many),
        cmocka_unit_test(who_comes_late_gets_the_whole_epoch_in_two_parts),
        cmocka_unit_test(a_resident_stream_is_passed_over_at_any_time),
        cmocka_unit_test(a_resident_stream_that_does_not_fit_says_what_it_needs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
