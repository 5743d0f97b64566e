/* SPDX-License-Identifier: Apache-2.0 */
/* Where epochs end, as a trainer sees it: tails, epochs of unknown length, windows of several epochs at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#include "rig.h"

static const struct rig_options small = {.epoch_samples = 10, .epochs = 2, .capacity = 16, .max_batch = 4};

static void a_padded_tail_is_full_and_says_how_much_is_real(void **state)
{
    struct rig *rig = rig_open(&small);
    struct tsocket_options options;
    struct tsocket_batch held[2];
    struct tsocket *ts;

    (void)state;
    tsocket_options_init(&options);
    options.last = TSOCKET_LAST_PAD;
    ts = rig_attach(4, &options);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        rig_expect_and_release(ts, epoch, 0, 4);
        rig_expect_batch(ts, epoch, 4, 4, &held[0]);
        rig_expect_batch(ts, epoch, 8, 2, &held[1]); /* valid == 2 */
        assert_int_equal(held[1].count, 4);
        for (uint32_t i = 2; i < 4; i++)
            assert_in_range(rig_number(held[1].data[0], i), rig_value(epoch, 8), rig_value(epoch, 9));
        rig_check(&held[0]);
        assert_int_equal(tsocket_release(ts, &held[1]), TSOCKET_OK);
        assert_int_equal(tsocket_release(ts, &held[0]), TSOCKET_OK);
        rig_expect_epoch_end(ts, epoch, 10);
    }
    tsocket_close(ts);
    rig_close(rig);
}

static void a_dropped_tail_is_counted_as_not_received(void **state)
{
    struct rig *rig = rig_open(&small);
    struct tsocket_options options;
    struct tsocket_epoch ended;
    struct tsocket_info info;
    struct tsocket *ts;

    (void)state;
    tsocket_options_init(&options);
    options.last = TSOCKET_LAST_DROP;
    ts = rig_attach(4, &options);
    assert_int_equal(tsocket_describe(ts, &info), TSOCKET_OK);
    assert_int_equal(info.batches, 2);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        rig_expect_and_release(ts, epoch, 0, 4);
        rig_expect_and_release(ts, epoch, 4, 4);
        rig_expect_epoch_end(ts, epoch, 10);
        assert_int_equal(tsocket_ended_epoch(ts, &ended), TSOCKET_OK);
        assert_int_equal(ended.received, 8);
    }
    tsocket_close(ts);
    rig_close(rig);
}

static void an_epoch_of_unknown_length_ends_where_the_producer_says(void **state)
{
    struct rig_options unknown = {
        .epochs = 3, .capacity = 16, .max_batch = 4, .epoch_ends_at = 10, .on_bad = TSOCKET_BAD_FAIL};
    struct rig *rig = rig_open(&unknown);
    struct tsocket *ts = rig_attach(4, NULL);
    struct tsocket_batch batch;
    struct tsocket_info info;

    (void)state;
    assert_int_equal(tsocket_describe(ts, &info), TSOCKET_OK);
    assert_int_equal(info.epoch_samples, 0);
    assert_int_equal(info.batches, 0);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        rig_expect_and_release(ts, epoch, 0, 4);
        rig_expect_and_release(ts, epoch, 4, 4);
        rig_expect_and_release(ts, epoch, 8, 2);
        rig_expect_epoch_end(ts, epoch, 10);
    }
    assert_int_equal(tsocket_next(ts, -1, &batch), TSOCKET_END);
    tsocket_close(ts);
    rig_close(rig);
}

static void an_epoch_of_unknown_length_ends_the_same_with_many_threads(void **state)
{
    struct rig_options unknown = {
        .epochs = 20, .capacity = 64, .max_batch = 8, .epoch_ends_at = 37, .threads = 7, .on_bad = TSOCKET_BAD_FAIL};
    struct rig *rig = rig_open(&unknown);
    struct tsocket *ts = rig_attach(8, NULL);

    (void)state;
    for (uint64_t epoch = 0; epoch < 20; epoch++) {
        for (uint64_t first = 0; first < 32; first += 8)
            rig_expect_and_release(ts, epoch, first, 8);
        rig_expect_and_release(ts, epoch, 32, 5);
        rig_expect_epoch_end(ts, epoch, 37);
    }
    tsocket_close(ts);
    rig_close(rig);
}

static void an_epoch_of_unknown_length_may_be_longer_than_the_ring(void **state)
{
    const struct rig_options unknown = {
        .epochs = 2, .capacity = 8, .max_batch = 4, .epoch_ends_at = 38, .threads = 2, .on_bad = TSOCKET_BAD_FAIL};
    struct rig *rig = rig_open(&unknown);
    struct tsocket *ts = rig_attach(4, NULL);

    (void)state;
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        for (uint64_t first = 0; first < 36; first += 4)
            rig_expect_and_release(ts, epoch, first, 4);
        rig_expect_and_release(ts, epoch, 36, 2);
        rig_expect_epoch_end(ts, epoch, 38);
    }
    tsocket_close(ts);
    rig_close(rig);
}

