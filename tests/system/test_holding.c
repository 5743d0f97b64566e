/* SPDX-License-Identifier: Apache-2.0 */
/* Consumers that hold the group too long: parked, given again what they lost, detached, or moved ahead. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "reader.h"

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
    reader_wait_for_samples(&other, 2 * 103);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_ELAPPED);
    rig_expect_and_release(ts, 0, 10, 10);  /* what was lost comes again, */
    reader_expect_rest(ts, 0, 20, 10, 103); /* and all goes on */
    reader_expect_rest(ts, 1, 0, 10, 103);
    reader_expect_rest(ts, 2, 0, 10, 103);
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
    reader_wait_for_samples(&other, 300);
    assert_int_equal(tsocket_release(ts, &batch[2]), TSOCKET_ELAPPED);
    assert_int_equal(tsocket_release(ts, &batch[0]), TSOCKET_ELAPPED);
    rig_expect_batch(ts, 0, 0, 10, &batch[0]);
    rig_expect_batch(ts, 0, 20, 10, &batch[2]);
    rig_expect_batch(ts, 0, 30, 10, &batch[3]);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(tsocket_release(ts, &batch[i]), i == 1 ? TSOCKET_EINVAL : TSOCKET_OK);
    reader_expect_rest(ts, 0, 40, 10, 100);
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
    reader_wait_for_samples(&other, 300);
    rig_expect_batch(ts, 0, 10, 10, &held);
    reader_nap(20); /* the side ring is filled as far as it goes */
    assert_int_equal(tsocket_release(ts, &lost), TSOCKET_ELAPPED);
    rig_expect_batch(ts, 0, 0, 10, &batch);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &held), TSOCKET_OK);
    reader_expect_rest(ts, 0, 20, 10, 200);
    reader_expect_rest(ts, 1, 0, 10, 200);
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
    reader_wait_for_samples(&other, 300);
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
    reader_expect_rest(ts, 0, 20, 10, 100);
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
    reader_wait_for_samples(&other, 300);
    assert_int_equal(tsocket_release(ts, &first), TSOCKET_ELAPPED);
    rig_expect_batch(ts, 0, 0, 10, &first);
    rig_expect_batch(ts, 0, 20, 10, &second);
    assert_int_equal(tsocket_release(ts, &first), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &second), TSOCKET_OK);
    reader_expect_rest(ts, 0, 30, 10, 100);
    reader_finish(&other);
    tsocket_close(ts);
    rig_close(rig);
}

/*
 * It may hold as much as the side ring has. What it lost last is given again there first; while it holds that, what it
 * lost before would have to be made behind it, where there is no room: it is told to give back, it does not wait for
 * ever.
 */
static void who_holds_the_room_that_it_waits_for_is_told_so(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = 200,
                                                     .epochs = 3,
                                                     .capacity = 60,
                                                     .max_batch = 10,
                                                     .wait_for = 2,
                                                     .side_rings = 1,
                                                     .max_hold_ms = MAX_HOLD_MS});
    struct tsocket_options options;
    struct tsocket_batch batch[3];
    struct tsocket *ts;
    struct reader other;
    int rc;

    (void)state;
    tsocket_options_init(&options);
    options.hold = 4;
    ts = rig_attach(10, &options);
    reader_start(&other, 7, 3);
    for (uint32_t i = 0; i < 3; i++)
        rig_expect_batch(ts, 0, 10 * i, 10, &batch[i]);
    reader_wait_for_samples(&other, 400);
    assert_int_equal(tsocket_release(ts, &batch[2]), TSOCKET_ELAPPED);
    rig_expect_batch(ts, 0, 20, 10, &batch[2]);
    assert_int_equal(tsocket_release(ts, &batch[0]), TSOCKET_ELAPPED);
    rc = tsocket_next(ts, PATIENCE_MS, &batch[0]);
    assert_int_equal(tsocket_release(ts, &batch[2]), TSOCKET_OK);
    if (rc == TSOCKET_EHELD)
        rig_expect_batch(ts, 0, 0, 10, &batch[0]);
    else
        assert_int_equal(rc, TSOCKET_OK); /* the ring was not full yet when that was asked for */
    assert_int_equal(tsocket_release(ts, &batch[0]), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &batch[1]), TSOCKET_ELAPPED);
    rig_expect_and_release(ts, 0, 10, 10);
    reader_expect_rest(ts, 0, 30, 10, 200);
    reader_expect_rest(ts, 1, 0, 10, 200);
    reader_expect_rest(ts, 2, 0, 10, 200);
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
    reader_wait_for_samples(&other, 103);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_ELAPPED);
    assert_int_equal(tsocket_next(ts, PATIENCE_MS, &batch), TSOCKET_ELAPPED);
    tsocket_close(ts);
    options.resume = token;
    ts = rig_attach(5, &options);
    reader_expect_rest(ts, 0, 10, 5, 103);
    reader_expect_rest(ts, 1, 0, 5, 103);
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
    reader_expect_rest(ts, 1, 0, 7, 103);
    reader_expect_rest(stopped, 0, 50, 10, 103);
    reader_expect_rest(stopped, 1, 0, 10, 103);
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
        reader_nap(5); /* the ring fills up meanwhile */
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_holds_the_group_too_long_is_parked_and_gets_its_batch_again),
        cmocka_unit_test(only_what_was_lost_comes_again),
        cmocka_unit_test(what_was_lost_comes_again_while_something_of_the_side_ring_is_held),
        cmocka_unit_test(what_is_put_back_comes_again_wherever_it_is),
        cmocka_unit_test(what_is_held_again_leaves_room_for_what_comes_behind_what_was_not_lost),
        cmocka_unit_test(who_holds_the_room_that_it_waits_for_is_told_so),
        cmocka_unit_test(who_wants_to_be_detached_is_told_and_comes_back_with_its_token),
        cmocka_unit_test(who_is_detached_is_told_so_also_where_nobody_can_go_back),
        cmocka_unit_test(who_waits_for_the_next_epoch_does_not_wait_for_one_that_stopped),
        cmocka_unit_test(who_lags_may_leave_samples_out_and_knows_how_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
