/* SPDX-License-Identifier: Apache-2.0 */
/* --check, on a folder of good and bad files, and on sources that fail or are stopped. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <cjson/cJSON.h>

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
        .json = true,
        .go_on = go_on,
    };
    check.out = open_memstream(&lines, &lines_len);
    bool good = tsp_check_run(&check, &result, error, sizeof error);
    if (good)
        tsp_check_print(&check, &result);
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
    assert_int_equal(result.kinds[TSP_TRUNCATED], 1);
    assert_int_equal(result.bad_samples[0], 0);
    assert_int_equal(result.bad_samples[3], 11);
    assert_int_equal(result.summary.pixels, 8 * 16 * 16);
    assert_false(result.stopped);
    size_t n = 0;
    for (const char *at = lines; *at; at++)
        n += *at == '\n';
    assert_int_equal(n, 4 + 1);
    for (size_t i = 0; i < 4; i++)
        assert_non_null(strstr(lines, starts[i]));
    free(result.bad_samples);
    free(lines);
    tsp_source_close(source);
}

/* What the last line says, which is all that a good folder prints. */
static cJSON *summary_of(const char *text)
{
    cJSON *line = cJSON_Parse(text), *summary = cJSON_DetachItemFromObject(line, "summary");
    assert_non_null(summary);
    cJSON_Delete(line);
    return summary;
}

static double number(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);
    if (!cJSON_IsNumber(item))
        fail_msg("no number %s", key);
    return item->valuedouble;
}

static void good_pictures_are_summed_up(void **state)
{
    (void)state;
    struct tsp_source *source = open_source("synthetic:101x8x6");
    assert_true(run(source, NULL));
    assert_int_equal(result.checked, 101);
    assert_int_equal(result.bad, 0);
    cJSON *summary = summary_of(lines);
    assert_true(number(summary, "checked") == 101 && number(summary, "bad") == 0);
    assert_true(number(cJSON_GetObjectItem(summary, "formats"), "pixels") == 101);
    assert_true(number(cJSON_GetObjectItem(summary, "width"), "least") == 6);
    assert_true(number(cJSON_GetObjectItem(summary, "height"), "most") == 8);
    cJSON_Delete(summary);
    free(lines);
    tsp_source_close(source);
}

static const char *no_key(const struct tsp_source *source, uint64_t index)
{
    (void)source;
    (void)index;
    return "some/path";
}

/* Pictures of one colour each, by number: 0 black, 255 white. */
static enum tsp_bad grey_read(const struct tsp_source *source, uint64_t index, struct tsp_encoded *out)
{
    uint32_t side = index ? 4 : 40; /* the black one is much larger, and counts no more */
    (void)source;
    assert_int_equal(tsp_encoded_reserve(out, (size_t)side * side * 3), TSP_GOOD);
    out->len = (size_t)side * side * 3;
    memset(out->data, index ? 255 : 0, out->len);
    out->raw_width = out->raw_height = side;
    return TSP_GOOD;
}

static void channels_have_the_mean_and_deviation_of_pictures_that_count_the_same(void **state)
{
    (void)state;
    static const struct tsp_source_ops ops = {.key = no_key, .read = grey_read};
    const struct tsp_source source = {.ops = &ops, .count = 4};
    double mean[3], std[3];
    assert_true(run(&source, NULL));
    tsp_summary_channels(&result.summary, mean, std);
    for (int c = 0; c < 3; c++) {
        assert_true(fabs(mean[c] - 0.75) < 1e-9);
        assert_true(fabs(std[c] - sqrt(0.75 * 0.25)) < 1e-9);
    }
    free(lines);
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

/* A disk that fails. */
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
    static const struct tsp_source_ops ops = {.key = no_key, .read = failing_read};
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
        cmocka_unit_test(good_pictures_are_summed_up),
        cmocka_unit_test(channels_have_the_mean_and_deviation_of_pictures_that_count_the_same),
        cmocka_unit_test(it_can_be_stopped),
        cmocka_unit_test(a_failing_disk_ends_it),
    };
    return cmocka_run_group_tests(tests, make, NULL);
}
