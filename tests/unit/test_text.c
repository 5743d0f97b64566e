/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ipc/text.h"

static void sequences_are_the_shortest_and_no_surrogates(void **state)
{
    (void)state;
    static const char *const right[] = {"a", "\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"};
    static const uint32_t codes[] = {0x61, 0xe9, 0x20ac, 0x1f600, 0x10ffff};
    static const char *const wrong[] = {"",
                                        "\x80",
                                        "\xc3",
                                        "\xc0\x80",
                                        "\xc1\xbf",
                                        "\xe0\x80\x80",
                                        "\xed\xa0\x80",
                                        "\xf4\x90\x80\x80",
                                        "\xf8\x88\x80\x80\x80",
                                        "\xff",
                                        "\xe2\x82"};
    uint32_t code = 7;
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
        assert_int_equal(tsi_text_sequence(wrong[i], &code), 0);
    assert_int_equal(code, 7);
    for (size_t i = 0; i < sizeof(right) / sizeof(right[0]); i++) {
        assert_int_equal(tsi_text_sequence(right[i], &code), strlen(right[i]));
        assert_int_equal(code, codes[i]);
    }
}

static void clean_text_cannot_command_a_terminal(void **state)
{
    (void)state;
    char text[] = "a\033[2Jb\r\n\x7f\xc2\x9b"
                  "c\xe2\x80\xae"
                  "d\xff\xc3\xa9";
    tsi_text_clean(text);
    assert_string_equal(text, "a?[2Jb????c?d?\xc3\xa9");
}

static void assert_printed(void (*print)(const char *, FILE *), const char *text, const char *expected)
{
    char *out;
    size_t len;
    FILE *file = open_memstream(&out, &len);
    assert_non_null(file);
    print(text, file);
    fclose(file);
    assert_string_equal(out, expected);
    free(out);
}

static void a_json_string_is_one_line_and_keeps_every_byte(void **state)
{
    (void)state;
    assert_printed(tsi_text_json_string, "", "\"\"");
    assert_printed(tsi_text_json_string, "a/b.jpg", "\"a/b.jpg\"");
    assert_printed(tsi_text_json_string, "\"\\\n\t\x01\x7f", "\"\\\"\\\\\\u000a\\u0009\\u0001\\u007f\"");
    assert_printed(tsi_text_json_string, "caf\xc3\xa9 \xf0\x9f\x98\x80", "\"caf\xc3\xa9 \xf0\x9f\x98\x80\"");
    assert_printed(tsi_text_json_string, "caf\xe9.jpg", "\"caf\\udce9.jpg\"");
    assert_printed(tsi_text_json_string, "\xed\xa0\x80", "\"\\udced\\udca0\\udc80\"");
    assert_printed(tsi_text_json_string, "\xe2\x82", "\"\\udce2\\udc82\"");
}

static void anothers_json_stays_the_same_document(void **state)
{
    (void)state;
    assert_printed(tsi_text_json_clean, "{\"a\":\t[1,\n 2],\"b\\n\":\"\xff\xc2\x9b\x7f\"}\n",
                   "{\"a\":[1, 2],\"b\\n\":\"\\udcff\\u009b\\u007f\"}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequences_are_the_shortest_and_no_surrogates),
        cmocka_unit_test(clean_text_cannot_command_a_terminal),
        cmocka_unit_test(a_json_string_is_one_line_and_keeps_every_byte),
        cmocka_unit_test(anothers_json_stays_the_same_document),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
