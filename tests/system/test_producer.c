/* SPDX-License-Identifier: Apache-2.0 */
/* What a program that is its own producer can rely on. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"

static const struct tsocket_field one_field[] = {{.name = "value", .dtype = TSOCKET_INT64}};

static void init_stream(struct tsocket_stream_options *stream)
{
    tsocket_stream_options_init(stream);
    stream->fields = one_field;
    stream->n_fields = 1;
    stream->epoch_samples = 10;
    stream->capacity = 8;
    stream->max_batch = 4;
}

/* A producer with one stream, started, that nobody fills but the test itself. */
static struct tsocket_producer *start_bare(const struct tsocket_stream_options *stream)
{
    struct tsocket_producer_options options;
    struct tsocket_producer *producer = NULL;

    tsocket_producer_options_init(&options);
    options.name = RIG_NAME;
    options.join_grace_ms = 0;
    assert_int_equal(tsocket_producer_open(&options, &producer), TSOCKET_OK);
    assert_int_equal(tsocket_producer_add_stream(producer, stream, NULL), TSOCKET_OK);
    assert_int_equal(tsocket_producer_start(producer), TSOCKET_OK);
    return producer;
}

static void claim_in_order(struct tsocket_producer *producer, uint64_t ordinal, struct tsocket_claim *claim_out)
{
    int64_t value;

    assert_int_equal(tsocket_producer_claim(producer, 20000, claim_out), TSOCKET_OK);
    assert_int_equal(claim_out->ordinal, ordinal);
    value = rig_value(claim_out->epoch, claim_out->ordinal);
    memcpy(claim_out->data[0], &value, sizeof(value));
}

static void samples_become_readable_in_order_whatever_the_order_of_commits(void **state)
{
    struct tsocket_stream_options stream;
    struct tsocket_producer *producer;
    struct tsocket_claim claims[3];
    struct tsocket_batch batch;
    struct tsocket *ts;

    (void)state;
    rig_folder_make();
    init_stream(&stream);
    producer = start_bare(&stream);
    ts = rig_attach(1, NULL);
    for (uint32_t i = 0; i < 3; i++)
        claim_in_order(producer, i, &claims[i]);
    tsocket_producer_commit(producer, &claims[2]);
    tsocket_producer_commit(producer, &claims[1]);
    assert_int_equal(tsocket_next(ts, 50, &batch), TSOCKET_EAGAIN);
    tsocket_producer_commit(producer, &claims[0]);
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(tsocket_next(ts, 20000, &batch), TSOCKET_OK);
        assert_int_equal(*(const int64_t *)batch.data[0], rig_value(0, i));
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    }
    tsocket_close(ts);
    tsocket_producer_close(producer);
    rig_folder_check_and_remove();
}

static void a_full_ring_gives_no_claims_until_something_is_released(void **state)
{
    struct tsocket_stream_options stream;
    struct tsocket_producer *producer;
    struct tsocket_claim claim;
    struct tsocket_batch batch;
    struct tsocket *ts;

    (void)state;
    rig_folder_make();
    init_stream(&stream);
    stream.epoch_samples = 100;
    producer = start_bare(&stream);
    ts = rig_attach(4, NULL);
    for (uint32_t i = 0; i < 8; i++) {
        claim_in_order(producer, i, &claim);
        tsocket_producer_commit(producer, &claim);
    }
    assert_int_equal(tsocket_producer_claim(producer, 0, &claim), TSOCKET_EAGAIN);
    assert_int_equal(tsocket_producer_claim(producer, 50, &claim), TSOCKET_EAGAIN);
    assert_int_equal(tsocket_next(ts, 20000, &batch), TSOCKET_OK);
    assert_int_equal(tsocket_producer_claim(producer, 50, &claim), TSOCKET_EAGAIN);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    claim_in_order(producer, 8, &claim);
    tsocket_producer_commit(producer, &claim);
    tsocket_close(ts);
    tsocket_producer_stop(producer);
    assert_int_equal(tsocket_producer_claim(producer, -1, &claim), TSOCKET_END);
    assert_int_equal(tsocket_producer_wait(producer, -1), TSOCKET_END);
    tsocket_producer_close(producer);
    rig_folder_check_and_remove();
}

