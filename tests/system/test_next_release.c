/* SPDX-License-Identifier: Apache-2.0 */
/* What a trainer can rely on when it calls next, release and their neighbours. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "rig.h"

static const struct rig_options small = {.epoch_samples = 10, .epochs = 2, .capacity = 16, .max_batch = 4};

static void every_call_refuses_null(void **state)
{
    struct rig *rig = rig_open(&small);
    struct tsocket *ts = rig_attach(4, NULL);
    struct tsocket_batch batch;

    (void)state;
    assert_int_equal(tsocket_open(NULL, 4, NULL, &ts), TSOCKET_EINVAL);
    assert_int_equal(tsocket_open(RIG_NAME, 4, NULL, NULL), TSOCKET_EINVAL);
    assert_int_equal(tsocket_open(RIG_NAME, 0, NULL, &ts), TSOCKET_EINVAL);
    assert_int_equal(tsocket_next(NULL, 0, &batch), TSOCKET_EINVAL);
    assert_int_equal(tsocket_next(ts, 0, NULL), TSOCKET_EINVAL);
    assert_int_equal(tsocket_release(NULL, &batch), TSOCKET_EINVAL);
    assert_int_equal(tsocket_release(ts, NULL), TSOCKET_EINVAL);
    assert_int_equal(tsocket_flush(NULL), TSOCKET_EINVAL);
    assert_int_equal(tsocket_describe(NULL, NULL), TSOCKET_EINVAL);
    assert_int_equal(tsocket_describe(ts, NULL), TSOCKET_EINVAL);
    assert_int_equal(tsocket_position(NULL, NULL, NULL), TSOCKET_EINVAL);
    assert_int_equal(tsocket_ended_epoch(ts, NULL), TSOCKET_EINVAL);
    rig_expect_and_release(ts, 0, 0, 4); /* nothing of this did any harm */
    tsocket_close(NULL);
    tsocket_close(ts);
    rig_close(rig);
}

static void options_that_make_no_sense_are_refused(void **state)
{
    struct rig *rig = rig_open(&small);
    struct tsocket *ts = NULL;
    struct tsocket_options options;

    (void)state;
    tsocket_options_init(&options);
    options.size = 1;
    assert_int_equal(tsocket_open(RIG_NAME, 4, &options, &ts), TSOCKET_EINVAL);
    tsocket_options_init(&options);
    options.hold = 0;
    assert_int_equal(tsocket_open(RIG_NAME, 4, &options, &ts), TSOCKET_EINVAL);
    tsocket_options_init(&options);
    options.shard_rank = 2;
    options.shard_world = 2;
    assert_int_equal(tsocket_open(RIG_NAME, 4, &options, &ts), TSOCKET_EINVAL);
    tsocket_options_init(&options);
    options.resume = "token";
    assert_int_equal(tsocket_open(RIG_NAME, 4, &options, &ts), TSOCKET_EINVAL);
    tsocket_options_init(&options);
    options.fields = "value,nonsense";
    assert_int_equal(tsocket_open(RIG_NAME, 4, &options, &ts), TSOCKET_ENOTFOUND);
    assert_non_null(strstr(tsocket_last_error(), "nonsense"));
    assert_int_equal(tsocket_open("../x", 4, NULL, &ts), TSOCKET_EINVAL);
    assert_int_equal(tsocket_open(RIG_NAME "/other", 4, NULL, &ts), TSOCKET_ENOTFOUND);
    assert_int_equal(tsocket_open("nobody", 4, NULL, &ts), TSOCKET_ENOTFOUND);
    assert_null(ts);
    rig_close(rig);
}

