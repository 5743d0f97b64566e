/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "producer/progress.h"

static const char two_streams[] =
    "{\"uptime_s\":12.34,\"streams\":["
    "{\"name\":\"train\",\"epoch\":3,\"epochs\":10,\"samples_per_s\":1234.4,\"head\":870,\"floor\":0,\"capacity\":1000,"
    "\"consumers\":[{},{}],\"made\":1000,\"delivered\":3000,\"bad\":{\"total\":2}},"
    "{\"name\":\"val\",\"epoch\":0,\"epochs\":0,\"samples_per_s\":0,\"head\":10,\"floor\":10,\"capacity\":100,"
    "\"consumers\":[{}],\"made\":10,\"delivered\":5,\"bad\":{\"total\":0}}]}";

static void a_line_tells_how_each_stream_goes(void **state)
{
    (void)state;
    char text[256];
    tsp_progress_line(two_streams, text, sizeof(text));
    assert_string_equal(text, "train: epoch 3 of 10, 1234 samples/s, ring 87 % full, 2 consumers | "
                              "val: epoch 0, 0 samples/s, ring 0 % full, 1 consumer");
}

static void a_line_is_cut_to_its_room(void **state)
{
    (void)state;
    char whole[256], text[256];
    tsp_progress_line(two_streams, whole, sizeof(whole));
    for (size_t len = 1; len < strlen(whole); len++) {
        memset(text, 'x', sizeof(text));
        tsp_progress_line(two_streams, text, len);
        assert_int_equal(strlen(text), len - 1);
        assert_memory_equal(text, whole, len - 1);
    }
}

static void the_summary_adds_up_the_streams(void **state)
{
    (void)state;
    char text[256];
    tsp_progress_summary(two_streams, text, sizeof(text));
    assert_string_equal(text, "1010 samples made in 12.3 s, 3005 delivered, 1995 decodes saved, 2 bad");
}

static void what_is_no_status_gives_no_text(void **state)
{
    (void)state;
    char text[256] = "x";
    tsp_progress_line("{\"streams\":[", text, sizeof(text));
    assert_string_equal(text, "");
    tsp_progress_summary("[]", text, sizeof(text));
    assert_string_equal(text, "");
}

static void a_bar_is_as_long_as_what_is_done(void **state)
{
    (void)state;
    char bar[TSP_PROGRESS_BAR + 1];
    assert_string_equal(tsp_progress_bar(0, 7, bar), "....................");
    assert_string_equal(tsp_progress_bar(9, 20, bar), "#########...........");
    assert_string_equal(tsp_progress_bar(7, 7, bar), "####################");
    assert_string_equal(tsp_progress_bar(UINT64_MAX, UINT64_MAX, bar), "####################");
    assert_string_equal(tsp_progress_bar(0, 0, bar), "....................");
}

static void a_time_has_hours_minutes_and_seconds(void **state)
{
    (void)state;
    char text[32];
    assert_string_equal(tsp_progress_time(3723.9, text, sizeof(text)), "1:02:03");
    assert_string_equal(tsp_progress_time(0.4, text, sizeof(text)), "0:00:00");
    assert_string_equal(tsp_progress_time(-1, text, sizeof(text)), "0:00:00");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_line_tells_how_each_stream_goes), cmocka_unit_test(a_line_is_cut_to_its_room),
        cmocka_unit_test(the_summary_adds_up_the_streams),   cmocka_unit_test(what_is_no_status_gives_no_text),
        cmocka_unit_test(a_bar_is_as_long_as_what_is_done),  cmocka_unit_test(a_time_has_hours_minutes_and_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