static void wait_ends_when_all_epochs_were_read(void **state)
{
    const struct rig_options options = {.epoch_samples = 10, .epochs = 2, .capacity = 16, .max_batch = 4};
    struct rig *rig = rig_open(&options);
    struct tsocket *ts = rig_attach(4, NULL);

    (void)state;
    assert_int_equal(tsocket_producer_wait(rig_producer(rig), 50), TSOCKET_EAGAIN);
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        rig_expect_and_release(ts, epoch, 0, 4);
        rig_expect_and_release(ts, epoch, 4, 4);
        rig_expect_and_release(ts, epoch, 8, 2);
        rig_expect_epoch_end(ts, epoch, 10);
    }
    tsocket_close(ts);
    assert_int_equal(tsocket_producer_wait(rig_producer(rig), 20000), TSOCKET_END);
    rig_close(rig);
}

/* Writes values first .. first + count - 1 of epoch 0 in one call; how many were written. */
static uint64_t write_values(struct tsocket_producer *producer, int timeout_ms, uint64_t first, uint64_t count,
                             int rc_expected)
{
    int64_t values[16];
    const void *const data[] = {values};
    uint64_t written = UINT64_MAX;

    for (uint64_t i = 0; i < count; i++)
        values[i] = rig_value(0, first + i);
    assert_int_equal(tsocket_producer_write(producer, 0, timeout_ms, data, count, &written), rc_expected);
    return written;
}

static void expect_values(struct tsocket *ts, uint64_t first, uint32_t count)
{
    struct tsocket_batch batch;

    assert_int_equal(tsocket_next(ts, 20000, &batch), TSOCKET_OK);
    assert_int_equal(batch.count, count);
    for (uint32_t i = 0; i < count; i++)
        assert_int_equal(((const int64_t *)batch.data[0])[i], rig_value(0, first + i));
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
}

/* A producer that writes whole batches itself, in epochs of `epoch_samples`, for ever, and one consumer. */
static struct tsocket_producer *start_writing(uint64_t epoch_samples, struct tsocket **ts_out)
{
    struct tsocket_stream_options stream;
    struct tsocket_producer *producer;

    rig_folder_make();
    init_stream(&stream);
    stream.epoch_samples = epoch_samples;
    stream.on_bad = TSOCKET_BAD_FAIL;
    producer = start_bare(&stream);
    *ts_out = rig_attach(4, NULL);
    return producer;
}

static void end_writing(struct tsocket_producer *producer, struct tsocket *ts)
{
    tsocket_close(ts);
    tsocket_producer_close(producer);
    rig_folder_check_and_remove();
}

static void whole_batches_are_written_as_far_as_there_is_room(void **state)
{
    struct tsocket *ts;
    struct tsocket_producer *producer = start_writing(10, &ts);
    uint64_t written = UINT64_MAX;

    (void)state;
    assert_int_equal(write_values(producer, 0, 0, 10, TSOCKET_EAGAIN), 8);
    expect_values(ts, 0, 4);
    expect_values(ts, 4, 4);
    assert_int_equal(write_values(producer, 20000, 8, 2, TSOCKET_OK), 2);
    expect_values(ts, 8, 2);
    rig_expect_epoch_end(ts, 0, 10);
    assert_int_equal(tsocket_producer_write(producer, 1, 0, NULL, 1, &written), TSOCKET_EINVAL);
    assert_int_equal(written, 0);
    tsocket_producer_stop(producer);
    assert_int_equal(write_values(producer, -1, 0, 1, TSOCKET_END), 0);
    end_writing(producer, ts);
}

