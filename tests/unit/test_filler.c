/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tsocket/tsocket.h>

#include "ipc/control.h"
#include "producer/filler.h"

enum {
    SAMPLES_MAX = 40,
};

/* What an epoch must come to, by the rule alone: at a bad sample the last remaining one takes its place. */
static uint64_t expected_order(uint64_t n, const bool bad[SAMPLES_MAX], uint64_t order_out[SAMPLES_MAX])
{
    uint64_t len = n;

    for (uint64_t place = 0; place < len; place++) {
        uint64_t ordinal = place;

        while (bad[ordinal] && place < len)
            ordinal = --len;
        order_out[place] = ordinal;
    }
    return len;
}

/* Claims that are out, in no order. */
struct out {
    uint64_t position;
    uint64_t ordinal;
};

struct run {
    struct tsp_filler filler;
    const bool *bad;
    struct out out[SAMPLES_MAX];
    uint64_t n_out;
    uint64_t made[SAMPLES_MAX]; /* ordinal + 1 that was last written to each place of the epoch */
};

static void take_one(struct run *run)
{
    struct out *out = &run->out[run->n_out];

    if (tsp_filler_take(&run->filler, &out->position, &out->ordinal))
        run->n_out++;
}

static void put_one(struct run *run, uint64_t which)
{
    struct out out = run->out[which];

    run->out[which] = run->out[--run->n_out];
    run->made[out.position - run->filler.start] = out.ordinal + 1;
    tsp_filler_put(&run->filler, out.position, run->bad[out.ordinal] ? TSP_SLOT_BAD : TSP_SLOT_READY, "odd", NULL);
    while (tsp_filler_advance(&run->filler) == TSP_SLOT_BAD)
        tsp_filler_skip(&run->filler);
}

/* One epoch, in an order of events that `seed` decides, read by somebody who is `lag` slots behind head at most. */
static void run_epoch(struct run *run, uint64_t epoch, uint64_t start, uint64_t n)
{
    uint64_t order[SAMPLES_MAX];
    uint64_t len = expected_order(n, run->bad, order);
    uint64_t floor = start;

    tsp_filler_begin(&run->filler, epoch, start, n, 0);
    while (!tsp_filler_decided(&run->filler) || run->n_out > 0) {
        int what = rand() % 3;

        if (what == 0 && run->filler.head > floor)
            floor += 1 + (uint64_t)rand() % (run->filler.head - floor);
        tsp_filler_allow(&run->filler, floor + run->filler.capacity);
        if (what == 1)
            take_one(run);
        if (what == 2 && run->n_out > 0)
            put_one(run, (uint64_t)rand() % run->n_out);
        assert_true(run->filler.head <= start + run->filler.len);
    }
    assert_int_equal(run->filler.head, start + len);
    for (uint64_t place = 0; place < len; place++)
        assert_int_equal(run->made[place], order[place] + 1);
}

static void run_some(uint64_t n, uint64_t capacity, const bool bad[SAMPLES_MAX])
{
    struct run run = {.bad = bad};
    uint64_t start = 0;

    assert_int_equal(tsp_filler_init(&run.filler, capacity), TSOCKET_OK);
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        run_epoch(&run, epoch, start, n);
        start = run.filler.head;
    }
    assert_int_equal(run.filler.out, 0);
    tsp_filler_fini(&run.filler);
}

static void an_epoch_does_not_depend_on_who_is_ready_when(void **state)
{
    (void)state;
    srand(1);
    for (int round = 0; round < 20000; round++) {
        uint64_t n = 1 + (uint64_t)rand() % SAMPLES_MAX;
        uint64_t capacity = 1 + (uint64_t)rand() % (n + 5);
        int share = rand() % 4 * 33; /* of bad samples, in percent: none, some, many, nearly all */
        bool bad[SAMPLES_MAX];

        for (uint64_t i = 0; i < SAMPLES_MAX; i++)
            bad[i] = rand() % 100 < share;
        run_some(n, capacity, bad);
    }
}

static void an_epoch_of_bad_samples_alone_has_none(void **state)
{
    bool bad[SAMPLES_MAX];

    (void)state;
    memset(bad, 1, sizeof(bad));
    for (uint64_t n = 1; n <= 5; n++)
        run_some(n, 3, bad);
}

static void an_epoch_of_unknown_length_is_cut_where_its_end_is_found(void **state)
{
    struct tsp_filler filler;
    uint64_t position, ordinal;

    (void)state;
    assert_int_equal(tsp_filler_init(&filler, 4), TSOCKET_OK);
    tsp_filler_begin(&filler, 0, 0, TSI_LEN_OPEN, 0);
    assert_true(tsp_filler_allow(&filler, 4));
    for (uint64_t i = 0; i < 4; i++)
        assert_true(tsp_filler_take(&filler, &position, &ordinal));
    assert_false(tsp_filler_take(&filler, &position, &ordinal));
    tsp_filler_put(&filler, 3, TSP_SLOT_END, NULL, NULL);
    tsp_filler_put(&filler, 0, TSP_SLOT_READY, NULL, NULL);
    tsp_filler_put(&filler, 2, TSP_SLOT_END, NULL, NULL);
    assert_int_equal(tsp_filler_advance(&filler), TSP_SLOT_OUT);
    tsp_filler_put(&filler, 1, TSP_SLOT_READY, NULL, NULL);
    assert_int_equal(tsp_filler_advance(&filler), TSP_SLOT_END);
    tsp_filler_cut(&filler);
    assert_true(tsp_filler_decided(&filler));
    assert_int_equal(filler.len, 2);
    tsp_filler_begin(&filler, 1, 2, TSI_LEN_OPEN, 0);
    assert_true(tsp_filler_allow(&filler, 6));
    assert_true(tsp_filler_take(&filler, &position, &ordinal));
    assert_true(position == 2 && ordinal == 0);
    tsp_filler_put(&filler, position, TSP_SLOT_READY, NULL, NULL);
    tsp_filler_fini(&filler);
}

static void a_bad_sample_that_is_masked_stays_in_its_place(void **state)
{
    struct tsp_filler filler;
    uint64_t position, ordinal;

    (void)state;
    assert_int_equal(tsp_filler_init(&filler, 4), TSOCKET_OK);
    tsp_filler_begin(&filler, 0, 0, 2, 0);
    tsp_filler_allow(&filler, 4);
    for (uint64_t i = 0; i < 2; i++) {
        assert_true(tsp_filler_take(&filler, &position, &ordinal));
        tsp_filler_put(&filler, position, TSP_SLOT_BAD, "odd", strdup("why"));
        assert_int_equal(tsp_filler_advance(&filler), TSP_SLOT_BAD);
        tsp_filler_pass(&filler);
        tsp_filler_advance(&filler);
        assert_int_equal(filler.head, i + 1);
    }
    assert_true(tsp_filler_decided(&filler));
    tsp_filler_fini(&filler);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_epoch_does_not_depend_on_who_is_ready_when),
        cmocka_unit_test(an_epoch_of_bad_samples_alone_has_none),
        cmocka_unit_test(an_epoch_of_unknown_length_is_cut_where_its_end_is_found),
        cmocka_unit_test(a_bad_sample_that_is_masked_stays_in_its_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
