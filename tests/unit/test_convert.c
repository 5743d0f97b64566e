/* SPDX-License-Identifier: Apache-2.0 */
/* From bytes to normalised floating point: the same bits as the producer's, in every dtype and layout. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <tsocket/convert.h>

enum {
    PIXELS = 2000,
    IMAGES = 2,
    CHANNELS = 3
}; /* more than a block, and no multiple of one */

static uint8_t pixels[IMAGES * PIXELS * CHANNELS];

static struct tsocket_conversion imagenet(enum tsocket_dtype dtype, bool channels_first)
{
    struct tsocket_conversion conversion;

    tsocket_conversion_init(&conversion);
    conversion.dtype = dtype;
    conversion.channels_first = channels_first;
    memcpy(conversion.mean, (float[]){0.485f, 0.456f, 0.406f}, 3 * sizeof(float));
    memcpy(conversion.std, (float[]){0.229f, 0.224f, 0.225f}, 3 * sizeof(float));
    for (size_t i = 0; i < sizeof(pixels); i++)
        pixels[i] = (uint8_t)(i * 7 + i / 256);
    return conversion;
}

static float expected(const struct tsocket_conversion *conversion, size_t i)
{
    size_t c = i % CHANNELS;
    return ((float)pixels[i] / 255.0f - conversion->mean[c]) / conversion->std[c];
}

static void every_element_is_normalised_where_it_lies(void **state)
{
    static float out[IMAGES * PIXELS * CHANNELS];
    struct tsocket_conversion conversion = imagenet(TSOCKET_FLOAT32, false);

    (void)state;
    assert_int_equal(tsocket_convert(&conversion, pixels, IMAGES, PIXELS, out), TSOCKET_OK);
    for (size_t i = 0; i < sizeof(pixels); i++)
        assert_float_equal(out[i], expected(&conversion, i), 0);
}

static void channels_come_first_where_that_is_wanted(void **state)
{
    static float out[IMAGES * PIXELS * CHANNELS];
    struct tsocket_conversion conversion = imagenet(TSOCKET_FLOAT32, true);

    (void)state;
    assert_int_equal(tsocket_convert(&conversion, pixels, IMAGES, PIXELS, out), TSOCKET_OK);
    for (size_t i = 0; i < sizeof(pixels); i++) {
        size_t image = i / (PIXELS * CHANNELS), pixel = i / CHANNELS % PIXELS, c = i % CHANNELS;
        assert_float_equal(out[(image * CHANNELS + c) * PIXELS + pixel], expected(&conversion, i), 0);
    }
}

/* One pixel of value `value` in the given mean and std. */
static uint16_t half_of(enum tsocket_dtype dtype, uint8_t value, float mean, float std)
{
    struct tsocket_conversion conversion;
    uint16_t out;

    tsocket_conversion_init(&conversion);
    conversion.dtype = dtype;
    conversion.channels = 1;
    conversion.mean[0] = mean;
    conversion.std[0] = std;
    assert_int_equal(tsocket_convert(&conversion, &value, 1, 1, &out), TSOCKET_OK);
    return out;
}

static void half_precision_is_rounded_to_the_nearest_even(void **state)
{
    (void)state;
    assert_int_equal(half_of(TSOCKET_FLOAT16, 255, 0, 1), 0x3c00);            /* 1 */
    assert_int_equal(half_of(TSOCKET_FLOAT16, 255, 0, -1), 0xbc00);           /* -1 */
    assert_int_equal(half_of(TSOCKET_FLOAT16, 0, 0, 1), 0);                   /* 0 */
    assert_int_equal(half_of(TSOCKET_FLOAT16, 255, 0, 1 / 65504.0f), 0x7bff); /* the largest */
    assert_int_equal(half_of(TSOCKET_FLOAT16, 255, 0, 1 / 65530.0f), 0x7c00); /* rounds to infinity */
    assert_int_equal(half_of(TSOCKET_FLOAT16, 255, 0, 1 / 1e9f), 0x7c00);     /* infinity */
    assert_int_equal(half_of(TSOCKET_FLOAT16, 255, 0, 16777216.0f), 0x0001);  /* the smallest subnormal */
    assert_int_equal(half_of(TSOCKET_FLOAT16, 255, 0, 33554432.0f), 0x0000);  /* half of it: to even */
    assert_int_equal(half_of(TSOCKET_FLOAT16, 255, -2048.0f, 1), 0x6800);     /* 2049 lies between: to even */
    assert_int_equal(half_of(TSOCKET_FLOAT16, 255, -2050.0f, 1), 0x6802);     /* and 2051 up */
    assert_int_equal(half_of(TSOCKET_BFLOAT16, 255, 0, 1), 0x3f80);           /* 1 */
    assert_int_equal(half_of(TSOCKET_BFLOAT16, 255, -256.0f, 1), 0x4380);     /* 257: to even */
    assert_int_equal(half_of(TSOCKET_BFLOAT16, 255, -258.0f, 1), 0x4382);     /* 259: up */
}

