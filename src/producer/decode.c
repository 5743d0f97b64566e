/* SPDX-License-Identifier: Apache-2.0 */
#include "decode.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exif.h"
#include "jpeg.h"
#include "png.h"
#include "resize.h"

enum kind {
    RAW,
    JPEG,
    PNG,
};

struct tsp_decoder {
    struct tsp_jpeg *jpeg;
    struct tsp_png *png;
    struct tsp_resize *resize;
    const struct tsp_encoded *encoded; /* of the last good header */
    enum kind kind;
    uint32_t width, height; /* as stored */
    uint32_t orientation;
    char why[TSP_WHY_MAX];
};

/* Kinds of file are known by their first bytes, whatever their names say. */
struct signature {
    const char *name;
    size_t at, len;
    const char *bytes;
};

static const struct signature png = {"a PNG", 0, 8, "\x89PNG\r\n\x1a\n"};

static const struct signature unsupported[] = {
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
    decoder->png = tsp_png_create(limits, decoder->why);
    decoder->resize = tsp_resize_create(tsp_kernels_best());
    if (decoder->jpeg && decoder->png && decoder->resize)
        return decoder;
    tsp_decoder_destroy(decoder);
    return NULL;
}

void tsp_decoder_destroy(struct tsp_decoder *decoder)
{
    if (!decoder)
        return;
    tsp_jpeg_destroy(decoder->jpeg);
    tsp_png_destroy(decoder->png);
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

/* Names what is neither a JPEG nor a PNG. */
static enum tsp_bad name_other_kind(struct tsp_decoder *decoder, const struct tsp_encoded *encoded)
{
    for (size_t i = 0; i < sizeof unsupported / sizeof unsupported[0]; i++)
        if (starts_as(encoded, &unsupported[i]))
            return say(decoder, TSP_UNSUPPORTED, "is neither a JPEG nor a PNG but ", unsupported[i].name);
    return say(decoder, TSP_NOT_IMAGE, "", "its first bytes are those of no kind of picture");
}

static enum tsp_bad find_kind(struct tsp_decoder *decoder, const struct tsp_encoded *encoded)
{
    const uint8_t *data = encoded->data;
    if (encoded->raw_width > 0) {
        decoder->kind = RAW;
        return TSP_GOOD;
    }
    if (encoded->len == 0)
        return say(decoder, TSP_EMPTY, "", "the file is empty");
    if (starts_as(encoded, &png)) {
        decoder->kind = PNG;
        return TSP_GOOD;
    }
    if (encoded->len < 2 || data[0] != 0xff || data[1] != 0xd8)
        return name_other_kind(decoder, encoded);
    if (encoded->len > 2 && data[2] != 0xff)
        return say(decoder, TSP_CORRUPT, "", "starts as a JPEG, but no segment follows");
    decoder->kind = JPEG;
    return TSP_GOOD;
}

static enum tsp_bad read_header(struct tsp_decoder *decoder, const struct tsp_encoded *encoded)
{
    enum tsp_bad bad = TSP_GOOD;
    decoder->orientation = encoded->raw_orientation > 0 ? encoded->raw_orientation : 1;
    decoder->width = encoded->raw_width;
    decoder->height = encoded->raw_height;
    if (decoder->kind == JPEG) {
        bad = tsp_jpeg_header(decoder->jpeg, encoded->data, encoded->len, &decoder->width, &decoder->height);
        if (bad == TSP_GOOD)
            decoder->orientation = tsp_jpeg_orientation(decoder->jpeg);
    } else if (decoder->kind == PNG) {
        bad = tsp_png_header(decoder->png, encoded->data, encoded->len, &decoder->width, &decoder->height);
        if (bad == TSP_GOOD)
            decoder->orientation = tsp_png_orientation(decoder->png);
    }
    return bad;
}

enum tsp_bad tsp_decoder_header(struct tsp_decoder *decoder, const struct tsp_encoded *encoded, bool upright,
                                uint32_t *width_out, uint32_t *height_out)
{
    decoder->encoded = NULL;
    enum tsp_bad bad = find_kind(decoder, encoded);
    if (bad == TSP_GOOD)
        bad = read_header(decoder, encoded);
    if (bad != TSP_GOOD)
        return bad;
    if (!upright)
        decoder->orientation = 1;
    bool swaps = tsp_exif_swaps(decoder->orientation);
    decoder->encoded = encoded;
    *width_out = swaps ? decoder->height : decoder->width;
    *height_out = swaps ? decoder->width : decoder->height;
    return TSP_GOOD;
}

struct tsp_storage tsp_decoder_storage(const struct tsp_decoder *decoder)
{
    assert(decoder->encoded);
    struct tsp_storage storage = {.format = "pixels", .colours = "RGB", .turned = decoder->orientation > 1};
    if (decoder->kind == JPEG) {
        storage.format = tsp_jpeg_format(decoder->jpeg);
        storage.colours = tsp_jpeg_colours(decoder->jpeg);
    } else if (decoder->kind == PNG) {
        storage.format = tsp_png_format(decoder->png);
        storage.colours = tsp_png_colours(decoder->png);
    }
    return storage;
}

static uint32_t smaller(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

static uint32_t larger(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

/* By how much a view may be decoded smaller and still not be enlarged. */
static uint32_t find_reduction(const struct tsp_view *view)
{
    uint32_t across = view->turn ? view->out.height : view->out.width;
    uint32_t down = view->turn ? view->out.width : view->out.height;
    uint32_t reduce = 8;
    while (reduce > 1 && (view->width < (double)across * reduce || view->height < (double)down * reduce))
        reduce /= 2;
    return view->fast ? reduce : 1;
}

static uint32_t find_common_reduction(const struct tsp_decoder *decoder, const struct tsp_view *views, uint32_t n)
{
    uint32_t reduce = decoder->kind == JPEG ? 8 : 1;
    for (uint32_t i = 0; i < n; i++)
        reduce = smaller(reduce, find_reduction(&views[i]));
    return reduce;
}

static void reduce_view(struct tsp_view *view, uint32_t reduce)
{
    view->x /= reduce;
    view->y /= reduce;
    view->width /= reduce;
    view->height /= reduce;
}

static uint32_t reduced(uint32_t side, uint32_t reduce)
{
    return (side + reduce - 1) / reduce;
}

/* The smallest rectangle that holds what all views need of a picture of width x height. */
static struct tsp_rect find_needs(const struct tsp_view *views, uint32_t n, uint32_t width, uint32_t height)
{
    struct tsp_rect all = tsp_resize_needs(&views[0], width, height);
    for (uint32_t i = 1; i < n; i++) {
        struct tsp_rect one = tsp_resize_needs(&views[i], width, height);
        uint32_t right = larger(all.x + all.width, one.x + one.width);
        uint32_t bottom = larger(all.y + all.height, one.y + one.height);
        all.x = smaller(all.x, one.x);
        all.y = smaller(all.y, one.y);
        all.width = right - all.x;
        all.height = bottom - all.y;
    }
    return all;
}

static enum tsp_bad decode(struct tsp_decoder *decoder, const struct tsp_rect *wanted, uint32_t reduce,
                           struct tsp_pixels *pixels_out)
{
    if (decoder->kind == JPEG)
        return tsp_jpeg_decode(decoder->jpeg, wanted, reduce, pixels_out);
    if (decoder->kind == PNG)
        return tsp_png_decode(decoder->png, wanted, pixels_out);
    *pixels_out = (struct tsp_pixels){
        .width = decoder->width,
        .height = decoder->height,
        .part = {0, 0, decoder->width, decoder->height},
        .data = decoder->encoded->data,
        .stride = (size_t)decoder->width * 3,
    };
    return TSP_GOOD;
}

/* The views as boxes of the stored picture, decoded as much smaller as all of them allow. Returns that. */
static uint32_t restate_views(const struct tsp_decoder *decoder, const struct tsp_view *views, uint32_t n,
                              struct tsp_view *stored)
{
    for (uint32_t i = 0; i < n; i++) {
        stored[i] = views[i];
        tsp_exif_turn(decoder->orientation, decoder->width, decoder->height, &stored[i]);
    }
    uint32_t reduce = find_common_reduction(decoder, stored, n);
    for (uint32_t i = 0; i < n; i++)
        reduce_view(&stored[i], reduce);
    return reduce;
}

enum tsp_bad tsp_decoder_draw(struct tsp_decoder *decoder, const struct tsp_view *views, uint32_t n)
{
    assert(decoder->encoded && n > 0 && n <= TSP_VIEWS_MAX);
    struct tsp_view stored[TSP_VIEWS_MAX];
    struct tsp_pixels pixels;
    uint32_t reduce = restate_views(decoder, views, n, stored);
    struct tsp_rect wanted = find_needs(stored, n, reduced(decoder->width, reduce), reduced(decoder->height, reduce));
    enum tsp_bad bad = decode(decoder, &wanted, reduce, &pixels);
    for (uint32_t i = 0; i < n && bad == TSP_GOOD; i++)
        if (!tsp_resize_draw(decoder->resize, &pixels, &stored[i]))
            bad = say(decoder, TSP_STOP, "", "no memory to resize it");
    decoder->encoded = NULL;
    return bad;
}

enum tsp_bad tsp_decoder_whole(struct tsp_decoder *decoder, struct tsp_pixels *pixels_out, uint32_t *orientation_out)
{
    assert(decoder->encoded);
    const struct tsp_rect all = {0, 0, decoder->width, decoder->height};
    enum tsp_bad bad = decode(decoder, &all, 1, pixels_out);
    *orientation_out = decoder->orientation;
    decoder->encoded = NULL;
    return bad;
}