static void an_epoch_may_end_sooner_than_was_said(void **state)
{
    struct tsocket *ts;
    struct tsocket_producer *producer = start_writing(10, &ts);
    struct tsocket_claim claim;

    (void)state;
    assert_int_equal(write_values(producer, 0, 0, 6, TSOCKET_OK), 6);
    assert_int_equal(tsocket_producer_claim(producer, 0, &claim), TSOCKET_OK);
    assert_int_equal(tsocket_producer_end_epoch(producer, &claim), TSOCKET_OK);
    expect_values(ts, 0, 4);
    expect_values(ts, 4, 2);
    rig_expect_epoch_end(ts, 0, 6);
    end_writing(producer, ts);
}

static void a_stream_can_be_finished_between_two_epochs(void **state)
{
    struct tsocket *ts;
    struct tsocket_producer *producer = start_writing(4, &ts);
    struct tsocket_batch batch;

    (void)state;
    assert_int_equal(write_values(producer, 0, 0, 4, TSOCKET_OK), 4);
    expect_values(ts, 0, 4);
    rig_expect_epoch_end(ts, 0, 4);
    assert_int_equal(tsocket_next(ts, 50, &batch), TSOCKET_EAGAIN); /* it has begun the next one already */
    assert_int_equal(tsocket_producer_finish(producer, 0), TSOCKET_OK);
    assert_int_equal(tsocket_next(ts, 20000, &batch), TSOCKET_END);
    assert_int_equal(write_values(producer, -1, 0, 1, TSOCKET_END), 0);
    tsocket_close(ts);
    assert_int_equal(tsocket_producer_wait(producer, 20000), TSOCKET_END);
    end_writing(producer, NULL);
}

static void a_stream_can_be_finished_in_the_middle_of_an_epoch(void **state)
{
    struct tsocket *ts;
    struct tsocket_producer *producer = start_writing(0, &ts);
    struct tsocket_claim claim;
    struct tsocket_batch batch;

    (void)state;
    assert_int_equal(write_values(producer, 0, 0, 5, TSOCKET_OK), 5);
    expect_values(ts, 0, 4); /* while nobody knows where the epoch will end */
    assert_int_equal(tsocket_producer_claim(producer, 0, &claim), TSOCKET_OK);
    assert_int_equal(tsocket_producer_finish(producer, 0), TSOCKET_EINVAL); /* a sample is being made */
    *(int64_t *)claim.data[0] = rig_value(0, 5);
    tsocket_producer_commit(producer, &claim);
    assert_int_equal(tsocket_producer_finish(producer, 0), TSOCKET_OK);
    expect_values(ts, 4, 2);
    rig_expect_epoch_end(ts, 0, 6);
    assert_int_equal(tsocket_next(ts, 20000, &batch), TSOCKET_END);
    end_writing(producer, ts);
}

/*
 * Of 0 .. 9 every third is bad. 0 is replaced by the last, 9, which is bad as well, then by 8; 3 by 7, the last that is
 * left; and behind 5 only 6 remains, which is bad.
 */
static void expect_the_six_good_ones(struct tsocket *ts, uint64_t epoch)
{
    static const uint64_t order[] = {8, 1, 2, 7, 4, 5};
    struct tsocket_batch batch;
    uint32_t got = 0;

    while (got < 6) {
        assert_int_equal(tsocket_next(ts, 20000, &batch), TSOCKET_OK);
        assert_int_equal(batch.first, got);
        for (uint32_t i = 0; i < batch.count; i++)
            assert_int_equal(((const int64_t *)batch.data[0])[i], rig_value(epoch, order[got + i]));
        got += batch.count;
        assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    }
    rig_expect_epoch_end(ts, epoch, 6);
}

