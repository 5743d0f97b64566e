/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "producer/source.h"

static const struct tsp_source_limits limits = {.max_bytes = 1 << 20};

static struct tsp_source *open_good(const char *spec)
{
    char error[512];
    struct tsp_source *source = tsp_source_open(spec, &limits, error, sizeof error);
    assert_non_null(source);
    return source;
}

static void samples_are_distinct_and_repeatable(void **state)
{
    (void)state;
    enum {
        COUNT = 1009,
        BYTES = 7 * 5 * 3
    };
    static uint8_t seen[COUNT][BYTES];
    struct tsp_encoded encoded = {0};
    struct tsp_source *source = open_good("synthetic:1009x7x5");
    assert_int_equal(source->count, COUNT);
    for (uint64_t i = 0; i < COUNT; i++) {
        assert_int_equal(source->ops->read(source, i, &encoded), TSP_GOOD);
        assert_int_equal(encoded.len, BYTES);
        assert_int_equal(encoded.raw_height, 7);
        assert_int_equal(encoded.raw_width, 5);
        memcpy(seen[i], encoded.data, BYTES);
        for (uint64_t k = 0; k < i; k++)
            assert_int_not_equal(memcmp(seen[i], seen[k], BYTES), 0);
    }
    assert_int_equal(source->ops->read(source, 17, &encoded), TSP_GOOD);
    assert_memory_equal(encoded.data, seen[17], BYTES);
    tsp_encoded_fini(&encoded);
    tsp_source_close(source);
}

static void labels_and_keys_follow_the_index(void **state)
{
    (void)state;
    struct tsp_source *source = open_good("synthetic:1009x8x8");
    assert_int_equal(source->ops->label(source, 1007), 7);
    assert_string_equal(source->ops->key(source, 123), "synthetic/000123");
    assert_false(source->null);
    tsp_source_close(source);
}

static void null_has_the_shape_alone(void **state)
{
    (void)state;
    struct tsp_source *source = open_good("null:1000000000x2x3");
    assert_true(source->null);
    assert_int_equal(source->count, 1000000000);
    assert_int_equal(source->raw_width, 3);
    tsp_source_close(source);
}

static void malformed_numbers_are_refused_with_the_limits(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "synthetic:",
        "synthetic:5",
        "synthetic:5x5",
        "synthetic:5x5x",
        "synthetic:0x8x8",
        "synthetic:8x0x8",
        "synthetic:8x8x0",
        "synthetic:-1x8x8",
        "synthetic: 1x8x8",
        "synthetic:+1x8x8",
        "synthetic:8x8x8x8",
        "synthetic:8x8x8 ",
        "synthetic:8x65501x1",
        "synthetic:8x9999x9999",
        "null:8X8X8",
        "null:x8x8",
        "null:281474976710656x8x8",
        "null:99999999999999999999999x8x8",
    };
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        char error[512] = "";
        assert_null(tsp_source_open(specs[i], &limits, error, sizeof error));
        assert_non_null(strstr(error, specs[i]));
        assert_non_null(strstr(error, "65500"));
        assert_non_null(strstr(error, "1048576"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_are_distinct_and_repeatable),
        cmocka_unit_test(labels_and_keys_follow_the_index),
        cmocka_unit_test(null_has_the_shape_alone),
        cmocka_unit_test(malformed_numbers_are_refused_with_the_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
