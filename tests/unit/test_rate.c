/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ipc/clock.h"
#include "producer/rate.h"

static void so_many_in_a_second_are_no_more(void **state)
{
    struct tsp_rate rate = {0};

    (void)state;
    for (uint64_t second = 5; second < 8; second++) {
        for (uint64_t i = 0; i < 10; i++)
            assert_false(tsp_rate_exceeds(&rate, 10, second * TSI_NS_PER_S + i));
    }
}

static void one_more_is_and_stays_so_until_the_second_is_over(void **state)
{
    struct tsp_rate rate = {0};

    (void)state;
    for (uint64_t i = 0; i < 10; i++)
        assert_false(tsp_rate_exceeds(&rate, 10, i));
    for (uint64_t i = 10; i < 1000; i++)
        assert_true(tsp_rate_exceeds(&rate, 10, i));
    assert_true(tsp_rate_exceeds(&rate, 10, TSI_NS_PER_S - 1));
    assert_false(tsp_rate_exceeds(&rate, 10, TSI_NS_PER_S));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(so_many_in_a_second_are_no_more),
        cmocka_unit_test(one_more_is_and_stays_so_until_the_second_is_over),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