static void the_epochs_last_samples_take_the_places_of_bad_ones(void **state)
{
    const uint32_t threads[] = {1, 2, 7};
    const uint64_t capacities[] = {4, 5, 8, 64};

    (void)state;
    for (int t = 0; t < 3; t++) {
        for (int c = 0; c < 4; c++) {
            const struct rig_options options = {.epoch_samples = 10,
                                                .epochs = 3,
                                                .capacity = capacities[c],
                                                .max_batch = 2,
                                                .threads = threads[t],
                                                .bad_every = 3};
            struct rig *rig = rig_open(&options);
            struct tsocket *ts = rig_attach(2, NULL);

            for (uint64_t epoch = 0; epoch < 3; epoch++)
                expect_the_six_good_ones(ts, epoch);
            tsocket_close(ts);
            rig_close(rig);
        }
    }
}

static void masked_samples_stay_in_their_places(void **state)
{
    const struct rig_options options = {
        .epoch_samples = 10, .epochs = 2, .capacity = 8, .max_batch = 4, .bad_every = 3, .on_bad = TSOCKET_BAD_MASK};
    struct rig *rig = rig_open(&options);
    struct tsocket *ts = rig_attach(4, NULL);

    (void)state;
    for (uint64_t epoch = 0; epoch < 2; epoch++) {
        rig_expect_and_release(ts, epoch, 0, 4);
        rig_expect_and_release(ts, epoch, 4, 4);
        rig_expect_and_release(ts, epoch, 8, 2);
        rig_expect_epoch_end(ts, epoch, 10);
    }
    tsocket_close(ts);
    rig_close(rig);
}

static void the_first_bad_sample_ends_a_run_that_tolerates_none(void **state)
{
    const struct rig_options options = {.epoch_samples = 10,
                                        .epochs = 2,
                                        .capacity = 8,
                                        .max_batch = 4,
                                        .bad_every = 3,
                                        .wait_for = 1,
                                        .on_bad = TSOCKET_BAD_FAIL};
    struct rig *rig = rig_open(&options);
    struct tsocket *ts;

    (void)state;
    assert_int_equal(tsocket_producer_wait(rig_producer(rig), 20000), TSOCKET_EBAD_SAMPLE);
    assert_non_null(strstr(tsocket_last_error(), "odd"));
    assert_int_equal(tsocket_open(RIG_NAME, 4, NULL, &ts), TSOCKET_GONE); /* who comes now is told so */
    assert_non_null(strstr(tsocket_last_error(), "is ending"));
    rig_close(rig);
}

static void a_failure_of_the_producer_ends_the_run_with_its_reason(void **state)
{
    struct tsocket_stream_options stream;
    struct tsocket_producer *producer;
    struct tsocket_claim claim;
    struct tsocket_batch batch;
    struct tsocket *ts;

    (void)state;
    rig_folder_make();
    init_stream(&stream);
    producer = start_bare(&stream);
    ts = rig_attach(4, NULL);
    claim_in_order(producer, 0, &claim);
    tsocket_producer_fail(producer, TSOCKET_ESYSTEM, "the disk is on fire");
    assert_int_equal(tsocket_producer_wait(producer, 20000), TSOCKET_ESYSTEM);
    assert_non_null(strstr(tsocket_last_error(), "on fire"));
    tsocket_producer_commit(producer, &claim);
    assert_int_equal(tsocket_producer_claim(producer, -1, &claim), TSOCKET_END);
    tsocket_producer_close(producer);
    assert_int_equal(tsocket_next(ts, 20000, &batch), TSOCKET_GONE);
    tsocket_close(ts);
    rig_folder_check_and_remove();
}

static bool is_nothing_to_a_child(struct tsocket_producer *producer)
{
    struct tsocket_claim claim;
    bool nothing = tsocket_producer_claim(producer, 0, &claim) == TSOCKET_END &&
                   tsocket_producer_wait(producer, 0) == TSOCKET_EFORK &&
                   tsocket_producer_finish(producer, 0) == TSOCKET_EFORK;

    tsocket_producer_fail(producer, TSOCKET_ESYSTEM, "said by the child");
    tsocket_producer_close(producer);
    return nothing;
}

