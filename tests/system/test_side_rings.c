/* SPDX-License-Identifier: Apache-2.0 */
/* Consumers that pause and come late: nothing lost, nothing twice, nobody waits for them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "reader.h"

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
    reader_expect_rest(ts, 0, 50, 10, 103);
    assert_int_equal(tsocket_pause(ts), TSOCKET_OK); /* between two epochs, as for a validation */
    reader_expect_rest(ts, 1, 0, 10, 103);
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
    reader_wait_for_samples(&other, 2 * 103); /* far beyond what the ring holds */
    reader_expect_rest(ts, 0, 35, 7, 103);
    for (uint64_t epoch = 1; epoch < 5; epoch++)
        reader_expect_rest(ts, epoch, 0, 7, 103);
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

/* What fits into a ring larger than four of the largest batches fits into its side rings as well. */
static void who_holds_many_batches_can_pause(void **state)
{
    struct rig *rig = rig_open(
        &(struct rig_options){.epoch_samples = 1000, .epochs = 1, .capacity = 200, .max_batch = 16, .side_rings = 1});
    struct tsocket_options options;
    struct tsocket *ts;

    (void)state;
    tsocket_options_init(&options);
    options.hold = 8;
    ts = rig_attach(10, &options);
    rig_expect_and_release(ts, 0, 0, 10);
    assert_int_equal(tsocket_pause(ts), TSOCKET_OK);
    reader_expect_rest(ts, 0, 10, 10, 1000);
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
    reader_wait_for_samples(&other, 400);
    rig_expect_and_release(first, 0, 10, 10);
    assert_int_equal(tsocket_next(second, 50, &batch), TSOCKET_EAGAIN);
    tsocket_close(first);
    reader_expect_rest(second, 0, 5, 5, 100);
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
    reader_wait_for_samples(&other, 200);
    rig_expect_and_release(first, 0, 10, 10);
    for (int i = 0; i < 3; i++) { /* each time it asks, and thinks better of it: */
        assert_int_equal(tsocket_next(second, 1, &batch), TSOCKET_EAGAIN);
        assert_int_equal(tsocket_pause(second), TSOCKET_OK);
    }
    assert_int_equal(tsocket_next(second, 1, &batch), TSOCKET_EAGAIN);
    tsocket_close(first); /* now it is answered, maybe after it has paused */
    assert_int_equal(tsocket_pause(second), TSOCKET_OK);
    reader_finish(&other);
    reader_expect_rest(second, 0, 5, 5, 100);
    reader_expect_rest(second, 1, 0, 5, 100);
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
    reader_wait_for_samples(&other, 400);
    rig_expect_batch(first, 0, 10, 10, &batch);
    reader_expect_rest(second, 0, 5, 5, 100);
    reader_expect_rest(second, 1, 0, 5, 100);
    tsocket_close(second);
    assert_int_equal(tsocket_release(first, &batch), TSOCKET_ELAPPED);
    reader_expect_rest(first, 0, 10, 10, 100);
    reader_finish(&other);
    tsocket_close(first);
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
    reader_go_on(&other, first, 3);
    for (uint64_t index = info.first; index < 1000; index += 9)
        rig_expect_and_release(late, 0, index, 9);
    for (uint64_t index = 0; index < info.first; index += 9)
        rig_expect_and_release(late, 0, index, (uint32_t)(info.first - index < 9 ? info.first - index : 9));
    rig_expect_epoch_end(late, 0, 1000);
    reader_expect_rest(late, 1, 0, 9, 1000);
    reader_expect_rest(late, 2, 0, 9, 1000);
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
        cmocka_unit_test(who_holds_many_batches_can_pause),
        cmocka_unit_test(a_side_ring_serves_one_after_the_other),
        cmocka_unit_test(who_stands_still_on_a_side_ring_gives_it_up_for_others),
        cmocka_unit_test(who_pauses_while_it_waits_for_a_side_ring_holds_nobody_up),
        cmocka_unit_test(who_comes_late_gets_the_whole_epoch_in_two_parts),
        cmocka_unit_test(a_resident_stream_is_passed_over_at_any_time),
        cmocka_unit_test(a_resident_stream_that_does_not_fit_says_what_it_needs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
