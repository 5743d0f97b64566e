/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A byte has 256 values, so each channel has a table of what becomes of them, in the bits of the result's dtype: half
 * precision costs no more than float32, and the divisions are done once.
 */
#include <tsocket/convert.h>

#include <inttypes.h>
#include <string.h>

#include "../ipc/error.h"
#include "convert_table.h"

enum {
    VALUES = TSC_CONVERT_VALUES,
    BLOCK = 1024, /* pixels that are gone through once per channel: they and their result stay in the nearest cache */
};

void tsocket_conversion_init(struct tsocket_conversion *conversion)
{
    *conversion = (struct tsocket_conversion){
        .size = sizeof(*conversion), .dtype = TSOCKET_FLOAT32, .channels = 3, .std = {1, 1, 1, 1}};
}

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

/* The divisions in this order and in float, as src/producer/output.c does them. */
void tsc_convert_fill(const struct tsocket_conversion *conversion, struct tsc_convert_table *table_out)
{
    for (uint32_t c = 0; c < conversion->channels; c++) {
        for (uint32_t v = 0; v < VALUES; v++) {
            float value = ((float)v / 255.0f - conversion->mean[c]) / conversion->std[c];

            table_out->bits[c][v] = to_bits(value, conversion->dtype);
        }
    }
}

int tsc_convert_check(const struct tsocket_conversion *conversion)
{
    enum tsocket_dtype dtype = conversion->dtype;

    if (conversion->size != sizeof(*conversion))
        return tsi_fail(TSOCKET_EINVAL,
                        "conversion.size is %zu; call tsocket_conversion_init of this library (%s) first",
                        conversion->size, tsocket_version());
    if (dtype != TSOCKET_FLOAT32 && dtype != TSOCKET_FLOAT16 && dtype != TSOCKET_BFLOAT16)
        return tsi_fail(TSOCKET_EINVAL, "conversion.dtype is %d; float32, float16 and bfloat16 are possible",
                        (int)dtype);
    if (conversion->channels < 1 || conversion->channels > TSOCKET_CHANNELS_MAX)
        return tsi_fail(TSOCKET_EINVAL, "conversion.channels is %u; 1 to %d are possible", conversion->channels,
                        TSOCKET_CHANNELS_MAX);
    for (uint32_t c = 0; c < conversion->channels; c++) {
        if (!(conversion->std[c] < 0 || conversion->std[c] > 0) || conversion->mean[c] != conversion->mean[c])
            return tsi_fail(TSOCKET_EINVAL, "conversion.mean[%u] is %g and std %g; numbers are needed, std not 0", c,
                            (double)conversion->mean[c], (double)conversion->std[c]);
    }
    return TSOCKET_OK;
}

static void map_32(const uint32_t *table, const uint8_t *from, size_t from_step, uint64_t count, uint32_t *to,
                   size_t to_step)
{
    for (uint64_t i = 0; i < count; i++)
        to[i * to_step] = table[from[i * from_step]];
}

static void map_16(const uint32_t *table, const uint8_t *from, size_t from_step, uint64_t count, uint16_t *to,
                   size_t to_step)
{
    for (uint64_t i = 0; i < count; i++)
        to[i * to_step] = (uint16_t)table[from[i * from_step]];
}

/* One picture; `to` is its first element. */
static void convert_one(const struct tsocket_conversion *conversion, const struct tsc_convert_table *table,
                        const uint8_t *from, uint64_t pixels, void *to)
{
    size_t channels = conversion->channels;
    size_t pixel_step = conversion->channels_first ? 1 : channels;
    size_t channel_step = conversion->channels_first ? pixels : 1;

    for (uint64_t first = 0; first < pixels; first += BLOCK) {
        uint64_t count = pixels - first < BLOCK ? pixels - first : BLOCK;

        for (size_t c = 0; c < channels; c++) {
            const uint8_t *in = from + first * channels + c;
            size_t at = first * pixel_step + c * channel_step;

            if (conversion->dtype == TSOCKET_FLOAT32)
                map_32(table->bits[c], in, channels, count, (uint32_t *)to + at, pixel_step);
            else
                map_16(table->bits[c], in, channels, count, (uint16_t *)to + at, pixel_step);
        }
    }
}

