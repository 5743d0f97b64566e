/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <cmocka.h>

#include "inputs.h"
#include "producer/feed.h"

static char *no_environment[] = {NULL};
static const struct tsp_source_limits limits = {.max_bytes = 1 << 20};
static struct tsp_options options;
static struct tsp_problem problem;

static void open_feed(char *source, char *ring, struct tsp_feed *feed_out)
{
    char *argv[] = {"tsocketd", source, "--ring", ring};
    assert_true(tsp_options_parse(4, argv, no_environment, &options, &problem));
    assert_true(tsp_feed_open(&options, &options.streams[0], &limits, feed_out, &problem));
}

static void close_feed(struct tsp_feed *feed)
{
    tsp_feed_close(feed);
    tsp_options_fini(&options);
}

static void assert_list(const struct tsp_feed *feed, bool named, const char *expected)
{
    char *out;
    size_t len;
    FILE *file = open_memstream(&out, &len);
    assert_non_null(file);
    tsp_feed_list(feed, named, file);
    fclose(file);
    assert_string_equal(out, expected);
    free(out);
}

static void a_list_holds_every_byte_of_a_file_name(void **state)
{
    (void)state;
    struct tsp_feed feed;
    char folder[256], path[512];
    snprintf(folder, sizeof(folder), "%s/feed", inputs_folder());
    mkdir(folder, 0700);
    snprintf(path, sizeof(path), "%s/b", folder);
    mkdir(path, 0700);
    snprintf(path, sizeof(path), "%s/a\n\"", folder);
    mkdir(path, 0700);
    inputs_write(inputs_path(folder, "a\n\"/\xe9.jpg"), "x", 1);
    inputs_write(inputs_path(folder, "b/\xc3\xa9.JPG"), "x", 1);
    open_feed(folder, "10", &feed);
    assert_list(&feed, false,
                "{\"index\":0,\"key\":\"a\\u000a\\\"/\\udce9.jpg\",\"label\":0}\n"
                "{\"index\":1,\"key\":\"b/\xc3\xa9.JPG\",\"label\":1}\n");
    assert_list(&feed, true,
                "{\"stream\":\"train\",\"index\":0,\"key\":\"a\\u000a\\\"/\\udce9.jpg\",\"label\":0}\n"
                "{\"stream\":\"train\",\"index\":1,\"key\":\"b/\xc3\xa9.JPG\",\"label\":1}\n");
    close_feed(&feed);
}

static void a_feed_describes_itself(void **state)
{
    (void)state;
    struct tsp_feed feed;
    char text[1024];
    open_feed("synthetic:1009x8x6", "512", &feed);
    assert_int_equal(feed.sample_bytes, 8 * 6 * 3 + 8 + 8);
    assert_true(tsp_feed_size(&feed, &problem));
    tsp_feed_describe(&feed, text, sizeof(text));
    assert_string_equal(text,
                        "stream train: synthetic:1009x8x6, 1009 samples, 0 classes, 0 entries skipped; image uint8 "
                        "8x6x3 label int64 index int64; ring of 512 samples, 0.1 MiB; largest batch 256");
    close_feed(&feed);
}

static void a_source_that_cannot_be_opened_names_its_stream(void **state)
{
    (void)state;
    struct tsp_feed feed;
    char *argv[] = {"tsocketd", "--stream", "val=/nowhere/at/all"};
    assert_true(tsp_options_parse(3, argv, no_environment, &options, &problem));
    assert_false(tsp_feed_open(&options, &options.streams[0], &limits, &feed, &problem));
    assert_non_null(strstr(problem.text, "stream val: "));
    assert_non_null(strstr(problem.text, "/nowhere/at/all"));
    tsp_options_fini(&options);
}

static void a_ring_of_too_few_bytes_is_refused(void **state)
{
    (void)state;
    struct tsp_feed feed;
    open_feed("synthetic:1009x8x8", "100B", &feed);
    assert_false(tsp_feed_size(&feed, &problem));
    assert_non_null(strstr(problem.text, "stream train: --ring 100B holds no batch"));
    close_feed(&feed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_list_holds_every_byte_of_a_file_name),
        cmocka_unit_test(a_feed_describes_itself),
        cmocka_unit_test(a_source_that_cannot_be_opened_names_its_stream),
        cmocka_unit_test(a_ring_of_too_few_bytes_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