static void a_whole_run_ends_each_epoch_once_and_then_stays_ended(void **state)
{
    struct rig *rig = rig_open(&small);
    struct tsocket *ts = rig_attach(4, NULL);
    struct tsocket_batch batch;
    struct tsocket_epoch ended;

    (void)state;
    assert_int_equal(tsocket_ended_epoch(ts, &ended), TSOCKET_EAGAIN);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        rig_expect_and_release(ts, epoch, 0, 4);
        rig_expect_and_release(ts, epoch, 4, 4);
        rig_expect_and_release(ts, epoch, 8, 2);
        rig_expect_epoch_end(ts, epoch, 10);
        assert_int_equal(tsocket_ended_epoch(ts, &ended), TSOCKET_OK);
        assert_int_equal(ended.received, 10);
        assert_int_equal(ended.own_epoch, epoch);
    }
    for (int i = 0; i < 3; i++)
        assert_int_equal(tsocket_next(ts, -1, &batch), TSOCKET_END);
    tsocket_close(ts);
    rig_close(rig);
}

static void a_consumer_that_wants_one_epoch_ends_after_one(void **state)
{
    struct rig *rig = rig_open(&small);
    struct tsocket_options options;
    struct tsocket_batch batch;
    struct tsocket *ts;

    (void)state;
    tsocket_options_init(&options);
    options.epochs = 1;
    ts = rig_attach(4, &options);
    rig_expect_and_release(ts, 0, 0, 4);
    rig_expect_and_release(ts, 0, 4, 4);
    rig_expect_and_release(ts, 0, 8, 2);
    rig_expect_epoch_end(ts, 0, 10);
    assert_int_equal(tsocket_next(ts, -1, &batch), TSOCKET_END);
    assert_int_equal(tsocket_next(ts, 0, &batch), TSOCKET_END);
    tsocket_close(ts);
    rig_close(rig);
}

static void no_more_batches_can_be_held_than_were_announced(void **state)
{
    struct rig_options wide = small;
    struct rig *rig;
    struct tsocket_options options;
    struct tsocket_batch held[3], batch;
    struct tsocket *ts;

    (void)state;
    wide.epoch_samples = 100;
    rig = rig_open(&wide);
    tsocket_options_init(&options);
    options.hold = 3;
    ts = rig_attach(4, &options);
    for (uint32_t i = 0; i < 3; i++)
        rig_expect_batch(ts, 0, 4 * i, 4, &held[i]);
    assert_int_equal(tsocket_next(ts, -1, &batch), TSOCKET_EHELD);
    assert_int_equal(tsocket_release(ts, &held[1]), TSOCKET_OK);
    assert_int_equal(tsocket_next(ts, 0, &batch), TSOCKET_EHELD); /* the oldest one still keeps its memory */
    assert_int_equal(tsocket_release(ts, &held[0]), TSOCKET_OK);
    rig_expect_batch(ts, 0, 12, 4, &held[0]);
    rig_expect_batch(ts, 0, 16, 4, &held[1]);
    assert_int_equal(tsocket_next(ts, 0, &batch), TSOCKET_EHELD);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(tsocket_release(ts, &held[i]), TSOCKET_OK);
    tsocket_close(ts);
    rig_close(rig);
}

static void batches_held_to_the_limit_and_released_backwards_lose_nothing(void **state)
{
    struct rig_options wide = small;
    struct rig *rig;
    struct tsocket_options options;
    struct tsocket_batch held[5];
    struct tsocket *ts;

    (void)state;
    wide.epoch_samples = 300;
    wide.epochs = 1;
    rig = rig_open(&wide);
    tsocket_options_init(&options);
    options.hold = 5;
    ts = rig_attach(3, &options);
    for (uint64_t first = 0; first < 300; first += 15) {
        for (uint32_t i = 0; i < 5; i++)
            rig_expect_batch(ts, 0, first + 3 * i, 3, &held[i]);
        for (uint32_t i = 0; i < 5; i++) {
            rig_check(&held[4 - i]); /* unchanged while it was held */
            assert_int_equal(tsocket_release(ts, &held[4 - i]), TSOCKET_OK);
        }
    }
    rig_expect_epoch_end(ts, 0, 300);
    tsocket_close(ts);
    rig_close(rig);
}

