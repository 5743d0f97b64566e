/* SPDX-License-Identifier: Apache-2.0 */
/* Whoever opens with a token goes on exactly behind its batch: together as one run that was never broken. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ipc/token.h"
#include "rig.h"

enum {
    PATIENCE_MS = 20000,
    SAMPLES = 1000,
    EPOCHS = 3,
    CUTS = 200,
};

/* What a consumer got: the values in their order, and -1 for each epoch's end. */
struct record {
    int64_t *values;
    size_t n;
};

static struct record record_new(void)
{
    struct record record = {.values = calloc(EPOCHS * (SAMPLES + 1), sizeof(int64_t))};

    assert_non_null(record.values);
    return record;
}

static void record_add(struct record *record, int64_t value)
{
    assert_true(record->n < EPOCHS * (SAMPLES + 1));
    record->values[record->n++] = value;
}

/* One step; false at the stream's end. */
static bool step(struct tsocket *ts, struct record *record, char token_out[TSOCKET_TOKEN_MAX + 1])
{
    int64_t values[SAMPLES];
    struct tsocket_batch batch;
    int rc = tsocket_next(ts, PATIENCE_MS, &batch);

    if (rc == TSOCKET_END)
        return false;
    if (rc == TSOCKET_EPOCH_END) {
        record_add(record, -1);
        assert_int_equal(tsocket_token(ts, NULL, token_out), TSOCKET_OK);
        return true;
    }
    if (rc != TSOCKET_OK)
        fail_msg("next: %s", tsocket_last_error());
    rig_read(values, batch.data[0], batch.valid * sizeof(values[0]));
    for (uint32_t i = 0; i < batch.valid; i++)
        record_add(record, values[i]);
    assert_int_equal(tsocket_token(ts, &batch, token_out), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    return true;
}

/* `max_hold_ms`: 0: long enough for any machine. */
static struct rig *rig_of(enum tsocket_on_bad on_bad, uint64_t bad_every, uint32_t max_hold_ms)
{
    return rig_open(&(struct rig_options){.epoch_samples = SAMPLES,
                                          .epochs = EPOCHS,
                                          .capacity = 100,
                                          .max_batch = 16,
                                          .threads = 2,
                                          .wait_for = 1,
                                          .join_grace_ms = 1,
                                          .side_rings = 1,
                                          .max_hold_ms = max_hold_ms,
                                          .on_bad = on_bad,
                                          .bad_every = bad_every});
}

static struct tsocket *go_on(uint32_t batch, const char *token)
{
    struct tsocket_options options;

    tsocket_options_init(&options);
    options.resume = token;
    return rig_attach(batch, &options);
}

static struct rig *rig_with(enum tsocket_on_bad on_bad, uint64_t bad_every)
{
    return rig_of(on_bad, bad_every, 0);
}

static void read_all(struct tsocket *ts, struct record *record)
{
    char token[TSOCKET_TOKEN_MAX + 1];

    while (step(ts, record, token))
        ;
    tsocket_close(ts);
}

/*
 * The whole run with batch 7; then, again and again, so many steps with batch 7, a few with batch 5 and the next
 * epoch's beginning with batch 16, each by a consumer of its own. On one rig as long as it lasts, which every third cut
 * ends: a daemon that starts again.
 */
static void cut_anywhere(enum tsocket_on_bad on_bad, uint64_t bad_every)
{
    struct record whole = record_new(), parts = record_new();
    struct rig *rig = rig_with(on_bad, bad_every);
    char token[TSOCKET_TOKEN_MAX + 1];

    read_all(rig_attach(7, NULL), &whole);
    srand(7);
    for (int cut = 0; cut < rig_rounds(CUTS); cut++) {
        int steps = rand() % (EPOCHS * SAMPLES / 7);
        struct tsocket *ts;

        rig_close(rig);
        rig = rig_with(on_bad, bad_every);
        parts.n = 0;
        ts = rig_attach(7, NULL);
        for (int i = 0; i <= steps % 40; i++)
            assert_true(step(ts, &parts, token));
        tsocket_close(ts);
        if (cut % 3 == 0) {
            rig_close(rig);
            rig = rig_with(on_bad, bad_every);
        }
        ts = go_on(5, token);
        for (int i = 0; i <= steps % 300; i++)
            assert_true(step(ts, &parts, token));
        tsocket_close(ts);
        if (cut % 3 == 1) {
            rig_close(rig);
            rig = rig_with(on_bad, bad_every);
        }
        ts = go_on(16, token);
        for (int i = 0; i < 70 && step(ts, &parts, token); i++)
            ;
        tsocket_close(ts);
        assert_memory_equal(parts.values, whole.values, parts.n * sizeof(int64_t));
    }
    rig_close(rig);
    free(whole.values);
    free(parts.values);
}

static void a_run_that_is_cut_anywhere_is_as_one_that_is_not(void **state)
{
    (void)state;
    cut_anywhere(TSOCKET_BAD_SKIP, 0);
}

static void so_it_is_with_samples_left_out(void **state)
{
    (void)state;
    cut_anywhere(TSOCKET_BAD_SKIP, 97);
}

static void so_it_is_with_samples_masked(void **state)
{
    (void)state;
    cut_anywhere(TSOCKET_BAD_MASK, 97);
}

/* The token of one step opens two more runs, at other places than a third that goes on: each is complete. */
static void a_run_can_be_forked(void **state)
{
    struct record whole = record_new(), one = record_new(), two = record_new(), three = record_new();
    struct rig *rig = rig_of(TSOCKET_BAD_SKIP, 97, 200);
    char token[TSOCKET_TOKEN_MAX + 1], later[TSOCKET_TOKEN_MAX + 1];
    struct tsocket *ts;

    (void)state;
    read_all(rig_attach(7, NULL), &whole);
    rig_close(rig);
    rig = rig_of(TSOCKET_BAD_SKIP, 97, 200);
    ts = rig_attach(7, NULL);
    for (int i = 0; i < 60; i++)
        assert_true(step(ts, &one, token));
    memcpy(two.values, one.values, one.n * sizeof(int64_t));
    memcpy(three.values, one.values, one.n * sizeof(int64_t));
    two.n = three.n = one.n;
    for (int i = 0; i < 200; i++)
        assert_true(step(ts, &one, later));
    read_all(go_on(5, token), &two);
    read_all(go_on(16, token), &three);
    read_all(ts, &one);
    assert_true(one.n == whole.n && two.n == whole.n && three.n == whole.n);
    assert_memory_equal(one.values, whole.values, whole.n * sizeof(int64_t));
    assert_memory_equal(two.values, whole.values, whole.n * sizeof(int64_t));
    assert_memory_equal(three.values, whole.values, whole.n * sizeof(int64_t));
    rig_close(rig);
    free(whole.values);
    free(one.values);
    free(two.values);
    free(three.values);
}

/* Three come back, at places of their own; with wait_for the group begins at the first of them, without side rings. */
static void several_come_back_to_a_new_daemon(void **state)
{
    const struct rig_options options = {.epoch_samples = SAMPLES,
                                        .epochs = 1,
                                        .capacity = 100,
                                        .max_batch = 10,
                                        .threads = 2,
                                        .join_grace_ms = 1,
                                        .wait_for = 3};
    struct rig *rig = rig_open(&options);
    char token[3][TSOCKET_TOKEN_MAX + 1];
    struct tsocket *ts[3];
    struct tsocket_batch batch;

    (void)state;
    for (int i = 0; i < 3; i++)
        ts[i] = rig_attach(10, NULL);
    for (uint64_t first = 0; first < 530; first += 10) {
        for (uint64_t i = 0; i < 3; i++) {
            if (first < 500 + 10 * i)
                rig_expect_and_release(ts[i], 0, first, 10);
        }
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(tsocket_token(ts[i], NULL, token[i]), TSOCKET_OK);
        tsocket_close(ts[i]);
    }
    rig_close(rig);
    rig = rig_open(&options);
    for (int i = 2; i > 0; i--)
        ts[i] = go_on(10, token[i]);
    assert_int_equal(tsocket_next(ts[2], 400, &batch), TSOCKET_EAGAIN); /* the third is not there */
    ts[0] = go_on(10, token[0]);
    for (uint64_t i = 0; i < 3; i++)
        rig_expect_and_release(ts[i], 0, 500 + 10 * i, 10);
    for (uint64_t first = 530; first < SAMPLES; first += 10) {
        for (uint64_t i = 0; i < 3; i++)
            rig_expect_and_release(ts[i], 0, first - 20 + 10 * i, 10);
    }
    for (int i = 0; i < 3; i++)
        tsocket_close(ts[i]);
    rig_close(rig);
}

/* The next epoch's first sample lies where the token's place is: it still names the epoch before. */
static void behind_an_epochs_last_batch_its_end_comes_first(void **state)
{
    struct rig *rig =
        rig_open(&(struct rig_options){.epoch_samples = 30, .capacity = 100, .max_batch = 30, .side_rings = 1});
    struct tsocket *ts = rig_attach(30, NULL), *again;
    char token[TSOCKET_TOKEN_MAX + 1];
    struct tsocket_batch batch;
    uint64_t epoch, first;

    (void)state;
    rig_expect_batch(ts, 0, 0, 30, &batch);
    assert_int_equal(tsocket_token(ts, &batch, token), TSOCKET_OK);
    assert_int_equal(tsocket_release(ts, &batch), TSOCKET_OK);
    rig_expect_epoch_end(ts, 0, 30);
    rig_expect_batch(ts, 1, 0, 30, &batch);
    again = go_on(7, token);
    assert_int_equal(tsocket_position(again, &epoch, &first), TSOCKET_OK);
    assert_int_equal(epoch, 0);
    assert_int_equal(first, 30);
    rig_expect_epoch_end(again, 0, 30);
    rig_expect_and_release(again, 1, 0, 7);
    tsocket_close(again);
    tsocket_close(ts);
    rig_close(rig);
}

static void a_token_of_another_run_is_refused_and_says_what_differs(void **state)
{
    struct rig_options options = {.epoch_samples = 100, .capacity = 20, .max_batch = 10};
    struct rig *rig = rig_open(&options);
    struct tsocket *ts = rig_attach(10, NULL);
    char token[TSOCKET_TOKEN_MAX + 1];
    struct tsocket_options with;
    struct tsocket_batch batch;

    (void)state;
    rig_expect_batch(ts, 0, 0, 10, &batch);
    assert_int_equal(tsocket_token(ts, &batch, token), TSOCKET_OK);
    tsocket_close(ts);
    rig_close(rig);
    options.seed = 1;
    rig = rig_open(&options);
    tsocket_options_init(&with);
    with.resume = token;
    assert_int_equal(tsocket_open(RIG_NAME, 10, &with, &ts), TSOCKET_EREFUSED);
    assert_non_null(strstr(tsocket_last_error(), "the seed differs"));
    with.resume = "ts2.nonsense";
    assert_int_equal(tsocket_open(RIG_NAME, 10, &with, &ts), TSOCKET_EINVAL);
    rig_close(rig);
}

static void refuses(const struct tsi_token *token)
{
    char text[TSOCKET_TOKEN_MAX + 1];
    struct tsocket_options with;
    struct tsocket *ts;

    assert_int_equal(tsi_token_pack(token, text), TSOCKET_OK);
    tsocket_options_init(&with);
    with.resume = text;
    assert_int_equal(tsocket_open(RIG_NAME, 10, &with, &ts), TSOCKET_EREFUSED);
}

/* Nobody gets such a token; who made it up would end the others' epoch early, or lose some of its own. */
static void a_token_of_a_place_that_cannot_be_is_refused(void **state)
{
    struct rig *rig = rig_open(
        &(struct rig_options){.epoch_samples = 100, .capacity = 20, .max_batch = 10, .on_bad = TSOCKET_BAD_FAIL});
    struct tsocket *ts = rig_attach(10, NULL);
    char text[TSOCKET_TOKEN_MAX + 1];
    struct tsi_token good, bad;

    (void)state;
    rig_expect_and_release(ts, 0, 0, 10);
    assert_int_equal(tsocket_token(ts, NULL, text), TSOCKET_OK);
    assert_int_equal(tsi_token_unpack(text, &good), TSOCKET_OK);
    tsocket_close(ts);
    bad = good;
    bad.from.removed = 70;
    refuses(&bad);
    bad = good;
    bad.wrap = 40; /* it would have begun behind where it is */
    refuses(&bad);
    bad = good;
    bad.until = 5; /* it would be behind its end */
    refuses(&bad);
    bad = good;
    bad.until = 101;
    refuses(&bad);
    bad = good;
    bad.from.index = 101;
    refuses(&bad);
    rig_close(rig);
}

static void what_a_producer_cannot_make_again_has_no_tokens(void **state)
{
    struct rig *rig = rig_open(&(struct rig_options){
        .epoch_ends_at = 30, .epochs = 1, .capacity = 20, .max_batch = 10, .on_bad = TSOCKET_BAD_FAIL});
    struct tsocket *ts = rig_attach(10, NULL);
    char token[TSOCKET_TOKEN_MAX + 1];

    (void)state;
    assert_int_equal(tsocket_token(ts, NULL, token), TSOCKET_EREFUSED);
    tsocket_close(ts);
    rig_close(rig);
}

/* It joined late, and what it had missed was being made when the daemon went: the next one goes on with that. */
static void a_late_one_that_resumes_in_its_second_part_goes_on_with_the_next_epoch(void **state)
{
    struct rig *rig = rig_with(TSOCKET_BAD_SKIP, 0);
    char token[TSOCKET_TOKEN_MAX + 1];
    struct tsocket *first = rig_attach(10, NULL), *late;
    struct tsocket_batch batch;
    uint64_t wrap;
    int rc = TSOCKET_OK;

    (void)state;
    for (uint64_t index = 0; index < 500; index += 10)
        rig_expect_and_release(first, 0, index, 10);
    tsocket_flush(first);
    late = rig_attach(10, NULL);
    assert_int_equal(tsocket_position(late, NULL, &wrap), TSOCKET_OK);
    assert_in_range(wrap, 200, 500);
    tsocket_close(first);
    while (rc == TSOCKET_OK && wrap > 0) {
        rc = tsocket_next(late, PATIENCE_MS, &batch);
        assert_int_equal(rc, TSOCKET_OK);
        assert_int_equal(tsocket_token(late, &batch, token), TSOCKET_OK);
        assert_int_equal(tsocket_release(late, &batch), TSOCKET_OK);
        if (batch.first == 100)
            break;
    }
    tsocket_close(late);
    rig_close(rig);
    rig = rig_with(TSOCKET_BAD_SKIP, 0);
    late = go_on(10, token);
    for (uint64_t index = 110; index < wrap; index += 10)
        rig_expect_and_release(late, 0, index, (uint32_t)(wrap - index < 10 ? wrap - index : 10));
    rig_expect_epoch_end(late, 0, SAMPLES);
    for (uint64_t index = 0; index < SAMPLES; index += 10)
        rig_expect_and_release(late, 1, index, 10);
    rig_expect_epoch_end(late, 1, SAMPLES);
    tsocket_close(late);
    rig_close(rig);
}

/* Its epoch's end is to come, and is where the next epoch begins, which others read already. */
static void a_token_of_an_epochs_last_batch_is_taken_when_the_next_epoch_has_begun(void **state)
{
    struct rig *rig = rig_with(TSOCKET_BAD_SKIP, 0);
    char token[TSOCKET_TOKEN_MAX + 1];
    struct tsocket *one = rig_attach(10, NULL), *two = rig_attach(10, NULL);
    struct tsocket_batch batch;

    (void)state;
    for (uint64_t index = 0; index < SAMPLES; index += 10) {
        rig_expect_batch(one, 0, index, 10, &batch);
        assert_int_equal(tsocket_token(one, &batch, token), TSOCKET_OK);
        assert_int_equal(tsocket_release(one, &batch), TSOCKET_OK);
        rig_expect_and_release(two, 0, index, 10);
    }
    tsocket_close(one);
    rig_expect_epoch_end(two, 0, SAMPLES);
    rig_expect_batch(two, 1, 0, 10, &batch);
    one = go_on(5, token);
    rig_expect_epoch_end(one, 0, SAMPLES);
    rig_expect_and_release(one, 1, 0, 5);
    tsocket_close(one);
    tsocket_close(two);
    rig_close(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_run_that_is_cut_anywhere_is_as_one_that_is_not),
        cmocka_unit_test(so_it_is_with_samples_left_out),
        cmocka_unit_test(so_it_is_with_samples_masked),
        cmocka_unit_test(a_run_can_be_forked),
        cmocka_unit_test(several_come_back_to_a_new_daemon),
        cmocka_unit_test(behind_an_epochs_last_batch_its_end_comes_first),
        cmocka_unit_test(a_token_of_another_run_is_refused_and_says_what_differs),
        cmocka_unit_test(a_token_of_a_place_that_cannot_be_is_refused),
        cmocka_unit_test(what_a_producer_cannot_make_again_has_no_tokens),
        cmocka_unit_test(a_late_one_that_resumes_in_its_second_part_goes_on_with_the_next_epoch),
        cmocka_unit_test(a_token_of_an_epochs_last_batch_is_taken_when_the_next_epoch_has_begun),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