static void positions_go_on_beyond_32_bits(void **state)
{
    const uint32_t batch_size = UINT32_C(1) << 24;
    const struct tsocket_field byte = {.name = "byte", .dtype = TSOCKET_UINT8};
    struct tsocket_producer_options options;
    struct tsocket_stream_options stream;
    struct tsocket_producer *producer;
    struct tsocket_options one_at_a_time;
    struct tsocket *ts;

    (void)state;
    rig_folder_make();
    tsocket_producer_options_init(&options);
    options.name = RIG_NAME;
    options.join_grace_ms = 0;
    tsocket_stream_options_init(&stream);
    stream.fields = &byte;
    stream.n_fields = 1;
    stream.epoch_samples = UINT64_C(1) << 40;
    stream.capacity = batch_size;
    stream.max_batch = batch_size;
    stream.null = true;
    assert_int_equal(tsocket_producer_open(&options, &producer), TSOCKET_OK);
    assert_int_equal(tsocket_producer_add_stream(producer, &stream, NULL), TSOCKET_OK);
    assert_int_equal(tsocket_producer_start(producer), TSOCKET_OK);
    tsocket_options_init(&one_at_a_time);
    one_at_a_time.hold = 1;
    ts = rig_attach(batch_size, &one_at_a_time);
    for (uint64_t position = 0; position < UINT64_C(1) << 33; position += batch_size) {
        struct tsocket_batch batch;

        assert_int_equal(tsocket_next(ts, 20000, &batch), TSOCKET_OK);
        assert_int_equal(batch.position, position);
        assert_int_equal(batch.first, position);
        assert_int_equal(batch.count, batch_size);
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    }
    tsocket_close(ts);
    tsocket_producer_close(producer);
    rig_folder_check_and_remove();
}

/* Between the windows 11 .. 21 of one epoch and 0 .. 10 of the next lie 7 samples that are left out. */
static void windows_on_both_sides_of_a_dropped_tail_fit_or_are_refused(void **state)
{
    struct rig_options tight = {.epoch_samples = 29, .capacity = 31, .max_batch = 11};
    struct tsocket_options drop;
    struct tsocket_batch held[2];
    struct tsocket *ts = NULL;
    struct rig *rig = rig_open(&tight);

    (void)state;
    tsocket_options_init(&drop);
    drop.last = TSOCKET_LAST_DROP;
    assert_int_equal(tsocket_open(RIG_NAME, 11, &drop, &ts), TSOCKET_EREFUSED);
    assert_non_null(strstr(tsocket_last_error(), "--ring 32"));
    rig_close(rig);
    tight.capacity = 32;
    rig = rig_open(&tight);
    ts = rig_attach(11, &drop);
    rig_expect_and_release(ts, 0, 0, 11);
    rig_expect_batch(ts, 0, 11, 11, &held[0]);
    rig_expect_epoch_end(ts, 0, 29);
    rig_expect_batch(ts, 1, 0, 11, &held[1]);
    rig_check(&held[0]);
    tsocket_close(ts);
    rig_close(rig);
}

static void windows_of_as_many_epochs_as_the_ring_has_can_be_held(void **state)
{
    const struct rig_options tiny = {.epoch_samples = 1, .capacity = 256, .max_batch = 1};
    struct rig *rig = rig_open(&tiny);
    struct tsocket_options many;
    struct tsocket_batch held;
    struct tsocket *ts = NULL;

    (void)state;
    tsocket_options_init(&many);
    many.hold = 65;
    assert_int_equal(tsocket_open(RIG_NAME, 1, &many, &ts), TSOCKET_EREFUSED);
    assert_non_null(strstr(tsocket_last_error(), "64"));
    many.hold = 64;
    ts = rig_attach(1, &many);
    for (uint64_t epoch = 0; epoch < 64; epoch++) {
        rig_expect_batch(ts, epoch, 0, 1, &held);
        rig_expect_epoch_end(ts, epoch, 1);
    }
    assert_int_equal(tsocket_next(ts, 100, &held), TSOCKET_EHELD);
    tsocket_close(ts);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_padded_tail_is_full_and_says_how_much_is_real),
        cmocka_unit_test(a_dropped_tail_is_counted_as_not_received),
        cmocka_unit_test(an_epoch_of_unknown_length_ends_where_the_producer_says),
        cmocka_unit_test(an_epoch_of_unknown_length_ends_the_same_with_many_threads),
        cmocka_unit_test(an_epoch_of_unknown_length_may_be_longer_than_the_ring),
        cmocka_unit_test(positions_go_on_beyond_32_bits),
        cmocka_unit_test(windows_on_both_sides_of_a_dropped_tail_fit_or_are_refused),
        cmocka_unit_test(windows_of_as_many_epochs_as_the_ring_has_can_be_held),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