static void the_oldest_held_batch_keeps_its_memory(void **state)
{
    struct rig_options wide = small;
    struct rig *rig;
    struct tsocket_options options;
    struct tsocket_batch oldest, batch;
    struct tsocket *ts;

    (void)state;
    wide.epoch_samples = 300;
    rig = rig_open(&wide);
    tsocket_options_init(&options);
    options.hold = 4;
    ts = rig_attach(4, &options);
    rig_expect_batch(ts, 0, 0, 4, &oldest);
    for (uint64_t first = 4; first < 16; first += 4)
        rig_expect_and_release(ts, 0, first, 4);
    assert_int_equal(tsocket_next(ts, 100, &batch), TSOCKET_EHELD);
    rig_check(&oldest);
    assert_int_equal(tsocket_release(ts, &oldest), TSOCKET_OK);
    rig_expect_and_release(ts, 0, 16, 4);
    tsocket_close(ts);
    rig_close(rig);
}

static void what_is_not_held_cannot_be_released(void **state)
{
    struct rig *rig = rig_open(&small);
    struct tsocket *ts = rig_attach(4, NULL);
    struct tsocket *other = rig_attach(4, NULL);
    struct tsocket_batch batch, never;

    (void)state;
    memset(&never, 0, sizeof(never));
    assert_int_equal(tsocket_release(ts, &never), TSOCKET_EINVAL);
    memset(&never, 0xff, sizeof(never));
    assert_int_equal(tsocket_release(ts, &never), TSOCKET_EINVAL);
    rig_expect_batch(ts, 0, 0, 4, &batch);
    assert_int_equal(tsocket_release(other, &batch), TSOCKET_EINVAL);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_EINVAL);
    tsocket_close(other);
    tsocket_close(ts);
    rig_close(rig);
}

static void what_is_put_back_comes_again(void **state)
{
    struct rig *rig = rig_open(&small);
    struct tsocket_batch batch, other;
    struct tsocket_epoch ended;
    struct tsocket *ts = rig_attach(4, NULL);
    uint64_t first;

    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        for (int k = 0; k < 3; k++) {
            rig_expect_batch(ts, 0, 4 * i, i < 2 ? 4 : 2, &batch);
            assert_int_equal(tsocket_put_back(ts, &batch), TSOCKET_OK);
            assert_int_equal(tsocket_put_back(ts, &batch), TSOCKET_EINVAL);
            assert_int_equal(tsocket_release(ts, &batch), TSOCKET_EINVAL);
            assert_int_equal(tsocket_position(ts, NULL, &first), TSOCKET_OK);
            assert_int_equal(first, 4 * i);
        }
        rig_expect_and_release(ts, 0, 4 * i, i < 2 ? 4 : 2);
    }
    rig_expect_epoch_end(ts, 0, 10);
    assert_int_equal(tsocket_ended_epoch(ts, &ended), TSOCKET_OK);
    assert_int_equal(ended.received, 10);
    rig_expect_batch(ts, 1, 0, 4, &batch);
    rig_expect_batch(ts, 1, 4, 4, &other);
    assert_int_equal(tsocket_put_back(ts, &batch), TSOCKET_EINVAL);
    assert_int_equal(tsocket_put_back(ts, &other), TSOCKET_OK);
    rig_expect_batch(ts, 1, 4, 4, &other); /* though as many are held as may be */
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    assert_int_equal(tsocket_put_back(ts, &other), TSOCKET_OK);
    assert_int_equal(tsocket_put_back(NULL, &other), TSOCKET_EINVAL);
    rig_expect_and_release(ts, 1, 4, 4);
    tsocket_close(ts);
    rig_close(rig);
}

