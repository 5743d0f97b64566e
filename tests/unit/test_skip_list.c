/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "inputs.h"
#include "producer/skip_list.h"

static const char *folder;
static char error[512];

static int make(void **state)
{
    (void)state;
    folder = inputs_folder();
    return 0;
}

static void any_name_is_read_back_as_it_was_written(void **state)
{
    (void)state;
    static const char *const names[] = {/* in the order of their bytes */
                                        "\x01/\x1b[2J.jpg",
                                        " a/leading blank.jpg",
                                        "#cat/1.jpg",
                                        "#cat/n.jpg",
                                        "a/\n.jpg",
                                        "a/\\\n\\n.jpg",
                                        "a/\\n.jpg",
                                        "a/b.jpg\r",
                                        "\xff\xfe/not utf8.jpg"};
    enum {
        N = sizeof names / sizeof names[0]
    };
    const char *path = inputs_path(folder, "list");
    struct tsp_skip_file file;
    struct tsp_skip_list list;
    assert_true(tsp_skip_file_create(path, &file, error, sizeof error));
    for (size_t i = N; i > 0; i--)
        tsp_skip_file_add(&file, names[i - 1]);
    assert_int_equal(access(path, F_OK), -1);
    assert_true(tsp_skip_file_finish(&file, error, sizeof error));
    assert_true(tsp_skip_list_read(path, &list, error, sizeof error));
    assert_int_equal(list.count, N);
    for (size_t i = 0; i < N; i++)
        assert_string_equal(list.names[i], names[i]);
    tsp_skip_list_fini(&list);
}

static void an_empty_list_is_one(void **state)
{
    (void)state;
    const char *path = inputs_path(folder, "empty");
    struct tsp_skip_list list;
    inputs_write(path, "#\n\n", 3);
    assert_true(tsp_skip_list_read(path, &list, error, sizeof error));
    assert_int_equal(list.count, 0);
    tsp_skip_list_fini(&list);
}

static void a_list_that_is_discarded_leaves_the_earlier_one(void **state)
{
    (void)state;
    const char *path = inputs_path(folder, "kept");
    struct tsp_skip_file file;
    size_t len;
    inputs_write(path, "a\n", 2);
    assert_true(tsp_skip_file_create(path, &file, error, sizeof error));
    tsp_skip_file_add(&file, "b");
    tsp_skip_file_discard(&file);
    uint8_t *text = inputs_read(path, &len);
    assert_string_equal((char *)text, "a\n");
    free(text);
}

static void where_no_file_can_be_the_list_is_refused(void **state)
{
    (void)state;
    struct tsp_skip_file file;
    struct tsp_skip_list list;
    assert_false(tsp_skip_file_create("/nowhere/at/all", &file, error, sizeof error));
    assert_non_null(strstr(error, "/nowhere/at/all"));
    assert_false(tsp_skip_list_read(folder, &list, error, sizeof error));
    assert_non_null(strstr(error, "cannot be read: Is a directory"));
    assert_true(tsp_skip_file_create(inputs_path(folder, "full"), &file, error, sizeof error));
    fclose(file.file);
    file.file = fopen("/dev/full", "w");
    tsp_skip_file_add(&file, "a");
    assert_false(tsp_skip_file_finish(&file, error, sizeof error));
    assert_non_null(strstr(error, "No space left"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_name_is_read_back_as_it_was_written),
        cmocka_unit_test(an_empty_list_is_one),
        cmocka_unit_test(a_list_that_is_discarded_leaves_the_earlier_one),
        cmocka_unit_test(where_no_file_can_be_the_list_is_refused),
    };
    return cmocka_run_group_tests(tests, make, NULL);
}