static void a_forked_child_has_no_part_in_it(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){.epoch_samples = 100, .capacity = 40, .max_batch = 10});
    struct tsocket *ts = rig_attach(10, NULL);
    pid_t child;
    int status;

    (void)state;
    rig_expect_and_release(ts, 0, 0, 10);
    child = fork();
    if (child == 0)
        _exit(is_nothing_to_a_child(rig_producer(rig)) ? 0 : 1);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    for (uint64_t first = 10; first < 100; first += 10)
        rig_expect_and_release(ts, 0, first, 10);
    rig_expect_epoch_end(ts, 0, 100);
    tsocket_close(ts);
    rig_close(rig);
}

static void a_name_belongs_to_one_producer_at_a_time(void **state)
{
    const struct rig_options options = {.epoch_samples = 10, .epochs = 2, .capacity = 8, .max_batch = 4};
    struct rig *rig = rig_open(&options);
    struct tsocket_producer_options second;
    struct tsocket_producer *producer = NULL;
    char pid[16];

    (void)state;
    tsocket_producer_options_init(&second);
    second.name = RIG_NAME;
    assert_int_equal(tsocket_producer_open(&second, &producer), TSOCKET_EBUSY);
    snprintf(pid, sizeof(pid), "%d", (int)getpid());
    assert_non_null(strstr(tsocket_last_error(), pid));
    assert_null(producer);
    rig_close(rig);
}

static void expect_stream_error(struct tsocket_producer *producer, const struct tsocket_stream_options *stream)
{
    assert_int_equal(tsocket_producer_add_stream(producer, stream, NULL), TSOCKET_EINVAL);
    assert_true(strlen(tsocket_last_error()) > 0);
}

static void streams_that_make_no_sense_are_refused(void **state)
{
    const struct tsocket_field twice[] = {{.name = "a", .dtype = TSOCKET_INT64}, {.name = "a", .dtype = TSOCKET_INT64}};
    const struct tsocket_field odd[] = {{.name = "a", .dtype = (enum tsocket_dtype)99}};
    struct tsocket_producer_options options;
    struct tsocket_stream_options stream;
    struct tsocket_producer *producer;

    (void)state;
    rig_folder_make();
    tsocket_producer_options_init(&options);
    options.name = RIG_NAME;
    assert_int_equal(tsocket_producer_open(&options, &producer), TSOCKET_OK);
    assert_int_equal(tsocket_producer_start(producer), TSOCKET_EINVAL); /* no stream */
    init_stream(&stream);
    stream.max_batch = 9; /* capacity is 8 */
    expect_stream_error(producer, &stream);
    init_stream(&stream);
    stream.n_fields = 0;
    expect_stream_error(producer, &stream);
    init_stream(&stream);
    stream.fields = odd;
    expect_stream_error(producer, &stream);
    init_stream(&stream);
    stream.fields = twice;
    stream.n_fields = 2;
    expect_stream_error(producer, &stream);
    init_stream(&stream);
    stream.name = "../x";
    expect_stream_error(producer, &stream);
    init_stream(&stream);
    assert_int_equal(tsocket_producer_add_stream(producer, &stream, NULL), TSOCKET_OK);
    expect_stream_error(producer, &stream); /* the name is taken */
    tsocket_producer_close(producer);
    rig_folder_check_and_remove();
}