static void next_without_patience_does_not_wait(void **state)
{
    struct rig_options waiting = small;
    struct rig *rig;
    struct tsocket_batch batch, before;
    struct tsocket *ts;

    (void)state;
    waiting.wait_for = 2;
    rig = rig_open(&waiting);
    ts = rig_attach(4, NULL);
    memset(&batch, 0xa5, sizeof(batch));
    before = batch;
    assert_int_equal(tsocket_next(ts, 0, &batch), TSOCKET_EAGAIN);
    assert_int_equal(tsocket_next(ts, 20, &batch), TSOCKET_EAGAIN);
    assert_memory_equal(&batch, &before, sizeof(batch)); /* outputs are written on success only */
    tsocket_close(ts);
    rig_close(rig);
}

static void the_position_is_that_of_the_next_batch(void **state)
{
    struct rig *rig = rig_open(&small);
    struct tsocket *ts = rig_attach(4, NULL);
    struct tsocket_batch batch;
    uint64_t epoch = 99, first = 99;

    (void)state;
    assert_int_equal(tsocket_position(ts, &epoch, &first), TSOCKET_OK);
    assert_true(epoch == 0 && first == 0);
    rig_expect_batch(ts, 0, 0, 4, &batch);
    assert_int_equal(tsocket_position(ts, &epoch, &first), TSOCKET_OK);
    assert_true(epoch == 0 && first == 4);
    tsocket_release(ts, &batch);
    rig_expect_and_release(ts, 0, 4, 4);
    rig_expect_and_release(ts, 0, 8, 2);
    rig_expect_epoch_end(ts, 0, 10);
    assert_int_equal(tsocket_position(ts, &epoch, NULL), TSOCKET_OK);
    assert_int_equal(tsocket_position(ts, NULL, &first), TSOCKET_OK);
    assert_true(epoch == 1 && first == 0);
    tsocket_close(ts);
    rig_close(rig);
}

static void describe_tells_what_the_stream_holds(void **state)
{
    struct rig *rig = rig_open(&small);
    struct tsocket *ts = rig_attach(4, NULL);
    struct tsocket_info info;

    (void)state;
    assert_int_equal(tsocket_describe(ts, &info), TSOCKET_OK);
    assert_string_equal(info.daemon, RIG_NAME);
    assert_string_equal(info.stream, "train");
    assert_int_equal(info.n_fields, 2);
    assert_string_equal(info.fields[0].name, "value");
    assert_int_equal(info.fields[0].dtype, TSOCKET_INT64);
    assert_int_equal(info.fields[0].ndim, 0);
    assert_int_equal(info.fields[0].sample_bytes, 8);
    assert_string_equal(info.fields[1].name, "noise");
    assert_int_equal(info.fields[1].shape[0], 24);
    assert_int_equal(info.fields[1].sample_bytes, 24);
    assert_int_equal(info.batch_size, 4);
    assert_int_equal(info.epoch_samples, 10);
    assert_int_equal(info.batches, 3);
    assert_int_equal(info.epoch, 0);
    assert_int_equal(info.position, 0);
    assert_int_equal(info.first, 0);
    assert_int_equal(info.capacity, 16);
    tsocket_close(ts);
    rig_close(rig);
}

static void only_the_fields_that_are_wanted_come_in_the_order_wanted(void **state)
{
    struct rig *rig = rig_open(&small);
    struct tsocket_options options;
    struct tsocket_info info;
    struct tsocket_batch batch;
    struct tsocket *ts;
    (void)state;
    tsocket_options_init(&options);
    options.fields = "noise,value";
    ts = rig_attach(4, &options);
    assert_int_equal(tsocket_describe(ts, &info), TSOCKET_OK);
    assert_int_equal(info.n_fields, 2);
    assert_string_equal(info.fields[0].name, "noise");
    assert_int_equal(tsocket_next(ts, -1, &batch), TSOCKET_OK);
    assert_int_equal(rig_number(batch.data[1], 1), rig_value(0, 1));
    tsocket_close(ts);
    options.fields = "value";
    ts = rig_attach(4, &options);
    assert_int_equal(tsocket_describe(ts, &info), TSOCKET_OK);
    assert_int_equal(info.n_fields, 1);
    tsocket_close(ts);
    rig_close(rig);
}