int tsocket_convert(const struct tsocket_conversion *conversion, const uint8_t *from, uint64_t images, uint64_t pixels,
                    void *to)
{
    struct tsc_convert_table table;
    uint64_t elements;
    int rc;

    if (conversion == NULL || from == NULL || to == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_convert: NULL");
    rc = tsc_convert_check(conversion);
    if (rc != TSOCKET_OK)
        return rc;
    tsc_convert_fill(conversion, &table);
    elements = pixels * conversion->channels;
    for (uint64_t i = 0; i < images; i++)
        convert_one(conversion, &table, from + i * elements, pixels,
                    (unsigned char *)to + i * elements * tsocket_dtype_bytes(conversion->dtype));
    return TSOCKET_OK;
}

int tsc_convert_shape(const struct tsocket_conversion *conversion, const struct tsocket_pick *pick, uint64_t images,
                      uint64_t pixels, struct tsc_convert_shape *shape_out)
{
    if (images > UINT32_MAX || pixels > UINT32_MAX)
        return tsi_fail(TSOCKET_EINVAL, "%" PRIu64 " pictures of %" PRIu64 " pixels; each must be below 2^32", images,
                        pixels);
    if (pick->flip != NULL && (pick->width == 0 || pixels % pick->width != 0))
        return tsi_fail(TSOCKET_EINVAL, "pick.width is %" PRIu32 ", which is no row of %" PRIu64 " pixels", pick->width,
                        pixels);
    *shape_out = (struct tsc_convert_shape){.images = (uint32_t)images,
                                            .pixels = (uint32_t)pixels,
                                            .width = pick->width,
                                            .channels = conversion->channels,
                                            .channels_first = conversion->channels_first};
    return TSOCKET_OK;
}

/* A mirrored picture, pixel by pixel. */
static void convert_flipped(const struct tsc_convert_shape *shape, const struct tsocket_pick *pick,
                            const struct tsc_convert_table *table, bool wide, const uint8_t *from, uint32_t image,
                            void *to)
{
    for (uint32_t pixel = 0; pixel < shape->pixels; pixel++) {
        const uint8_t *bytes = from + tsc_convert_from(shape, pick->index, pick->flip, image, pixel) * shape->channels;

        for (uint32_t c = 0; c < shape->channels; c++) {
            uint64_t at = tsc_convert_to(shape, image, pixel, c);

            if (wide)
                ((uint32_t *)to)[at] = table->bits[c][bytes[c]];
            else
                ((uint16_t *)to)[at] = (uint16_t)table->bits[c][bytes[c]];
        }
    }
}

int tsocket_convert_picked(const struct tsocket_conversion *conversion, const struct tsocket_pick *pick,
                           const uint8_t *from, uint64_t images, uint64_t pixels, void *to)
{
    struct tsc_convert_shape shape;
    struct tsc_convert_table table;
    int rc;

    if (conversion == NULL || pick == NULL || from == NULL || to == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_convert_picked: NULL");
    rc = tsc_convert_check(conversion);
    if (rc == TSOCKET_OK)
        rc = tsc_convert_shape(conversion, pick, images, pixels, &shape);
    if (rc != TSOCKET_OK)
        return rc;
    tsc_convert_fill(conversion, &table);
    for (uint32_t i = 0; i < shape.images; i++) {
        uint64_t elements = pixels * conversion->channels;
        uint32_t source = pick->index != NULL ? pick->index[i] : i;

        if (pick->flip != NULL && pick->flip[i] != 0)
            convert_flipped(&shape, pick, &table, conversion->dtype == TSOCKET_FLOAT32, from, i, to);
        else
            convert_one(conversion, &table, from + source * elements, pixels,
                        (unsigned char *)to + i * elements * tsocket_dtype_bytes(conversion->dtype));
    }
    return TSOCKET_OK;
}
