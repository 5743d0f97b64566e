/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "producer/quantity.h"

#define KEPT 77 /* what an output holds when nothing was written to it */

static void counts_are_digits_only(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "-1", "+1", " 1", "1 ", "1.0", "0x10", "1e3", "18446744073709551616"};
    uint64_t count = KEPT;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(tsp_quantity_count(wrong[i], &count));
    assert_int_equal(count, KEPT);
    assert_true(tsp_quantity_count("18446744073709551615", &count));
    assert_true(count == UINT64_MAX);
    assert_true(tsp_quantity_count("007", &count));
    assert_int_equal(count, 7);
}

static void reals_may_be_fractions(void **state)
{
    (void)state;
    double real = 0;
    assert_true(tsp_quantity_real("3/4", &real));
    assert_true(real == 0.75);
    assert_true(tsp_quantity_real("4/3", &real));
    assert_true(real == 4.0 / 3.0);
    assert_true(tsp_quantity_real("1e-3", &real));
    assert_true(real == 1e-3);
    assert_true(tsp_quantity_real("-.5", &real));
    assert_true(real == -0.5);
}

static void reals_are_finite_and_decimal(void **state)
{
    (void)state;
    static const char *const wrong[] = {"",   "inf", "nan",   "1e999", "0x1p3", "1/0",   "1/",  "/2", "1,2",
                                        "1 ", " 1",  "1.2.3", "1/2/3", "-inf",  "1e5e5", "--1", "."};
    double real = KEPT;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(tsp_quantity_real(wrong[i], &real));
    assert_true(real == KEPT);
}

static void lists_have_exactly_their_length(void **state)
{
    (void)state;
    double reals[3] = {KEPT, KEPT, KEPT};
    assert_false(tsp_quantity_reals("1,2", 3, reals));
    assert_false(tsp_quantity_reals("1,2,3,", 3, reals));
    assert_false(tsp_quantity_reals("1,2,3,4", 3, reals));
    assert_false(tsp_quantity_reals("1,,3", 3, reals));
    assert_true(reals[0] == KEPT);
    assert_true(tsp_quantity_reals("1,2/4,3", 3, reals));
    assert_true(reals[0] == 1 && reals[1] == 0.5 && reals[2] == 3);
}

static void sizes_know_samples_from_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t amount;
        bool bytes;
    } right[] = {
        {"1024", 1024, false},
        {"1024B", 1024, true},
        {"2k", 2000, true},
        {"2KiB", 2048, true},
        {"1.5M", 1500000, true},
        {"512MiB", UINT64_C(512) << 20, true},
        {"2g", 2000000000, true},
        {"2GiB", UINT64_C(2) << 30, true},
        {"0.5TiB", UINT64_C(1) << 39, true},
        {"3kb", 3000, true},
    };
    uint64_t amount;
    bool bytes;
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        assert_true(tsp_quantity_size(right[i].text, &amount, &bytes));
        assert_true(amount == right[i].amount);
        assert_true(bytes == right[i].bytes);
    }
}

static void sizes_with_other_units_are_wrong(void **state)
{
    (void)state;
    static const char *const wrong[] = {"", "k", "1x", "1 k", "-1k", "1kk", "1e30k", "KiB", "1.5", "9999999TiB"};
    uint64_t amount = KEPT;
    bool bytes = false;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(tsp_quantity_size(wrong[i], &amount, &bytes));
    assert_int_equal(amount, KEPT);
}

static void durations_are_seconds_or_have_a_unit(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t ms;
    } right[] = {{"0", 0}, {"5", 5000}, {"5s", 5000}, {"500ms", 500}, {"1.5m", 90000}, {"2h", 7200000}, {"0s", 0}};
    static const char *const wrong[] = {"", "s", "-5s", "5d", "5 s", "1e30h"};
    uint64_t ms = KEPT;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(tsp_quantity_duration(wrong[i], &ms));
    assert_int_equal(ms, KEPT);
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        assert_true(tsp_quantity_duration(right[i].text, &ms));
        assert_true(ms == right[i].ms);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_digits_only),
        cmocka_unit_test(reals_may_be_fractions),
        cmocka_unit_test(reals_are_finite_and_decimal),
        cmocka_unit_test(lists_have_exactly_their_length),
        cmocka_unit_test(sizes_know_samples_from_bytes),
        cmocka_unit_test(sizes_with_other_units_are_wrong),
        cmocka_unit_test(durations_are_seconds_or_have_a_unit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
