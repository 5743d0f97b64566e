/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include "consumer/spans.h"

enum {
    SIZE = 24,
    STEPS = 20000,
};

static void assert_span(struct tsc_span span, uint64_t from, uint64_t to)
{
    assert_int_equal(span.from, from);
    assert_int_equal(span.to, to);
}

static void neighbours_become_one(void **state)
{
    struct tsc_spans spans = {0};

    (void)state;
    assert_span(tsc_spans_add(&spans, 10, 20), 0, 0);
    assert_span(tsc_spans_add(&spans, 0, 5), 0, 0);
    assert_span(tsc_spans_add(&spans, 5, 10), 0, 0);
    assert_int_equal(spans.n, 1);
    assert_span(spans.items[0], 0, 20);
    assert_span(tsc_spans_missing(&spans, 0, 20), 0, 0);
    assert_span(tsc_spans_missing(&spans, 0, 25), 20, 25);
}

static void what_is_added_twice_is_told(void **state)
{
    struct tsc_spans spans = {0};

    (void)state;
    tsc_spans_add(&spans, 10, 20);
    tsc_spans_add(&spans, 30, 40);
    assert_span(tsc_spans_add(&spans, 15, 35), 15, 20);
    assert_int_equal(spans.n, 1);
}

static void it_says_when_it_is_full(void **state)
{
    struct tsc_spans spans = {0};

    (void)state;
    for (uint64_t i = 0; i < TSC_SPANS_MAX; i++)
        tsc_spans_add(&spans, 2 * i, 2 * i + 1);
    assert_false(spans.full);
    tsc_spans_add(&spans, 1000, 1001);
    assert_true(spans.full);
}

static void it_is_a_set(void **state)
{
    struct tsc_spans spans = {0};
    bool set[SIZE] = {false};

    (void)state;
    srand(1);
    for (int step = 0; step < STEPS; step++) {
        uint64_t from = (uint64_t)rand() % SIZE, to = from + (uint64_t)rand() % (SIZE - from + 1), first = SIZE;
        bool add = rand() % 2 == 0;
        struct tsc_span twice = {0, 0};
        uint64_t removed = 0, there = 0;

        if (add)
            twice = tsc_spans_add(&spans, from, to);
        else
            removed = tsc_spans_remove(&spans, from, to);
        for (uint64_t i = from; i < to; i++) {
            first = set[i] && first == SIZE ? i : first;
            there += set[i];
            set[i] = add;
        }
        assert_int_equal(add ? twice.from : removed, add ? (first == SIZE ? 0 : first) : there);
        for (uint64_t i = 0; i < SIZE; i++)
            assert_int_equal(tsc_spans_missing(&spans, i, i + 1).from == tsc_spans_missing(&spans, i, i + 1).to,
                             set[i]);
    }
    assert_false(spans.full);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(neighbours_become_one),
        cmocka_unit_test(what_is_added_twice_is_told),
        cmocka_unit_test(it_says_when_it_is_full),
        cmocka_unit_test(it_is_a_set),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
