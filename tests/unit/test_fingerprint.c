/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "producer/fingerprint.h"

/* A list of samples, without any file. */
struct list {
    struct tsp_source source;
    const char *keys[4];
    int64_t labels[4];
};

static const char *key(const struct tsp_source *source, uint64_t index)
{
    return ((const struct list *)(const void *)source)->keys[index];
}

static int64_t label(const struct tsp_source *source, uint64_t index)
{
    return ((const struct list *)(const void *)source)->labels[index];
}

static const struct tsp_source_ops ops = {.key = key, .label = label};

static const struct list plain = {
    .source = {.ops = &ops, .count = 3}, .keys = {"a/1.jpg", "a/2.jpg", "b/1.jpg", "b/2.jpg"}, .labels = {0, 0, 1, 1}};

static void assert_differs(const struct list *other)
{
    char one[TSP_FINGERPRINT], two[TSP_FINGERPRINT];

    tsp_fingerprint_dataset(&plain.source, one);
    tsp_fingerprint_dataset(&other->source, two);
    assert_string_not_equal(one, two);
}

static void any_change_of_the_list_changes_it(void **state)
{
    struct list other = plain;

    (void)state;
    other.source.count = 4;
    assert_differs(&other);
    other = plain;
    other.labels[2] = 2;
    assert_differs(&other);
    other = plain;
    other.keys[0] = plain.keys[1];
    other.keys[1] = plain.keys[0];
    assert_differs(&other);
    other = plain;
    other.keys[0] = "a/1.jp"; /* a letter goes from one key to the next */
    other.keys[1] = "ga/2.jpg";
    assert_differs(&other);
    other = plain;
    other.source.raw_width = 8;
    assert_differs(&other);
}

/* It stands in tokens, states and papers: it must not change from one version to the next. */
static void it_stays_what_it_is(void **state)
{
    char text[TSP_FINGERPRINT];

    (void)state;
    tsp_fingerprint_dataset(&plain.source, text);
    assert_string_equal(text, "db15228fe1e1168e");
    tsp_fingerprint_text("size=224", text);
    assert_string_equal(text, "e3b14b7df23e69b4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_change_of_the_list_changes_it),
        cmocka_unit_test(it_stays_what_it_is),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
