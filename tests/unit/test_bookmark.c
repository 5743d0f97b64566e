/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "producer/bookmark.h"

static struct tsp_bookmark bookmark;

static int begin(void **state)
{
    (void)state;
    bookmark = (struct tsp_bookmark){.state = {.n = 2, .streams = {{.name = "train", .epoch = 3}, {.name = "val"}}}};
    return 0;
}

static void assert_epochs(uint64_t train, uint64_t val)
{
    assert_int_equal(bookmark.state.streams[0].epoch, train);
    assert_int_equal(bookmark.state.streams[1].epoch, val);
}

static void the_epoch_is_that_of_the_slowest_in_the_groups_ring(void **state)
{
    (void)state;
    assert_true(tsp_bookmark_look(&bookmark,
                                  "{\"streams\":[{\"name\":\"train\",\"epoch\":7,\"consumers\":["
                                  "{\"epoch\":6,\"ring\":\"group\"},{\"epoch\":5,\"ring\":\"group\"},"
                                  "{\"epoch\":1,\"ring\":\"side\"},{\"epoch\":0,\"ring\":\"none\"}]},"
                                  "{\"name\":\"val\",\"epoch\":2,\"consumers\":[]}]}",
                                  false));
    assert_epochs(5, 2);
}

static void it_never_goes_back(void **state)
{
    (void)state;
    assert_false(tsp_bookmark_look(
        &bookmark, "{\"streams\":[{\"name\":\"train\",\"epoch\":3,\"consumers\":[{\"epoch\":1,\"ring\":\"group\"}]}]}",
        false));
    assert_epochs(3, 0);
}

static void all_epochs_are_done_only_where_the_run_has_ended_by_itself(void **state)
{
    static const char status[] = "{\"streams\":[{\"name\":\"train\",\"state\":\"finished\",\"epoch\":9,\"epochs\":10,"
                                 "\"consumers\":[]}]}";

    (void)state;
    tsp_bookmark_look(&bookmark, status, false);
    assert_epochs(9, 0);
    assert_true(tsp_bookmark_look(&bookmark, status, true));
    assert_epochs(10, 0);
}

static void what_is_no_status_changes_nothing(void **state)
{
    static const char lies[] = "{\"streams\":[7,{},{\"name\":7},{\"name\":\"other\",\"epoch\":9},"
                               "{\"name\":\"train\",\"epoch\":\"9\"},{\"name\":\"train\",\"epoch\":-1},"
                               "{\"name\":\"train\",\"epoch\":1e300}]}";
    static const char *const texts[] = {"", "[]", lies};

    (void)state;
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        assert_false(tsp_bookmark_look(&bookmark, texts[i], true));
    assert_epochs(3, 0);
}

#define AT_START(test) cmocka_unit_test_setup(test, begin)

int main(void)
{
    const struct CMUnitTest tests[] = {
        AT_START(the_epoch_is_that_of_the_slowest_in_the_groups_ring),
        AT_START(it_never_goes_back),
        AT_START(all_epochs_are_done_only_where_the_run_has_ended_by_itself),
        AT_START(what_is_no_status_changes_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