static void a_ring_larger_than_the_machine_is_refused_with_both_numbers(void **state)
{
    struct tsocket_producer_options options;
    struct tsocket_stream_options stream;
    struct tsocket_producer *producer;

    (void)state;
    rig_folder_make();
    tsocket_producer_options_init(&options);
    options.name = RIG_NAME;
    assert_int_equal(tsocket_producer_open(&options, &producer), TSOCKET_OK);
    init_stream(&stream);
    stream.capacity = UINT64_C(1) << 27;
    stream.fields =
        &(const struct tsocket_field){.name = "big", .dtype = TSOCKET_UINT8, .ndim = 1, .shape = {UINT64_C(1) << 16}};
    assert_int_equal(tsocket_producer_add_stream(producer, &stream, NULL), TSOCKET_ENOMEM);
    assert_non_null(strpbrk(tsocket_last_error(), "0123456789"));
    tsocket_producer_close(producer);
    rig_folder_check_and_remove();
}

static void the_status_is_one_line_of_json(void **state)
{
    const struct rig_options options = {.epoch_samples = 10, .epochs = 2, .capacity = 8, .max_batch = 4};
    struct rig *rig = rig_open(&options);
    struct tsocket *ts = rig_attach(4, NULL);
    char *json = NULL;

    (void)state;
    assert_int_equal(tsocket_producer_status(rig_producer(rig), &json), TSOCKET_OK);
    assert_int_equal(json[0], '{');
    assert_null(strchr(json, '\n'));
    assert_non_null(strstr(json, "\"" RIG_NAME "\""));
    free(json);
    tsocket_close(ts);
    rig_close(rig);
}

static bool status_says(struct rig *rig, const char *text)
{
    char *json = NULL;
    bool found;

    assert_int_equal(tsocket_producer_status(rig_producer(rig), &json), TSOCKET_OK);
    found = strstr(json, text) != NULL;
    free(json);
    return found;
}

/* More epochs than the control page has entries for: the first one's is long gone. */
static void the_status_tells_where_a_consumer_is(void **state)
{
    const struct rig_options options = {.epoch_samples = 10, .capacity = 16, .max_batch = 5};
    struct rig *rig = rig_open(&options);
    struct tsocket *ts = rig_attach(5, NULL);
    bool found = false;

    (void)state;
    for (uint64_t epoch = 0; epoch < 70; epoch++) {
        rig_expect_and_release(ts, epoch, 0, 5);
        rig_expect_and_release(ts, epoch, 5, 5);
        rig_expect_epoch_end(ts, epoch, 10);
    }
    rig_expect_and_release(ts, 70, 0, 5);
    assert_int_equal(tsocket_flush(ts), TSOCKET_OK);
    for (int i = 0; i < 200 && !found; i++) {
        usleep(10000);
        found = status_says(rig, "\"epoch\":70,\"first\":5,\"position\":705");
    }
    assert_true(found);
    tsocket_close(ts);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_become_readable_in_order_whatever_the_order_of_commits),
        cmocka_unit_test(a_full_ring_gives_no_claims_until_something_is_released),
        cmocka_unit_test(wait_ends_when_all_epochs_were_read),
        cmocka_unit_test(whole_batches_are_written_as_far_as_there_is_room),
        cmocka_unit_test(an_epoch_may_end_sooner_than_was_said),
        cmocka_unit_test(a_stream_can_be_finished_between_two_epochs),
        cmocka_unit_test(a_stream_can_be_finished_in_the_middle_of_an_epoch),
        cmocka_unit_test(the_epochs_last_samples_take_the_places_of_bad_ones),
        cmocka_unit_test(masked_samples_stay_in_their_places),
        cmocka_unit_test(the_first_bad_sample_ends_a_run_that_tolerates_none),
        cmocka_unit_test(a_failure_of_the_producer_ends_the_run_with_its_reason),
        cmocka_unit_test(a_forked_child_has_no_part_in_it),
        cmocka_unit_test(a_name_belongs_to_one_producer_at_a_time),
        cmocka_unit_test(streams_that_make_no_sense_are_refused),
        cmocka_unit_test(a_ring_larger_than_the_machine_is_refused_with_both_numbers),
        cmocka_unit_test(the_status_is_one_line_of_json),
        cmocka_unit_test(the_status_tells_where_a_consumer_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
