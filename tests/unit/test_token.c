/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "ipc/crc.h"
#include "ipc/token.h"

#define ORIGIN  "0123456789abcdef.fedcba9876543210.00000000000000ff"
#define LARGEST (UINT64_C(1) << 53)

static void check_same(const struct tsi_token *token)
{
    char text[TSOCKET_TOKEN_MAX + 1];
    struct tsi_token again;

    assert_int_equal(tsi_token_pack(token, text), TSOCKET_OK);
    assert_true(strlen(text) <= TSOCKET_TOKEN_MAX);
    assert_int_equal(tsi_token_unpack(text, &again), TSOCKET_OK);
    assert_string_equal(again.origin, token->origin);
    assert_memory_equal(&again.from, &token->from, sizeof(again.from));
    assert_true(again.ahead == token->ahead && again.wrap == token->wrap && again.until == token->until);
}

static void tokens_come_out_as_they_went_in(void **state)
{
    (void)state;
    check_same(&(struct tsi_token){.origin = ORIGIN});
    check_same(&(struct tsi_token){.origin = ORIGIN, .from = {1, 2, 3}, .ahead = 4, .wrap = 5});
    check_same(&(struct tsi_token){.origin = ORIGIN, .from = {1, 2, 3}, .ahead = 4, .until = 5});
}

static void the_largest_token_fits(void **state)
{
    (void)state;
    check_same(&(struct tsi_token){
        .origin = ORIGIN, .from = {LARGEST, LARGEST, LARGEST >> 20}, .ahead = LARGEST >> 24, .until = LARGEST});
}

static void places_beyond_the_limits_make_no_token(void **state)
{
    char text[TSOCKET_TOKEN_MAX + 1] = "as before";

    (void)state;
    assert_int_equal(tsi_token_pack(&(struct tsi_token){.from = {0, 0, 0}}, text), TSOCKET_EINVAL);
    assert_int_equal(tsi_token_pack(&(struct tsi_token){.origin = ORIGIN, .from = {.epoch = LARGEST + 1}}, text),
                     TSOCKET_EINVAL);
    assert_string_equal(text, "as before");
}

static void what_is_no_token_is_refused(void **state)
{
    static const char *const wrong[] = {
        "",
        "ts2",
        "ts1." ORIGIN ".0.0.0.0.0",
        "ts2." ORIGIN ".0.0.0.0",
        "ts2." ORIGIN ".0.0.0.0.0.0",
        "ts2." ORIGIN ".0.0.0.0.0 ",
        "ts2." ORIGIN ".0.0.0.0.",
        "ts2." ORIGIN ".0.0.0.0.w0",
        "ts2." ORIGIN ".0.0.0.0.x1",
        "ts2." ORIGIN ".-1.0.0.0.0",
        "ts2." ORIGIN ".0.+1.0.0.0",
        "ts2." ORIGIN ".0.0x1.0.0.0",
        "ts2." ORIGIN ".0.0.20000000000001.0.0", /* one more than the largest */
        "ts2." ORIGIN ".0.0.000000000000001.0.0",
        "ts2.0123456789abcdeF.fedcba9876543210.00000000000000ff.0.0.0.0.0",
        "ts2.0123456789abcde.fedcba9876543210.00000000000000ff.0.0.0.0.0",
    };
    struct tsi_token token, before;

    (void)state;
    memset(&token, 0xa5, sizeof(token));
    memcpy(&before, &token, sizeof(before)); /* padding as well */
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        char checked[2 * TSOCKET_TOKEN_MAX];

        assert_int_equal(tsi_token_unpack(wrong[i], &token), TSOCKET_EINVAL);
        snprintf(checked, sizeof(checked), "%s.%08x", wrong[i], (unsigned)tsi_crc(0, wrong[i], strlen(wrong[i])));
        assert_int_equal(tsi_token_unpack(checked, &token), TSOCKET_EINVAL);
    }
    assert_memory_equal(&token, &before, sizeof(token));
}

static void a_token_with_another_digit_is_refused(void **state)
{
    struct tsi_token token = {.origin = ORIGIN, .from = {1, 30, 2}, .ahead = 4, .wrap = 20};
    char text[TSOCKET_TOKEN_MAX + 1];

    (void)state;
    assert_int_equal(tsi_token_pack(&token, text), TSOCKET_OK);
    for (size_t i = 0; text[i] != '\0'; i++) {
        char was = text[i];

        text[i] = was == '0' ? '1' : '0';
        assert_int_equal(tsi_token_unpack(text, &token), TSOCKET_EINVAL);
        text[i] = was;
    }
    for (size_t len = strlen(text); len-- > 0;) {
        text[len] = '\0';
        assert_int_equal(tsi_token_unpack(text, &token), TSOCKET_EINVAL);
    }
}

static void it_is_told_what_differs(void **state)
{
    char a[TSI_ORIGIN_MAX], b[TSI_ORIGIN_MAX];

    (void)state;
    assert_int_equal(tsi_origin_make("0123456789abcdef", "fedcba9876543210", 255, a), TSOCKET_OK);
    assert_string_equal(a, ORIGIN);
    assert_null(tsi_origin_difference(a, ORIGIN));
    tsi_origin_make("0123456789abcdee", "fedcba9876543210", 255, b);
    assert_string_equal(tsi_origin_difference(a, b), "the dataset");
    tsi_origin_make("0123456789abcdef", "0edcba9876543210", 255, b);
    assert_string_equal(tsi_origin_difference(a, b), "the recipe");
    tsi_origin_make("0123456789abcdef", "fedcba9876543210", 254, b);
    assert_string_equal(tsi_origin_difference(a, b), "the seed");
    assert_int_equal(tsi_origin_make("0123", "fedcba9876543210", 0, b), TSOCKET_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_come_out_as_they_went_in),        cmocka_unit_test(the_largest_token_fits),
        cmocka_unit_test(places_beyond_the_limits_make_no_token), cmocka_unit_test(what_is_no_token_is_refused),
        cmocka_unit_test(a_token_with_another_digit_is_refused),  cmocka_unit_test(it_is_told_what_differs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
