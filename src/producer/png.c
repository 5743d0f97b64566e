/* SPDX-License-Identifier: Apache-2.0 */
#include "png.h"

#include <inttypes.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

#include "buffer.h"
#include "exif.h"

struct tsp_png {
    png_structp reader; /* NULL: none is open */
    png_infop info;
    jmp_buf escape; /* set while libpng runs */
    struct tsp_limits limits;
    char *why;
    const uint8_t *data;
    size_t len, at;
    bool ended;     /* libpng has asked for more than the file has */
    bool no_memory; /* an allocation has failed */
    enum tsp_bad bad;
    struct tsp_buffer pixels;
    struct tsp_buffer row; /* or the pointers to all rows */
};

/* ---- what libpng calls ---- */

static _Noreturn void on_error(png_structp reader, png_const_charp message)
{
    struct tsp_png *png = png_get_error_ptr(reader);
    png->bad = png->no_memory ? TSP_STOP : png->ended ? TSP_TRUNCATED : TSP_CORRUPT;
    if (png->ended)
        snprintf(png->why, TSP_WHY_MAX, "the file ends too early, after %zu bytes", png->len);
    else
        snprintf(png->why, TSP_WHY_MAX, "%s", message);
    longjmp(png->escape, 1);
}

static void on_warning(png_structp reader, png_const_charp message)
{
    (void)reader;
    (void)message; /* of parts that hold no pixels */
}

static void on_read(png_structp reader, png_bytep to, size_t bytes)
{
    struct tsp_png *png = png_get_io_ptr(reader);
    if (bytes > png->len - png->at) {
        png->ended = true;
        png_error(reader, "end of file");
    }
    memcpy(to, png->data + png->at, bytes);
    png->at += bytes;
}

static png_voidp on_allocate(png_structp reader, png_alloc_size_t bytes)
{
    struct tsp_png *png = png_get_mem_ptr(reader);
    void *memory = malloc(bytes);
    png->no_memory = png->no_memory || !memory;
    return memory;
}

static void on_free(png_structp reader, png_voidp memory)
{
    (void)reader;
    free(memory);
}

/* ---- one image ---- */

struct tsp_png *tsp_png_create(const struct tsp_limits *limits, char *why)
{
    struct tsp_png *png = calloc(1, sizeof *png);
    if (!png)
        return NULL;
    png->limits = *limits;
    png->why = why;
    return png;
}

static void close_image(struct tsp_png *png)
{
    if (png->reader)
        png_destroy_read_struct(&png->reader, &png->info, NULL);
}

void tsp_png_destroy(struct tsp_png *png)
{
    if (!png)
        return;
    close_image(png);
    free(png->pixels.data);
    free(png->row.data);
    free(png);
}