/* The pictures that a pick makes of `pixels`, byte by byte. */
static void pick_bytes(const struct tsocket_pick *pick, uint32_t images, uint32_t pixels_each, uint8_t *out)
{
    for (uint32_t i = 0; i < images; i++) {
        const uint8_t *from = pixels + (size_t)(pick->index ? pick->index[i] : i) * pixels_each * CHANNELS;
        for (uint32_t pixel = 0; pixel < pixels_each; pixel++, out += CHANNELS) {
            uint32_t x = pixel % pick->width, row = pixel - x;
            bool flip = pick->flip && pick->flip[i];
            memcpy(out, from + (size_t)(row + (flip ? pick->width - 1 - x : x)) * CHANNELS, CHANNELS);
        }
    }
}

static void pictures_are_picked_and_mirrored(void **state)
{
    static const uint32_t widths[] = {1, 5, 16, 100, 500, 1000}, index[] = {1, 0, 0, 1, 1};
    static const uint8_t flip[] = {1, 0, 1, 0, 2};
    static const enum tsocket_dtype dtypes[] = {TSOCKET_FLOAT32, TSOCKET_FLOAT16, TSOCKET_BFLOAT16};
    static uint8_t picked[5 * PIXELS * CHANNELS];
    static unsigned char out[sizeof(picked) * 4], wanted[sizeof(out)];

    (void)state;
    for (int i = 0; i < 6 * 3 * 2 * 3; i++) {
        struct tsocket_conversion conversion = imagenet(dtypes[i % 3], i / 3 % 2 == 1);
        struct tsocket_pick pick = {
            .index = i / 6 % 3 > 0 ? index : NULL, .flip = i / 6 % 3 < 2 ? flip : NULL, .width = widths[i / 18]};
        uint32_t images = pick.index != NULL ? 5 : IMAGES, pixels_each = i % 2 ? PIXELS : 1000;
        size_t bytes = (size_t)images * pixels_each * CHANNELS * tsocket_dtype_bytes(conversion.dtype);

        if (pixels_each % pick.width != 0)
            continue;
        pick_bytes(&pick, images, pixels_each, picked);
        assert_int_equal(tsocket_convert(&conversion, picked, images, pixels_each, wanted), TSOCKET_OK);
        assert_int_equal(tsocket_convert_picked(&conversion, &pick, pixels, images, pixels_each, out), TSOCKET_OK);
        assert_memory_equal(out, wanted, bytes);
    }
}

static void what_is_not_possible_is_refused(void **state)
{
    struct tsocket_conversion conversion = imagenet(TSOCKET_FLOAT32, false);
    float out[CHANNELS];

    (void)state;
    conversion.std[1] = 0;
    assert_int_equal(tsocket_convert(&conversion, pixels, 1, 1, out), TSOCKET_EINVAL);
    conversion.std[1] = INFINITY;
    assert_int_equal(tsocket_convert(&conversion, pixels, 1, 1, out), TSOCKET_EINVAL);
    conversion = imagenet(TSOCKET_FLOAT32, false);
    conversion.mean[2] = -INFINITY;
    assert_int_equal(tsocket_convert(&conversion, pixels, 1, 1, out), TSOCKET_EINVAL);
    conversion = imagenet(TSOCKET_INT32, false);
    assert_int_equal(tsocket_convert(&conversion, pixels, 1, 1, out), TSOCKET_EINVAL);
    conversion = imagenet(TSOCKET_FLOAT32, false);
    conversion.channels = TSOCKET_CHANNELS_MAX + 1;
    assert_int_equal(tsocket_convert(&conversion, pixels, 1, 1, out), TSOCKET_EINVAL);
    conversion = imagenet(TSOCKET_FLOAT32, false);
    conversion.size = 1;
    assert_int_equal(tsocket_convert(&conversion, pixels, 1, 1, out), TSOCKET_EINVAL);
    assert_int_equal(tsocket_convert(NULL, pixels, 1, 1, out), TSOCKET_EINVAL);
    conversion = imagenet(TSOCKET_FLOAT32, false);
    assert_int_equal(tsocket_convert_picked(&conversion, NULL, pixels, 1, 1, out), TSOCKET_EINVAL);
    const struct tsocket_pick no_row = {.flip = pixels, .width = 0}, other_row = {.flip = pixels, .width = 3};
    assert_int_equal(tsocket_convert_picked(&conversion, &no_row, pixels, 1, 4, out), TSOCKET_EINVAL);
    assert_int_equal(tsocket_convert_picked(&conversion, &other_row, pixels, 1, 4, out), TSOCKET_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_is_normalised_where_it_lies),
        cmocka_unit_test(channels_come_first_where_that_is_wanted),
        cmocka_unit_test(half_precision_is_rounded_to_the_nearest_even),
        cmocka_unit_test(pictures_are_picked_and_mirrored),
        cmocka_unit_test(what_is_not_possible_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
