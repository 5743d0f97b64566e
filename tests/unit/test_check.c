/* SPDX-License-Identifier: Apache-2.0 */
/* --check, on a folder of good and bad files, and on sources that fail or are stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "inputs.h"
#include "producer/check.h"

static const struct tsp_source_limits source_limits = {.max_bytes = 1 << 20};
static const char *root;
static char *lines;
static size_t lines_len;
static struct tsp_check_result result;
static char error[256];

static int make(void **state)
{
    (void)state;
    char arguments[512];
    root = inputs_folder();
    snprintf(arguments, sizeof arguments, "make_inputs.py '%s' --only folders", root);
    inputs_python(arguments);
    return 0;
}

/* Runs a check; `lines` is what it printed, the test's to free. */
static bool run(const struct tsp_source *source, bool (*go_on)(void *context, uint64_t checked))
{
    struct tsp_check check = {
        .source = source,
        .limits = {.max_pixels = 1 << 20, .max_scans = 100},
        .workers = 2,
        .go_on = go_on,
    };
    check.out = open_memstream(&lines, &lines_len);
    bool good = tsp_check_run(&check, &result, error, sizeof error);
    fclose(check.out);
    return good;
}

static struct tsp_source *open_source(const char *spec)
{
    struct tsp_source *source = tsp_source_open(spec, &source_limits, error, sizeof error);
    if (!source)
        fail_msg("%s", error);
    return source;
}

static void bad_files_are_reported_each_in_a_line(void **state)
{
    (void)state;
    static const char *const starts[] = {
        "{\"index\":0,\"key\":\"a/cut.jpg\",\"kind\":\"truncated\",\"why\":\"",
        "{\"index\":1,\"key\":\"a/empty.jpg\",\"kind\":\"empty\",\"why\":\"",
        "{\"index\":10,\"key\":\"b/page.jpg\",\"kind\":\"not_image\",\"why\":\"",
        "{\"index\":11,\"key\":\"b/zeros.jpg\",\"kind\":\"corrupt\",\"why\":\"",
    };
    struct tsp_source *source = open_source(inputs_path(root, "folders/bad_files"));
    assert_true(run(source, NULL));
    assert_int_equal(result.checked, 12);
    assert_int_equal(result.bad, 4);
    assert_int_equal(result.pixels, 8 * 16 * 16);
    assert_false(result.stopped);
    size_t n = 0;
    for (const char *at = lines; *at; at++)
        n += *at == '\n';
    assert_int_equal(n, 4);
    for (size_t i = 0; i < 4; i++)
        assert_non_null(strstr(lines, starts[i]));
    free(lines);
    tsp_source_close(source);
}

static void good_pictures_print_nothing(void **state)
{
    (void)state;
    struct tsp_source *source = open_source("synthetic:101x8x6");
    assert_true(run(source, NULL));
    assert_int_equal(result.checked, 101);
    assert_int_equal(result.bad, 0);
    assert_int_equal(lines_len, 0);
    free(lines);
    tsp_source_close(source);
}

static bool stop_at_once(void *context, uint64_t checked)
{
    (void)context;
    (void)checked;
    return false;
}

static void it_can_be_stopped(void **state)
{
    (void)state;
    struct tsp_source *source = open_source("synthetic:1000000000x8x6");
    assert_true(run(source, stop_at_once));
    assert_true(result.stopped);
    assert_true(result.checked < 1000000000);
    free(lines);
    tsp_source_close(source);
}

/* A source on a disk that fails. */
static const char *failing_key(const struct tsp_source *source, uint64_t index)
{
    (void)source;
    (void)index;
    return "some/path";
}

static enum tsp_bad failing_read(const struct tsp_source *source, uint64_t index, struct tsp_encoded *out)
{
    (void)source;
    (void)index;
    snprintf(out->why, sizeof out->why, "read: Input/output error");
    return TSP_STOP;
}

static void a_failing_disk_ends_it(void **state)
{
    (void)state;
    static const struct tsp_source_ops ops = {.key = failing_key, .read = failing_read};
    const struct tsp_source source = {.ops = &ops, .count = 100};
    assert_false(run(&source, NULL));
    assert_string_equal(error, "some/path: read: Input/output error");
    assert_int_equal(lines_len, 0);
    free(lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_files_are_reported_each_in_a_line),
        cmocka_unit_test(good_pictures_print_nothing),
        cmocka_unit_test(it_can_be_stopped),
        cmocka_unit_test(a_failing_disk_ends_it),
    };
    return cmocka_run_group_tests(tests, make, NULL);
}
