/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "consumer/flags.h"

static bool on;
static uint32_t count, share[2];
static uint64_t number;
static int word;
static const char *text, *name;
static char error[512];

static const char *const words[] = {"keep", "drop", NULL};
static const struct tsc_flag flags[] = {
    {.name = "on", .type = TSC_FLAG_ON, .value = &on},
    {.name = "count", .argument = "N", .type = TSC_FLAG_COUNT, .min = 1, .max = 10, .value = &count},
    {.name = "number", .argument = "N", .type = TSC_FLAG_LONG, .max = UINT64_MAX, .value = &number},
    {.name = "word", .argument = "keep|drop", .type = TSC_FLAG_WORD, .words = words, .value = &word},
    {.name = "text", .argument = "T", .type = TSC_FLAG_TEXT, .value = &text},
    {.name = "share", .argument = "R/W", .type = TSC_FLAG_SHARE, .max = 100, .value = share},
};
#define FLAGS (sizeof(flags) / sizeof(flags[0]))

static void values_come_after_a_space_or_an_equals_sign(void **state)
{
    (void)state;
    char *argv[] = {"x",           "--on",   "--count", "3",       "main", "--number=18446744073709551615",
                    "--word=drop", "--text", "a b",     "--share", "2/4"};
    name = NULL;
    assert_true(tsc_flags_parse(flags, FLAGS, sizeof(argv) / sizeof(argv[0]), argv, &name, error, sizeof(error)));
    assert_true(on);
    assert_int_equal(count, 3);
    assert_true(number == UINT64_MAX);
    assert_int_equal(word, 1);
    assert_string_equal(text, "a b");
    assert_int_equal(share[0], 2);
    assert_int_equal(share[1], 4);
    assert_string_equal(name, "main");
}

static void every_problem_is_said(void **state)
{
    (void)state;
    static const struct {
        char *first, *second;
        const char *text;
    } wrong[] = {
        {"--count", NULL, "--count: a value must follow: --count N"},
        {"--count", "0", "--count 0: must be a whole number from 1 to 10"},
        {"--count", "11", "--count 11: must be a whole number from 1 to 10"},
        {"--count=x", "n", "--count x: must be a whole number from 1 to 10"},
        {"--word", "lose", "--word lose: must be one of keep|drop"},
        {"--share", "4/4", "--share 4/4: must be RANK/WORLD, 0 <= RANK < WORLD <= 100; for example 0/4"},
        {"--share", "1", "--share 1: must be RANK/WORLD, 0 <= RANK < WORLD <= 100; for example 0/4"},
        {"--share", "/2", "--share /2: must be RANK/WORLD, 0 <= RANK < WORLD <= 100; for example 0/4"},
        {"--share", "0/101", "--share 0/101: must be RANK/WORLD, 0 <= RANK < WORLD <= 100; for example 0/4"},
        {"--on=1", "n", "--on=1: takes no value"},
        {"--nothing", "n", "--nothing: unknown option; tsocketctl help lists them"},
        {"-n", "n", "-n: unknown option; tsocketctl help lists them"},
        {"one", "two\033", "two?: one argument too many"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char *argv[] = {"x", wrong[i].first, wrong[i].second};
        int argc = wrong[i].second != NULL ? 3 : 2;
        assert_false(tsc_flags_parse(flags, FLAGS, argc, argv, &name, error, sizeof(error)));
        assert_string_equal(error, wrong[i].text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_come_after_a_space_or_an_equals_sign),
        cmocka_unit_test(every_problem_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
