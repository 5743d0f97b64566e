/* SPDX-License-Identifier: Apache-2.0 */
/* The ranks of a data-parallel job: disjoint windows, the same number of steps, nothing lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "rig.h"

enum {
    WORLD_MAX = 8,
    SAMPLES_MAX = 4096,
};

struct job {
    struct tsocket *ranks[WORLD_MAX];
    uint32_t world;
    uint32_t batch;
    uint64_t length; /* of the epoch, bad samples taken off */
    uint32_t steps;  /* of each rank: as if all samples were good, for nobody knows better when the epoch begins */
};

static void open_job(struct job *job, uint64_t samples)
{
    struct tsocket_options options;

    tsocket_options_init(&options);
    options.shard_world = job->world;
    for (uint32_t rank = 0; rank < job->world; rank++) {
        options.shard_rank = rank;
        job->ranks[rank] = rig_attach(job->batch, &options);
    }
    job->steps = (uint32_t)((samples + job->batch * job->world - 1) / (job->batch * job->world));
}

static void close_job(struct job *job)
{
    for (uint32_t rank = 0; rank < job->world; rank++)
        tsocket_close(job->ranks[rank]);
}

/* Takes one batch of each rank and marks what came. */
static void one_step(struct job *job, uint64_t epoch, uint32_t step, unsigned char seen[SAMPLES_MAX])
{
    for (uint32_t rank = 0; rank < job->world; rank++) {
        uint64_t first = (uint64_t)(step * job->world + rank) * job->batch;
        uint64_t left = first < job->length ? job->length - first : 0;
        uint32_t valid = left < job->batch ? (uint32_t)left : job->batch;
        struct tsocket_batch batch;

        assert_int_equal(tsocket_next(job->ranks[rank], 20000, &batch), TSOCKET_OK);
        assert_int_equal(batch.epoch, epoch);
        assert_int_equal(batch.count, job->batch);
        assert_int_equal(batch.valid, valid);
        for (uint32_t i = 0; i < batch.valid; i++) {
            int64_t ordinal = rig_number(batch.data[0], i) - rig_value(epoch, 0);

            assert_in_range(ordinal, 0, SAMPLES_MAX - 1);
            seen[ordinal]++;
        }
        assert_int_equal(tsocket_release(job->ranks[rank], &batch), TSOCKET_OK);
    }
}

static void one_epoch(struct job *job, uint64_t epoch)
{
    unsigned char seen[SAMPLES_MAX] = {0};
    uint64_t samples = 0;

    for (uint32_t step = 0; step < job->steps; step++)
        one_step(job, epoch, step, seen);
    for (uint32_t i = 0; i < SAMPLES_MAX; i++) {
        assert_in_range(seen[i], 0, 1);
        samples += seen[i];
    }
    assert_int_equal(samples, job->length);
    for (uint32_t rank = 0; rank < job->world; rank++)
        rig_expect_epoch_end(job->ranks[rank], epoch, job->length);
}

static void run_job(uint64_t samples, uint64_t bad_every, uint32_t batch, uint32_t world)
{
    uint64_t bad = bad_every > 0 ? (samples + bad_every - 1) / bad_every : 0;
    struct rig_options options = {.epoch_samples = samples,
                                  .epochs = 2,
                                  .capacity = 2 * (uint64_t)batch * world + 1, /* the smallest that is let in */
                                  .max_batch = batch,
                                  .threads = 3,
                                  .wait_for = world,
                                  .bad_every = bad_every};
    struct job job = {.world = world, .batch = batch, .length = samples - bad};
    struct rig *rig = rig_open(&options);

    open_job(&job, samples);
    one_epoch(&job, 0);
    one_epoch(&job, 1);
    close_job(&job);
    rig_close(rig);
}

static void ranks_share_an_epoch_that_divides_evenly(void **state)
{
    (void)state;
    run_job(96, 0, 4, 4);
}

static void ranks_share_an_epoch_with_a_tail(void **state)
{
    (void)state;
    run_job(101, 0, 4, 4);
    run_job(103, 0, 4, 2);
    run_job(1009, 0, 7, 8);
}

static void ranks_take_the_same_steps_where_some_have_no_sample_left(void **state)
{
    (void)state;
    run_job(97, 0, 4, 4);
    run_job(3, 0, 4, 4);
    run_job(1, 0, 1, 3);
}