static void a_batch_stays_readable_after_the_producer_has_gone(void **state)
{
    struct tsocket_options options;
    struct tsocket_batch held, batch;
    uint64_t first = 4;
    struct tsocket *ts;
    struct rig *rig;
    int rc;

    (void)state;
    if (!rig_outlives_its_producer())
        skip();
    rig = rig_open(&small);
    tsocket_options_init(&options);
    options.hold = 4;
    ts = rig_attach(4, &options);
    rig_expect_batch(ts, 0, 0, 4, &held);
    rig_close(rig);
    while ((rc = tsocket_next(ts, -1, &batch)) != TSOCKET_GONE) { /* what was ready is still delivered */
        if (rc == TSOCKET_EPOCH_END) {
            first = 0;
            continue;
        }
        assert_int_equal(rc, TSOCKET_OK);
        assert_int_equal(batch.first, first);
        rig_check(&batch);
        first += batch.count;
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    }
    rig_check(&held);
    tsocket_close(ts);
}

static void a_producer_that_ends_before_its_stream_does_is_gone_for_good(void **state)
{
    struct rig_options waiting = small;
    struct rig *rig;
    struct tsocket *ts;
    struct tsocket_batch batch;

    (void)state;
    waiting.wait_for = 2;
    rig = rig_open(&waiting);
    ts = rig_attach(4, NULL);
    rig_close(rig);
    for (int i = 0; i < 3; i++)
        assert_int_equal(tsocket_next(ts, -1, &batch), TSOCKET_GONE);
    assert_non_null(strstr(tsocket_last_error(), RIG_NAME));
    tsocket_close(ts);
}

struct reader {
    struct tsocket *ts;
    uint64_t samples;
    uint64_t epochs;
    uint64_t wrong;
};

/* In a thread of its own, so it only counts what is wrong. */
static void *read_all(void *context)
{
    struct reader *reader = context;
    struct tsocket_batch batch;
    int rc;

    while ((rc = tsocket_next(reader->ts, -1, &batch)) == TSOCKET_OK || rc == TSOCKET_EPOCH_END) {
        if (rc == TSOCKET_EPOCH_END) {
            reader->epochs++;
            continue;
        }
        reader->samples += batch.count;
        reader->wrong += !rig_holds(&batch);
        reader->wrong += tsocket_release(reader->ts, &batch) != TSOCKET_OK;
    }
    reader->wrong += rc != TSOCKET_END;
    return NULL;
}

static void consumers_in_threads_of_the_producers_process_get_everything(void **state)
{
    const struct rig_options options = {
        .epoch_samples = 1009, .epochs = 3, .capacity = 64, .max_batch = 16, .threads = 3, .wait_for = 4};
    const uint32_t batch_sizes[4] = {1, 3, 7, 16};
    struct rig *rig = rig_open(&options);
    struct reader readers[4] = {{.samples = 0}};
    pthread_t threads[4];

    (void)state;
    for (int i = 0; i < 4; i++)
        readers[i].ts = rig_attach(batch_sizes[i], NULL);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &readers[i]), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(readers[i].samples, 3 * 1009);
        assert_int_equal(readers[i].epochs, 3);
        assert_int_equal(readers[i].wrong, 0);
        tsocket_close(readers[i].ts);
    }
    rig_close(rig);
}

