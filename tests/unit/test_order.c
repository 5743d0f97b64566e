/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "producer/order.h"

static void assert_permutation(const struct tsp_order *order, uint64_t epoch)
{
    uint8_t *seen = calloc(order->count, 1);
    assert_non_null(seen);
    for (uint64_t i = 0; i < order->count; i++) {
        uint64_t sample = tsp_order_at(order, epoch, i);
        assert_true(sample < order->count);
        assert_int_equal(seen[sample], 0);
        seen[sample] = 1;
    }
    free(seen);
}

static void every_epoch_is_a_permutation(void **state)
{
    (void)state;
    for (uint64_t n = 1; n <= 300; n++)
        assert_permutation(&(struct tsp_order){.count = n, .seed = n, .shuffle = true}, n % 5);
    assert_permutation(&(struct tsp_order){.count = 100003, .seed = 1, .shuffle = true}, 0);
    assert_permutation(&(struct tsp_order){.count = 100003, .seed = 1, .shuffle = true}, UINT32_MAX);
}

/* Two independent orders of n agree in one place on average; more than ten has a chance of one in a hundred million. */
static void assert_unlike(const struct tsp_order *a, uint64_t epoch_a, const struct tsp_order *b, uint64_t epoch_b)
{
    uint64_t same = 0;
    for (uint64_t i = 0; i < a->count; i++)
        same += tsp_order_at(a, epoch_a, i) == tsp_order_at(b, epoch_b, i);
    assert_in_range(same, 0, 10);
}

static void epochs_and_seeds_differ(void **state)
{
    (void)state;
    struct tsp_order one = {.count = 5000, .seed = 1, .shuffle = true};
    struct tsp_order two = {.count = 5000, .seed = 2, .shuffle = true};
    struct tsp_order far = {.count = 5000, .seed = UINT64_C(1) << 40 | 1, .shuffle = true};
    for (uint64_t e = 0; e < 4; e++) {
        for (uint64_t f = 0; f < e; f++)
            assert_unlike(&one, e, &one, f);
        assert_unlike(&one, e, &two, e);
        assert_unlike(&one, e, &far, e);
    }
}

static void without_shuffle_place_i_holds_sample_i(void **state)
{
    (void)state;
    struct tsp_order order = {.count = 77, .seed = 3, .shuffle = false};
    for (uint64_t i = 0; i < order.count; i++)
        assert_int_equal(tsp_order_at(&order, 9, i), i);
}

/* The number of an order of 5 among the 120: its Lehmer code. */
static uint32_t rank_of_order(const struct tsp_order *order, uint64_t epoch)
{
    uint64_t at[5];
    uint32_t rank = 0;
    for (uint64_t i = 0; i < 5; i++)
        at[i] = tsp_order_at(order, epoch, i);
    for (uint32_t i = 0; i < 5; i++) {
        uint32_t smaller = 0;
        for (uint32_t k = i + 1; k < 5; k++)
            smaller += at[k] < at[i];
        rank = rank * (5 - i) + smaller;
    }
    return rank;
}

static void all_orders_of_five_come_equally_often(void **state)
{
    (void)state;
    enum {
        ORDERS = 120,
        DRAWS = 120 * 500
    };
    uint32_t counts[ORDERS] = {0};
    for (uint64_t seed = 0; seed < DRAWS; seed++)
        counts[rank_of_order(&(struct tsp_order){.count = 5, .seed = seed, .shuffle = true}, seed % 3)]++;
    double chi_square = 0, expected = (double)DRAWS / ORDERS;
    for (int i = 0; i < ORDERS; i++)
        chi_square += (counts[i] - expected) * (counts[i] - expected) / expected;
    /* 119 degrees of freedom: mean 119, standard deviation 15.4 */
    assert_true(chi_square > 119 - 4 * 15.4 && chi_square < 119 + 4 * 15.4);
}

/* Where the sample at place 0 comes from, in ten parts of a thousand, over many seeds; and of its neighbour. */
static void places_spread_evenly_over_the_samples(void **state)
{
    (void)state;
    enum {
        PARTS = 10,
        DRAWS = 20000
    };
    uint32_t counts[PARTS][PARTS] = {{0}};
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        struct tsp_order order = {.count = 1000, .seed = seed, .shuffle = true};
        counts[tsp_order_at(&order, 0, 0) / 100][tsp_order_at(&order, 0, 1) / 100]++;
    }
    double chi_square = 0, expected = (double)DRAWS / (PARTS * PARTS);
    for (int i = 0; i < PARTS; i++)
        for (int k = 0; k < PARTS; k++)
            chi_square += (counts[i][k] - expected) * (counts[i][k] - expected) / expected;
    assert_true(chi_square > 99 - 4 * 14.1 && chi_square < 99 + 4 * 14.1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_epoch_is_a_permutation),
        cmocka_unit_test(epochs_and_seeds_differ),
        cmocka_unit_test(without_shuffle_place_i_holds_sample_i),
        cmocka_unit_test(all_orders_of_five_come_equally_often),
        cmocka_unit_test(places_spread_evenly_over_the_samples),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
