/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "ipc/clock.h"
#include "producer/setting.h"

static void durations_are_those_of_the_command_line(void **state)
{
    (void)state;
    static const struct {
        const char *setting;
        uint64_t ms;
    } good[] = {{"max-hold=30", 30000},   {"max-hold=500ms", 500}, {"max-hold=1.5s", 1500}, {"max-hold=2m", 120000},
                {"max-hold=1h", 3600000}, {"max-hold=1ms", 1},     {"max-hold=0", 0}};
    struct tsp_consumer consumer = {.max_hold_ns = 77};

    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
        assert_true(tsp_setting_change(&consumer, good[i].setting));
        assert_true(consumer.max_hold_ns == good[i].ms * TSI_NS_PER_MS);
    }
}

static void counts_are_digits(void **state)
{
    (void)state;
    struct tsp_consumer consumer = {.max_lag = 77};

    assert_true(tsp_setting_change(&consumer, "max-lag=5"));
    assert_int_equal(consumer.max_lag, 5);
    assert_true(tsp_setting_change(&consumer, "max-lag=0"));
    assert_int_equal(consumer.max_lag, 0);
}

static void what_is_none_changes_nothing(void **state)
{
    (void)state;
    static const char *const wrong[] = {"max-hold=1e-12s",
                                        "max-hold=0.5ms",
                                        "max-hold=0x10",
                                        "max-hold= 1s",
                                        "max-hold=1s ",
                                        "max-hold=+1s",
                                        "max-hold=-1s",
                                        "max-hold=inf",
                                        "max-hold=nan",
                                        "max-hold=",
                                        "max-hold=9000h",
                                        "max-hold=1d",
                                        "max-lag=+5",
                                        "max-lag=-5",
                                        "max-lag= 5",
                                        "max-lag=0x10",
                                        "max-lag=1.0",
                                        "max-lag=",
                                        "max-lag=18446744073709551615",
                                        "on-lag=maybe",
                                        "on-lag=",
                                        "max-hold",
                                        "=1",
                                        ""};
    struct tsp_consumer consumer = {.max_hold_ns = 77, .max_lag = 78, .hello.on_lag = TSOCKET_LAG_SKIP};

    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_false(tsp_setting_change(&consumer, wrong[i]));
    assert_int_equal(consumer.max_hold_ns, 77);
    assert_int_equal(consumer.max_lag, 78);
    assert_int_equal(consumer.hello.on_lag, TSOCKET_LAG_SKIP);
}

static void what_becomes_of_who_lags_is_a_word(void **state)
{
    (void)state;
    struct tsp_consumer consumer = {.hello.on_lag = TSOCKET_LAG_PARK};

    assert_true(tsp_setting_change(&consumer, "on-lag=detach"));
    assert_int_equal(consumer.hello.on_lag, TSOCKET_LAG_DETACH);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(durations_are_those_of_the_command_line),
        cmocka_unit_test(counts_are_digits),
        cmocka_unit_test(what_is_none_changes_nothing),
        cmocka_unit_test(what_becomes_of_who_lags_is_a_word),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
