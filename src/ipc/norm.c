/* SPDX-License-Identifier: Apache-2.0 */
#include "norm.h"

#include <string.h>

#include "norm_x86.h"

enum {
    BLOCK = 1024, /* pixels that are gone through once per channel: they and their result stay in the nearest cache */
};

static uint32_t float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

/* bits >> n, rounded to nearest, ties to even. */
static uint32_t round_off(uint32_t bits, unsigned n)
{
    uint32_t half = UINT32_C(1) << (n - 1);
    uint32_t rest = bits & (2 * half - 1);
    uint32_t kept = bits >> n;

    return kept + (rest > half || (rest == half && (kept & 1)));
}

static uint32_t bfloat16_bits(float value)
{
    return round_off(float_bits(value), 16);
}

/* IEEE 754 binary16. A carry out of the significand rightly goes on into the exponent. */
static uint32_t float16_bits(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t sign = bits >> 16 & 0x8000;
    uint32_t exponent = bits >> 23 & 0xff;
    uint32_t significand = (bits & 0x7fffff) | 0x800000;

    if (exponent > 127 + 15)
        return sign | 0x7c00; /* too large, or infinite; a table never holds NaN */
    if (exponent >= 127 - 14)
        return sign | round_off((exponent - (127 - 15)) << 23 | (significand & 0x7fffff), 13);
    if (exponent < 127 - 25)
        return sign;
    return sign | round_off(significand, 126 - exponent); /* subnormal */
}

static uint32_t to_bits(float value, enum tsocket_dtype dtype)
{
    switch (dtype) {
    case TSOCKET_FLOAT16:
        return float16_bits(value);
    case TSOCKET_BFLOAT16:
        return bfloat16_bits(value);
    default:
        return float_bits(value);
    }
}

void tsi_norm_init(struct tsi_norm *norm, enum tsocket_dtype dtype, uint32_t channels, const float *mean,
                   const float *std)
{
    *norm = (struct tsi_norm){.dtype = dtype, .channels = channels};
    memcpy(norm->mean, mean, channels * sizeof(*mean));
    memcpy(norm->std, std, channels * sizeof(*std));
    for (uint32_t c = 0; c < channels; c++)
        for (uint32_t v = 0; v < TSI_NORM_VALUES; v++)
            norm->bits[c][v] = to_bits(((float)v / 255.0f - mean[c]) / std[c], dtype);
}

/* One channel of a line. */
static void map_32(const uint32_t *table, const uint8_t *from, size_t from_step, size_t count, uint32_t *to,
                   ptrdiff_t to_step)
{
    for (; count > 0; count--, from += from_step, to += to_step)
        *to = table[*from];
}

static void map_16(const uint32_t *table, const uint8_t *from, size_t from_step, size_t count, uint16_t *to,
                   ptrdiff_t to_step)
{
    for (; count > 0; count--, from += from_step, to += to_step)
        *to = (uint16_t)table[*from];
}

void tsi_norm_look_up(const struct tsi_norm *norm, const uint8_t *from, size_t pixels, void *to,
                      struct tsi_norm_steps steps)
{
    size_t channels = norm->channels;

    for (size_t first = 0; first < pixels; first += BLOCK) {
        size_t count = pixels - first < BLOCK ? pixels - first : BLOCK;

        for (size_t c = 0; c < channels; c++) {
            const uint8_t *in = from + first * channels + c;
            ptrdiff_t at = (ptrdiff_t)first * steps.pixel + (ptrdiff_t)c * steps.channel;

            if (norm->dtype == TSOCKET_FLOAT32)
                map_32(norm->bits[c], in, channels, count, (uint32_t *)to + at, steps.pixel);
            else
                map_16(norm->bits[c], in, channels, count, (uint16_t *)to + at, steps.pixel);
        }
    }
}

void tsi_norm_write(const struct tsi_norm *norm, const uint8_t *from, size_t pixels, void *to,
                    struct tsi_norm_steps steps)
{
    size_t done = tsi_norm_x86(norm, from, pixels, to, steps);
    ptrdiff_t written = (ptrdiff_t)(done * tsocket_dtype_bytes(norm->dtype)) * steps.pixel;

    tsi_norm_look_up(norm, from + done * norm->channels, pixels - done, (unsigned char *)to + written, steps);
}
