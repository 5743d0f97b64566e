/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "ipc/layout.h"

static const struct tsocket_field image = {.name = "image", .dtype = TSOCKET_UINT8, .ndim = 3, .shape = {5, 7, 3}};
static const struct tsocket_field label = {.name = "label", .dtype = TSOCKET_INT64};

static void arrays_lie_one_behind_the_other_on_pages_of_their_own(void **state)
{
    const struct tsocket_field fields[] = {image, label};
    struct tsi_layout layout;

    (void)state;
    assert_int_equal(tsi_layout_init(fields, 2, 100, 30, &layout), TSOCKET_OK);
    assert_int_equal(layout.fields[0].sample_bytes, 105);
    assert_int_equal(layout.fields[1].sample_bytes, 8);
    assert_int_equal(layout.sample_bytes, 113);
    assert_int_equal(layout.offset[0], 0);
    assert_int_equal(layout.offset[1], 4 * TSI_FIELD_ALIGN); /* 130 slots of 105 bytes */
    assert_int_equal(layout.bytes, 5 * TSI_FIELD_ALIGN);
}

/* Whether the window [position, position + n) is n consecutive samples with the numbers of their positions. */
static void assert_window(const struct tsi_layout *layout, void *base, uint64_t position, uint64_t n)
{
    const int64_t *numbers = tsi_layout_at(layout, base, 0, position);

    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(numbers[i], position + i);
}

static void every_window_up_to_the_mirror_is_contiguous_and_true(void **state)
{
    const uint64_t sizes[][2] = {{1, 1}, {2, 1}, {7, 7}, {13, 5}, {16, 8}};

    (void)state;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        uint64_t capacity = sizes[s][0], mirror = sizes[s][1];
        struct tsi_layout layout;
        void *base;

        assert_int_equal(tsi_layout_init(&label, 1, capacity, mirror, &layout), TSOCKET_OK);
        base = calloc(1, layout.bytes);
        assert_non_null(base);
        for (uint64_t position = 0; position < 3 * capacity; position++) {
            memcpy(tsi_layout_at(&layout, base, 0, position), &position, sizeof(position));
            tsi_layout_mirror(&layout, base, position);
            for (uint64_t n = 1; n <= mirror && n <= position + 1; n++)
                assert_window(&layout, base, position + 1 - n, n);
        }
        free(base);
    }
}

static void refuse(const struct tsocket_field *field, uint32_t n, uint64_t capacity, uint64_t mirror)
{
    struct tsi_layout layout;

    assert_int_equal(tsi_layout_init(field, n, capacity, mirror, &layout), TSOCKET_EINVAL);
    assert_true(strlen(tsocket_last_error()) > 0);
}

static void numbers_beyond_their_limits_are_refused(void **state)
{
    struct tsocket_field field = image;

    (void)state;
    refuse(&image, 0, 10, 5);
    refuse(&image, TSOCKET_FIELDS_MAX + 1, 10, 5);
    refuse(&image, 1, 0, 0);
    refuse(&image, 1, 10, 0);
    refuse(&image, 1, 10, 11);
    refuse(&image, 1, TSI_CAPACITY_MAX + 1, 5);
    refuse(&image, 1, UINT64_MAX, UINT64_MAX);
    field.ndim = TSOCKET_NDIM_MAX + 1;
    refuse(&field, 1, 10, 5);
    field = image;
    field.dtype = (enum tsocket_dtype)0;
    refuse(&field, 1, 10, 5);
    field.dtype = (enum tsocket_dtype)UINT32_MAX;
    refuse(&field, 1, 10, 5);
    field = image;
    strcpy(field.name, "../x");
    refuse(&field, 1, 10, 5);
    memset(field.name, 'x', sizeof(field.name)); /* no final 0 */
    refuse(&field, 1, 10, 5);
}

static void products_that_would_overflow_are_refused(void **state)
{
    struct tsocket_field field = {.name = "big", .dtype = TSOCKET_FLOAT64, .ndim = 6};
    const uint64_t extents[] = {0, UINT64_MAX, UINT64_C(1) << 63, UINT64_C(1) << 33, 65536};

    (void)state;
    for (size_t i = 0; i < sizeof(extents) / sizeof(extents[0]); i++) {
        for (uint32_t d = 0; d < field.ndim; d++)
            field.shape[d] = extents[i];
        refuse(&field, 1, 10, 5);
    }
    field.ndim = 1;
    field.shape[0] = TSI_SAMPLE_BYTES_MAX / 8;
    refuse(&field, 1, TSI_CAPACITY_MAX, 1); /* each factor is possible, the ring is not */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrays_lie_one_behind_the_other_on_pages_of_their_own),
        cmocka_unit_test(every_window_up_to_the_mirror_is_contiguous_and_true),
        cmocka_unit_test(numbers_beyond_their_limits_are_refused),
        cmocka_unit_test(products_that_would_overflow_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
