/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes become the numbers that the definition says, in each dtype; vectors have the bits of the table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <string.h>
#include <cmocka.h>

#include "ipc/norm.h"

enum {
    PIXELS = 300, /* each byte is there for each channel */
    GUARD = 16,
    ELEMENTS = PIXELS * TSOCKET_CHANNELS_MAX,
};

static const enum tsocket_dtype dtypes[] = {TSOCKET_FLOAT32, TSOCKET_FLOAT16, TSOCKET_BFLOAT16};
static const float mean[TSOCKET_CHANNELS_MAX] = {0.485f, 0.456f, 0.406f, -3.0f};
static const float std[TSOCKET_CHANNELS_MAX] = {0.229f, 0.224f, 0.225f, -1e-4f};

/* The number that half precision bits stand for. */
static double half_value(uint16_t bits, enum tsocket_dtype dtype)
{
    int significand_bits = dtype == TSOCKET_FLOAT16 ? 10 : 7, bias = dtype == TSOCKET_FLOAT16 ? 15 : 127;
    int exponent = (bits & 0x7fff) >> significand_bits, one = 1 << significand_bits;
    int significand = bits & (one - 1);
    double value = exponent > 0 ? ldexp(one + significand, exponent - bias - significand_bits)
                                : ldexp(significand, 1 - bias - significand_bits);
    return bits & 0x8000 ? -value : value;
}

/* No neighbour is nearer, and of two that are as near it is the even one. */
static void assert_nearest(float exact, uint16_t bits, enum tsocket_dtype dtype)
{
    double distance = fabs(half_value(bits, dtype) - (double)exact);
    uint16_t magnitude = bits & 0x7fff;
    for (int step = -1; step <= 1; step += 2) {
        if (magnitude == 0 && step < 0)
            continue;
        double other = fabs(half_value((uint16_t)(bits + step), dtype) - (double)exact);
        assert_true(distance < other || (distance <= other && bits % 2 == 0));
    }
}

static void every_byte_of_every_channel_is_what_the_definition_says(void **state)
{
    (void)state;
    for (int d = 0; d < 3; d++) {
        struct tsi_norm norm;
        tsi_norm_init(&norm, dtypes[d], TSOCKET_CHANNELS_MAX, mean, std);
        for (uint32_t c = 0; c < TSOCKET_CHANNELS_MAX; c++)
            for (uint32_t v = 0; v < TSI_NORM_VALUES; v++) {
                float exact = ((float)v / 255.0f - mean[c]) / std[c];
                if (dtypes[d] == TSOCKET_FLOAT32)
                    assert_memory_equal(&norm.bits[c][v], &exact, sizeof exact);
                else
                    assert_nearest(exact, (uint16_t)norm.bits[c][v], dtypes[d]);
                assert_true(dtypes[d] == TSOCKET_FLOAT32 || norm.bits[c][v] <= UINT16_MAX);
            }
    }
}

static void small_and_large_numbers_are_rounded_too(void **state)
{
    (void)state;
    const float none[] = {0}, least[] = {2.0f}, most[] = {66000.0f};
    for (int exponent = 1; exponent < 25; exponent++) { /* 1 / 2^24 is the least float16 that is not 0 */
        float divisor[] = {ldexpf(1.1f, exponent)};
        struct tsi_norm norm;
        tsi_norm_init(&norm, TSOCKET_FLOAT16, 1, none, divisor);
        for (uint32_t v = 0; v < TSI_NORM_VALUES; v++)
            assert_nearest((float)v / 255.0f / divisor[0], (uint16_t)norm.bits[0][v], TSOCKET_FLOAT16);
    }
    struct tsi_norm norm;
    tsi_norm_init(&norm, TSOCKET_FLOAT16, 1, most, least);
    assert_nearest(-33000.0f, (uint16_t)norm.bits[0][0], TSOCKET_FLOAT16);
}

static const uint8_t *every_byte(uint32_t channels)
{
    static uint8_t bytes[ELEMENTS];
    for (uint32_t i = 0; i < PIXELS * channels; i++)
        bytes[i] = (uint8_t)(i / channels * 7 + i % channels * 50);
    return bytes;
}

/* Writes `pixels` both ways, with something before and behind that must stay, and compares all of it. */
static void compare(const struct tsi_norm *norm, size_t pixels, struct tsi_norm_steps steps)
{
    static uint8_t fast[(ELEMENTS * 2 + 2 * GUARD) * 4], sure[sizeof fast];
    size_t first = GUARD * tsocket_dtype_bytes(norm->dtype);
    memset(fast, 0xa5, sizeof fast);
    memset(sure, 0xa5, sizeof sure);
    tsi_norm_write(norm, every_byte(norm->channels), pixels, fast + first, steps);
    tsi_norm_look_up(norm, every_byte(norm->channels), pixels, sure + first, steps);
    assert_memory_equal(fast, sure, sizeof fast);
}

static void vectors_have_the_bits_of_the_table(void **state)
{
    (void)state;
    for (int d = 0; d < 3; d++)
        for (uint32_t channels = 1; channels <= TSOCKET_CHANNELS_MAX; channels++) {
            struct tsi_norm norm;
            tsi_norm_init(&norm, dtypes[d], channels, mean, std);
            for (size_t pixels = 0; pixels <= PIXELS; pixels += pixels < 70 ? 1 : PIXELS - 70) {
                compare(&norm, pixels, (struct tsi_norm_steps){(ptrdiff_t)channels, 1});
                compare(&norm, pixels, (struct tsi_norm_steps){1, (ptrdiff_t)pixels});
                compare(&norm, pixels, (struct tsi_norm_steps){1, (ptrdiff_t)pixels + 3});
                compare(&norm, pixels, (struct tsi_norm_steps){(ptrdiff_t)channels + 1, 1});
                compare(&norm, pixels, (struct tsi_norm_steps){2, PIXELS + 1});
            }
        }
}

static void what_is_looked_up_lies_where_the_steps_say(void **state)
{
    (void)state;
    struct tsi_norm norm;
    uint16_t out[3 * 7] = {0};
    const uint8_t bytes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    tsi_norm_init(&norm, TSOCKET_BFLOAT16, 3, mean, std);
    tsi_norm_look_up(&norm, bytes, 3, out, (struct tsi_norm_steps){2, 7});
    for (size_t x = 0; x < 3; x++)
        for (size_t c = 0; c < 3; c++)
            assert_int_equal(out[x * 2 + c * 7], norm.bits[c][bytes[x * 3 + c]]);
    assert_int_equal(out[1], 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_byte_of_every_channel_is_what_the_definition_says),
        cmocka_unit_test(small_and_large_numbers_are_rounded_too),
        cmocka_unit_test(vectors_have_the_bits_of_the_table),
        cmocka_unit_test(what_is_looked_up_lies_where_the_steps_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