/* Epochs that fit into the ring are made before enough consumers are there; that is no reason to look again. */
static void who_waits_for_the_others_of_a_group_sleeps(void **state)
{
    struct rig_options waiting = small;
    struct rusage before, after;
    struct tsocket_batch batch;
    struct tsocket *ts;
    struct rig *rig;

    (void)state;
    waiting.epochs = 0;
    waiting.capacity = 64;
    waiting.wait_for = 2;
    rig = rig_open(&waiting);
    ts = rig_attach(4, NULL);
    assert_int_equal(tsocket_next(ts, 100, &batch), TSOCKET_EAGAIN); /* the ring is full now */
    assert_int_equal(getrusage(RUSAGE_THREAD, &before), 0);
    assert_int_equal(tsocket_next(ts, 300, &batch), TSOCKET_EAGAIN);
    assert_int_equal(getrusage(RUSAGE_THREAD, &after), 0);
    assert_in_range(after.ru_nvcsw - before.ru_nvcsw, 0, 20);
    tsocket_close(ts);
    rig_close(rig);
}

/*
 * Two handles in one thread, which hold as much as the ring has, in step. What the second has released and not told is
 * room that the first waits for, while nobody asks the second for its next batch.
 */
static void handles_of_one_thread_do_not_wait_for_each_others_releases(void **state)
{
    const struct rig_options tight = {.epoch_samples = 1000, .capacity = 16, .max_batch = 1, .wait_for = 2};
    struct rig *rig = rig_open(&tight);
    struct tsocket_batch held[2][16];
    struct tsocket_options all;
    struct tsocket *ts[2];

    (void)state;
    tsocket_options_init(&all);
    all.hold = 16;
    for (int i = 0; i < 2; i++)
        ts[i] = rig_attach(1, &all);
    for (uint64_t first = 0; first < 100; first++) {
        for (int i = 0; i < 2 && first >= 16; i++)
            assert_int_equal(tsocket_release(ts[i], &held[i][first % 16]), TSOCKET_OK);
        for (int i = 0; i < 2; i++)
            rig_expect_batch(ts[i], 0, first, 1, &held[i][first % 16]);
    }
    for (int i = 0; i < 2; i++)
        tsocket_close(ts[i]);
    rig_close(rig);
}

static void every_code_has_a_name_and_a_sentence(void **state)
{
    (void)state;
#define CHECK(name, value, text)                                                                                       \
    assert_int_equal(name, value);                                                                                     \
    assert_string_equal(tsocket_strerror(name), text);                                                                 \
    assert_string_equal(tsocket_errname(name), &#name[sizeof("TSOCKET_") - 1]);
    TSOCKET_ERRORS(CHECK)
#undef CHECK
    assert_non_null(tsocket_strerror(12345));
    assert_non_null(tsocket_errname(-12345));
    assert_string_equal(tsocket_version(), "0.1.0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_refuses_null),
        cmocka_unit_test(options_that_make_no_sense_are_refused),
        cmocka_unit_test(a_whole_run_ends_each_epoch_once_and_then_stays_ended),
        cmocka_unit_test(a_consumer_that_wants_one_epoch_ends_after_one),
        cmocka_unit_test(no_more_batches_can_be_held_than_were_announced),
        cmocka_unit_test(batches_held_to_the_limit_and_released_backwards_lose_nothing),
        cmocka_unit_test(the_oldest_held_batch_keeps_its_memory),
        cmocka_unit_test(what_is_not_held_cannot_be_released),
        cmocka_unit_test(what_is_put_back_comes_again),
        cmocka_unit_test(next_without_patience_does_not_wait),
        cmocka_unit_test(the_position_is_that_of_the_next_batch),
        cmocka_unit_test(describe_tells_what_the_stream_holds),
        cmocka_unit_test(only_the_fields_that_are_wanted_come_in_the_order_wanted),
        cmocka_unit_test(a_batch_stays_readable_after_the_producer_has_gone),
        cmocka_unit_test(a_producer_that_ends_before_its_stream_does_is_gone_for_good),
        cmocka_unit_test(consumers_in_threads_of_the_producers_process_get_everything),
        cmocka_unit_test(who_waits_for_the_others_of_a_group_sleeps),
        cmocka_unit_test(handles_of_one_thread_do_not_wait_for_each_others_releases),
        cmocka_unit_test(every_code_has_a_name_and_a_sentence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