static void ranks_share_an_epoch_that_bad_samples_shorten(void **state)
{
    (void)state;
    run_job(101, 10, 4, 4);
    run_job(101, 3, 4, 4);
    run_job(99, 33, 4, 4); /* 96 are left, one step less for all: the last one is padding */
}

/*
 * Two windows of rank 1 hold samples, the third lies behind the end and repeats the last one, 9. That stays, although
 * the head is far beyond it and rank 0 reads on and on.
 */
static void what_a_window_behind_the_end_is_padded_with_stays_until_then(void **state)
{
    const struct rig_options options = {.epoch_samples = 10, .capacity = 64, .max_batch = 2, .wait_for = 2};
    struct rig *rig = rig_open(&options);
    struct job job = {.world = 2, .batch = 2};
    struct tsocket_batch batch;
    int rc;

    (void)state;
    usleep(100000); /* the ring is full of epochs before the ranks come */
    open_job(&job, 10);
    rig_expect_and_release(job.ranks[1], 0, 2, 2);
    rig_expect_and_release(job.ranks[1], 0, 6, 2);
    while ((rc = tsocket_next(job.ranks[0], 200, &batch)) != TSOCKET_EAGAIN) {
        if (rc != TSOCKET_EPOCH_END)
            assert_int_equal(tsocket_release(job.ranks[0], &batch), TSOCKET_OK);
    }
    rig_expect_batch(job.ranks[1], 0, 10, 0, &batch);
    assert_int_equal(rig_number(batch.data[0], 0), rig_value(0, 9));
    assert_int_equal(tsocket_release(job.ranks[1], &batch), TSOCKET_OK);
    rig_expect_epoch_end(job.ranks[1], 0, 10);
    close_job(&job);
    rig_close(rig);
}

/* The same where a rank has no other window than such a one, and has not even looked at the epoch yet. */
static void what_an_epoch_smaller_than_a_step_is_padded_with_stays(void **state)
{
    const struct rig_options options = {.epoch_samples = 3, .capacity = 64, .max_batch = 3, .wait_for = 2};
    struct rig *rig = rig_open(&options);
    struct job job = {.world = 2, .batch = 3};
    struct tsocket_batch batch;
    int rc;

    (void)state;
    usleep(100000);
    open_job(&job, 3);
    rig_expect_and_release(job.ranks[1], 0, 3, 0);
    rig_expect_epoch_end(job.ranks[1], 0, 3);
    while ((rc = tsocket_next(job.ranks[0], 200, &batch)) != TSOCKET_EAGAIN) {
        if (rc != TSOCKET_EPOCH_END)
            assert_int_equal(tsocket_release(job.ranks[0], &batch), TSOCKET_OK);
    }
    rig_expect_batch(job.ranks[1], 1, 3, 0, &batch);
    assert_int_equal(rig_number(batch.data[0], 0), rig_value(1, 2));
    assert_int_equal(tsocket_release(job.ranks[1], &batch), TSOCKET_OK);
    close_job(&job);
    rig_close(rig);
}

static void a_world_too_large_for_the_ring_is_refused_with_the_numbers(void **state)
{
    struct rig_options options = {.epoch_samples = 100, .epochs = 1, .capacity = 16, .max_batch = 4};
    struct rig *rig = rig_open(&options);
    struct tsocket_options shard;
    struct tsocket *ts = NULL;

    (void)state;
    tsocket_options_init(&shard);
    shard.shard_world = 4;
    assert_int_equal(tsocket_open(RIG_NAME, 4, &shard, &ts), TSOCKET_EREFUSED);
    assert_non_null(strstr(tsocket_last_error(), "16"));
    assert_null(ts);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_share_an_epoch_that_divides_evenly),
        cmocka_unit_test(ranks_share_an_epoch_with_a_tail),
        cmocka_unit_test(ranks_take_the_same_steps_where_some_have_no_sample_left),
        cmocka_unit_test(ranks_share_an_epoch_that_bad_samples_shorten),
        cmocka_unit_test(what_a_window_behind_the_end_is_padded_with_stays_until_then),
        cmocka_unit_test(what_an_epoch_smaller_than_a_step_is_padded_with_stays),
        cmocka_unit_test(a_world_too_large_for_the_ring_is_refused_with_the_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
