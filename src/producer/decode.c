/* SPDX-License-Identifier: Apache-2.0 */
#include "decode.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "jpeg.h"
#include "pixels.h"
#include "resize.h"

struct tsp_decoder {
    struct tsp_jpeg *jpeg;
    struct tsp_resize *resize;
    const struct tsp_encoded *encoded; /* of the last good header */
    uint32_t width, height;
    char why[TSP_JPEG_WHY_MAX];
};

/* Kinds of file are known by their first bytes, whatever their names say. */
static const struct signature {
    const char *name;
    size_t at, len;
    const char *bytes;
} signatures[] = {
    {"a PNG", 0, 8, "\x89PNG\r\n\x1a\n"},
    {"a GIF", 0, 4, "GIF8"},
    {"a BMP", 0, 2, "BM"},
    {"a WebP", 8, 4, "WEBP"},
    {"a TIFF", 0, 4, "II*\0"},
    {"a TIFF", 0, 4, "MM\0*"},
    {"a HEIF or AVIF", 4, 4, "ftyp"},
    {"a JPEG 2000", 0, 8, "\0\0\0\x0cjP  "},
    {"a JPEG XL", 0, 8, "\0\0\0\x0cJXL "},
    {"a JPEG XL", 0, 2, "\xff\x0a"},
    {"a Photoshop file", 0, 4, "8BPS"},
    {"a PGM", 0, 3, "P5\n"},
    {"a PPM", 0, 3, "P6\n"},
};

struct tsp_decoder *tsp_decoder_create(const struct tsp_limits *limits)
{
    struct tsp_decoder *decoder = calloc(1, sizeof *decoder);
    if (!decoder)
        return NULL;
    decoder->jpeg = tsp_jpeg_create(limits, decoder->why);
    decoder->resize = tsp_resize_create(tsp_kernels_best());
    if (decoder->jpeg && decoder->resize)
        return decoder;
    tsp_decoder_destroy(decoder);
    return NULL;
}

void tsp_decoder_destroy(struct tsp_decoder *decoder)
{
    if (!decoder)
        return;
    tsp_jpeg_destroy(decoder->jpeg);
    tsp_resize_destroy(decoder->resize);
    free(decoder);
}

const char *tsp_decoder_why(const struct tsp_decoder *decoder)
{
    return decoder->why;
}

static enum tsp_bad say(struct tsp_decoder *decoder, enum tsp_bad bad, const char *article, const char *what)
{
    snprintf(decoder->why, sizeof decoder->why, "%s%s", article, what);
    return bad;
}

static bool starts_as(const struct tsp_encoded *encoded, const struct signature *signature)
{
    return encoded->len >= signature->at + signature->len &&
           memcmp(encoded->data + signature->at, signature->bytes, signature->len) == 0;
}

/* Names what is not a JPEG. A PNG cut short is told apart: that file wants copying again, not converting. */
static enum tsp_bad name_other_kind(struct tsp_decoder *decoder, const struct tsp_encoded *encoded)
{
    if (starts_as(encoded, &signatures[0]) && !memmem(encoded->data, encoded->len, "IEND", 4))
        return say(decoder, TSP_TRUNCATED, "", "a PNG without its end");
    for (size_t i = 0; i < sizeof signatures / sizeof signatures[0]; i++)
        if (starts_as(encoded, &signatures[i]))
            return say(decoder, TSP_UNSUPPORTED, "is not a JPEG but ", signatures[i].name);
    return say(decoder, TSP_NOT_IMAGE, "", "its first bytes are those of no kind of picture");
}

static enum tsp_bad look_at_type(struct tsp_decoder *decoder, const struct tsp_encoded *encoded)
{
    const uint8_t *data = encoded->data;
    if (encoded->len == 0)
        return say(decoder, TSP_EMPTY, "", "the file is empty");
    if (encoded->len < 2 || data[0] != 0xff || data[1] != 0xd8)
        return name_other_kind(decoder, encoded);
    if (encoded->len > 2 && data[2] != 0xff)
        return say(decoder, TSP_CORRUPT, "", "starts as a JPEG, but no segment follows");
    return TSP_GOOD;
}

enum tsp_bad tsp_decoder_header(struct tsp_decoder *decoder, const struct tsp_encoded *encoded, uint32_t *width_out,
                                uint32_t *height_out)
{
    decoder->encoded = NULL;
    if (encoded->raw_width > 0) {
        decoder->width = encoded->raw_width;
        decoder->height = encoded->raw_height;
    } else {
        enum tsp_bad bad = look_at_type(decoder, encoded);
        if (bad == TSP_GOOD)
            bad = tsp_jpeg_header(decoder->jpeg, encoded->data, encoded->len, &decoder->width, &decoder->height);
        if (bad != TSP_GOOD)
            return bad;
    }
    decoder->encoded = encoded;
    *width_out = decoder->width;
    *height_out = decoder->height;
    return TSP_GOOD;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* The smallest rectangle that holds what all views need. */
static struct tsp_rect find_needs(const struct tsp_decoder *decoder, const struct tsp_view *views, uint32_t n)
{
    struct tsp_rect all = tsp_resize_needs(&views[0], decoder->width, decoder->height);
    for (uint32_t i = 1; i < n; i++) {
        struct tsp_rect one = tsp_resize_needs(&views[i], decoder->width, decoder->height);
        uint32_t right = larger(all.x + all.width, one.x + one.width);
        uint32_t bottom = larger(all.y + all.height, one.y + one.height);
        all.x = smaller(all.x, one.x);
        all.y = smaller(all.y, one.y);
        all.width = right - all.x;
        all.height = bottom - all.y;
    }
    return all;
}

static enum tsp_bad decode(struct tsp_decoder *decoder, const struct tsp_rect *wanted, struct tsp_pixels *pixels_out)
{
    const struct tsp_encoded *encoded = decoder->encoded;
    if (encoded->raw_width == 0)
        return tsp_jpeg_decode(decoder->jpeg, wanted, pixels_out);
    *pixels_out = (struct tsp_pixels){
        .width = decoder->width,
        .height = decoder->height,
        .part = {0, 0, decoder->width, decoder->height},
        .data = encoded->data,
        .stride = (size_t)decoder->width * 3,
    };
    return TSP_GOOD;
}

enum tsp_bad tsp_decoder_draw(struct tsp_decoder *decoder, const struct tsp_view *views, uint32_t n)
{
    assert(decoder->encoded && n > 0);
    struct tsp_rect wanted = find_needs(decoder, views, n);
    struct tsp_pixels pixels;
    enum tsp_bad bad = decode(decoder, &wanted, &pixels);
    for (uint32_t i = 0; i < n && bad == TSP_GOOD; i++)
        if (!tsp_resize_draw(decoder->resize, &pixels, &views[i]))
            bad = say(decoder, TSP_STOP, "", "no memory to resize it");
    decoder->encoded = NULL;
    return bad;
}
