/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "producer/exif.h"

/* A TIFF structure with one entry behind another one. */
static const uint8_t example[] = {
    'I',  'I',  42, 0, 8, 0, 0, 0, 2,   0,           /* header, two entries */
    0x0f, 0x01, 2,  0, 4, 0, 0, 0, 'c', 'a', 'm', 0, /* the camera's make */
    0x12, 0x01, 3,  0, 1, 0, 0, 0, 6,   0,   0,   0, /* orientation 6 */
};

enum {
    VALUE_AT = 30,
};

/* In a block of its own length: reads beyond it are found. */
static uint32_t orientation_of(const uint8_t *tiff, size_t len)
{
    uint8_t *copy = malloc(len);
    assert_non_null(copy);
    memcpy(copy, tiff, len);
    uint32_t orientation = tsp_exif_orientation(copy, len);
    free(copy);
    return orientation;
}

static void the_orientation_is_found(void **state)
{
    (void)state;
    assert_int_equal(orientation_of(example, sizeof example), 6);
}

static void illegal_orientations_are_upright(void **state)
{
    (void)state;
    uint8_t tiff[sizeof example];
    memcpy(tiff, example, sizeof tiff);
    for (uint8_t value = 0; value < 20; value++) {
        tiff[VALUE_AT] = value;
        assert_int_equal(orientation_of(tiff, sizeof tiff), value >= 1 && value <= 8 ? value : 1);
    }
}

static void cut_and_broken_structures_are_upright(void **state)
{
    (void)state;
    uint8_t tiff[sizeof example];
    for (size_t len = 0; len < VALUE_AT; len++)
        assert_int_equal(orientation_of(example, len), 1);
    for (size_t at = 0; at < sizeof tiff; at++) {
        memcpy(tiff, example, sizeof tiff);
        tiff[at] ^= 0xff;
        uint32_t orientation = orientation_of(tiff, sizeof tiff);
        assert_true(orientation == 1 || orientation == 6);
    }
}

static void a_box_is_turned_with_the_picture(void **state)
{
    (void)state;
    /* Stored 100 x 60, to be turned clockwise: the upright picture is 60 x 100, its top left corner at the bottom. */
    struct tsp_view view = {.x = 0, .y = 0, .width = 10, .height = 20, .flip = true};
    tsp_exif_turn(6, 100, 60, &view);
    assert_true(view.x == 0 && view.y == 50 && view.width == 20 && view.height == 10);
    assert_true(view.turn && !view.flip && !view.flop); /* its mirroring and that of the flip cancel out */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_orientation_is_found),
        cmocka_unit_test(illegal_orientations_are_upright),
        cmocka_unit_test(cut_and_broken_structures_are_upright),
        cmocka_unit_test(a_box_is_turned_with_the_picture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