/* Of the parts that a file may have besides its pixels, only EXIF is read. False: no memory. */
static bool open_image(struct tsp_png *png, const uint8_t *data, size_t len)
{
    png->data = data;
    png->len = len;
    png->at = 0;
    png->ended = false;
    png->no_memory = false;
    png->reader = png_create_read_struct_2(PNG_LIBPNG_VER_STRING, png, on_error, on_warning, png, on_allocate, on_free);
    if (!png->reader)
        return false;
    png->info = png_create_info_struct(png->reader);
    if (!png->info)
        return false;
    png_set_read_fn(png->reader, png, on_read);
    png_set_user_limits(png->reader, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* ours are checked below */
    png_set_keep_unknown_chunks(png->reader, PNG_HANDLE_CHUNK_NEVER, NULL, -1);
    png_set_keep_unknown_chunks(png->reader, PNG_HANDLE_CHUNK_AS_DEFAULT, (png_const_bytep) "eXIf", 1);
    return true;
}

enum tsp_bad tsp_png_header(struct tsp_png *png, const uint8_t *data, size_t len, uint32_t *width_out,
                            uint32_t *height_out)
{
    close_image(png);
    if (setjmp(png->escape))
        return png->bad;
    if (!open_image(png, data, len)) {
        snprintf(png->why, TSP_WHY_MAX, "no memory to read it");
        return TSP_STOP;
    }
    png_read_info(png->reader, png->info);
    uint32_t width = png_get_image_width(png->reader, png->info);
    uint32_t height = png_get_image_height(png->reader, png->info);
    if ((uint64_t)width * height > png->limits.max_pixels) {
        snprintf(png->why, TSP_WHY_MAX, "%u x %u pixels, more than the limit of %" PRIu64, width, height,
                 png->limits.max_pixels);
        return TSP_TOO_LARGE;
    }
    *width_out = width;
    *height_out = height;
    return TSP_GOOD;
}

uint32_t tsp_png_orientation(struct tsp_png *png)
{
    png_bytep exif;
    png_uint_32 len;
    if (png_get_eXIf_1(png->reader, png->info, &len, &exif) == 0)
        return 1;
    return tsp_exif_orientation(exif, len);
}

const char *tsp_png_format(const struct tsp_png *png)
{
    bool interlaced = png_get_interlace_type(png->reader, png->info) != PNG_INTERLACE_NONE;
    return interlaced ? "interlaced PNG" : "PNG";
}

const char *tsp_png_colours(const struct tsp_png *png)
{
    switch (png_get_color_type(png->reader, png->info)) {
    case PNG_COLOR_TYPE_GRAY:
        return "grey";
    case PNG_COLOR_TYPE_GRAY_ALPHA:
        return "grey with alpha";
    case PNG_COLOR_TYPE_PALETTE:
        return "palette";
    case PNG_COLOR_TYPE_RGB_ALPHA:
        return "RGB with alpha";
    default:
        return "RGB";
    }
}

/* Whatever the file holds, rows come out as RGB of 8 bits. */
static void ask_for_rgb(struct tsp_png *png)
{
    png_set_expand(png->reader);
    png_set_strip_16(png->reader);
    png_set_strip_alpha(png->reader);
    png_set_gray_to_rgb(png->reader);
}

static bool has_end(const struct tsp_png *png)
{
    static const char end[4] = "IEND";
    return png->len >= 12 && memcmp(png->data + png->len - 8, end, sizeof end) == 0;
}

/* Rows come from the top: those above `wanted` are decoded, too, and forgotten. */
static void read_rows(struct tsp_png *png, const struct tsp_rect *wanted, uint32_t height)
{
    uint8_t *row = png->row.data;
    size_t bytes = (size_t)wanted->width * 3;
    uint32_t bottom = wanted->y + wanted->height;
    for (uint32_t y = 0; y < (has_end(png) ? bottom : height); y++) {
        png_read_row(png->reader, row, NULL);
        if (y >= wanted->y && y < bottom)
            memcpy((uint8_t *)png->pixels.data + (y - wanted->y) * bytes, row + (size_t)wanted->x * 3, bytes);
    }
}

/* An interlaced picture is only there when all of it is. */
static void read_interlaced(struct tsp_png *png, uint32_t width, uint32_t height)
{
    png_bytep *rows = png->row.data;
    for (uint32_t y = 0; y < height; y++)
        rows[y] = (uint8_t *)png->pixels.data + (size_t)y * width * 3;
    png_read_image(png->reader, rows);
}

enum tsp_bad tsp_png_decode(struct tsp_png *png, const struct tsp_rect *wanted, struct tsp_pixels *pixels_out)
{
    if (setjmp(png->escape))
        return png->bad;
    uint32_t width = png_get_image_width(png->reader, png->info);
    uint32_t height = png_get_image_height(png->reader, png->info);
    bool interlaced = png_get_interlace_type(png->reader, png->info) != PNG_INTERLACE_NONE;
    struct tsp_rect part = interlaced ? (struct tsp_rect){0, 0, width, height} : *wanted;
    size_t row_bytes = interlaced ? height * sizeof(png_bytep) : (size_t)width * 3;
    if (!tsp_buffer_reserve(&png->pixels, (size_t)part.width * part.height * 3) ||
        !tsp_buffer_reserve(&png->row, row_bytes)) {
        snprintf(png->why, TSP_WHY_MAX, "no memory for %u x %u pixels", part.width, part.height);
        return TSP_STOP;
    }
    ask_for_rgb(png);
    png_set_interlace_handling(png->reader);
    png_read_update_info(png->reader, png->info);
    if (interlaced)
        read_interlaced(png, width, height);
    else
        read_rows(png, wanted, height);
    *pixels_out = (struct tsp_pixels){
        .width = width,
        .height = height,
        .part = part,
        .data = png->pixels.data,
        .stride = (size_t)part.width * 3,
    };
    return TSP_GOOD;
}

const char *tsp_png_library(void)
{
    return png_get_libpng_ver(NULL);
}
