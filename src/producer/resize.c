/* SPDX-License-Identifier: Apache-2.0 */
#include "resize.h"

#include <math.h>
#include <string.h>

#include "axis.h"
#include "output.h"

struct tsp_resize {
    const struct tsp_kernels *kernels;
    struct tsp_axis x, y;
    struct tsp_writer writer;
    uint32_t kept;            /* rows of `rows`: source row r is in row r % kept */
    size_t stride;            /* of `rows`, with what kernels touch behind a row */
    struct tsp_buffer rows;   /* as wide as the destination */
    struct tsp_buffer window; /* pointers to the rows that one destination row is made of */
    struct tsp_buffer line;   /* one destination row */
    struct tsp_buffer ends;   /* source rows with room behind them, for those where the memory ends */
};

struct tsp_resize *tsp_resize_create(const struct tsp_kernels *kernels)
{
    struct tsp_resize *resize = calloc(1, sizeof *resize);
    if (resize)
        resize->kernels = kernels;
    return resize;
}

void tsp_resize_destroy(struct tsp_resize *resize)
{
    if (!resize)
        return;
    tsp_axis_fini(&resize->x);
    tsp_axis_fini(&resize->y);
    free(resize->rows.data);
    free(resize->window.data);
    free(resize->line.data);
    free(resize->ends.data);
    free(resize);
}

static void set_axes(struct tsp_axis *x, struct tsp_axis *y, const struct tsp_view *view, uint32_t width,
                     uint32_t height)
{
    uint32_t across = view->turn ? view->out.height : view->out.width;
    uint32_t down = view->turn ? view->out.width : view->out.height;
    tsp_axis_set(x, view->x, view->width, width, across, view->filter, view->clip);
    tsp_axis_set(y, view->y, view->height, height, down, view->filter, view->clip);
}

struct tsp_rect tsp_resize_needs(const struct tsp_view *view, uint32_t width, uint32_t height)
{
    struct tsp_axis x = {0}, y = {0};
    set_axes(&x, &y, view, width, height);
    return (struct tsp_rect){x.start, y.start, x.needed, y.needed};
}

static const uint8_t *pixel_at(const struct tsp_pixels *pixels, uint32_t x, uint32_t y)
{
    return pixels->data + (size_t)(y - pixels->part.y) * pixels->stride + (size_t)(x - pixels->part.x) * 3;
}

/* ---- pixel for pixel ---- */

/* Whether each destination pixel is one source pixel: then both filters have weight 1 there and 0 elsewhere. */
static bool is_copy(const struct tsp_view *view)
{
    return !view->flip && !view->flop && !view->turn && view->width == view->out.width &&
           view->height == view->out.height && view->x == floor(view->x) && view->y == floor(view->y);
}

static void copy_rows(struct tsp_resize *resize, const struct tsp_pixels *pixels, const struct tsp_view *view)
{
    for (uint32_t i = 0; i < view->out.height; i++)
        tsp_writer_line(&resize->writer, i, pixel_at(pixels, (uint32_t)view->x, (uint32_t)view->y + i));
}

/* ---- two passes ---- */

static bool reserve(struct tsp_resize *resize)
{
    const struct tsp_axis *x = &resize->x, *y = &resize->y;
    resize->kept = (uint32_t)y->weights.max_taps + TSP_SQUEEZE_ROWS - 1; /* some come before their time */
    resize->stride = ((size_t)x->destination + TSP_SQUEEZE_PIXELS) * 3 + TSP_BEYOND;
    return tsp_buffer_reserve(&resize->rows, resize->stride * resize->kept) &&
           tsp_buffer_reserve(&resize->window, y->weights.max_taps * sizeof(uint8_t *)) &&
           tsp_buffer_reserve(&resize->line, resize->stride) &&
           tsp_buffer_reserve(&resize->ends, TSP_SQUEEZE_ROWS * ((size_t)x->needed * 3 + TSP_BEYOND));
}

static uint8_t *kept_row(const struct tsp_resize *resize, uint32_t row)
{
    return (uint8_t *)resize->rows.data + row % resize->kept * resize->stride;
}

/* Source row `row` of those that are needed, where kernels may read beyond it; copy `number` is free. */
static const uint8_t *source_row(const struct tsp_resize *resize, const struct tsp_pixels *pixels, uint32_t row,
                                 uint32_t number)
{
    size_t bytes = (size_t)resize->x.needed * 3;
    const uint8_t *from = pixel_at(pixels, resize->x.start, resize->y.start + row);
    const uint8_t *behind = pixels->data + (pixels->part.height - 1) * pixels->stride + (size_t)pixels->part.width * 3;
    if ((size_t)(behind - from) >= bytes + TSP_BEYOND)
        return from;
    uint8_t *copy = (uint8_t *)resize->ends.data + number * (bytes + TSP_BEYOND);
    memcpy(copy, from, bytes);
    memset(copy + bytes, 0, TSP_BEYOND);
    return copy;
}

/* Squeezes the rows from `first` on; behind the last one, that one again. */
static void squeeze_rows(const struct tsp_resize *resize, const struct tsp_pixels *pixels, uint32_t first)
{
    const uint8_t *from[TSP_SQUEEZE_ROWS];
    uint8_t *to[TSP_SQUEEZE_ROWS];
    for (uint32_t r = 0; r < TSP_SQUEEZE_ROWS; r++) {
        uint32_t last = resize->y.needed - 1;
        from[r] = source_row(resize, pixels, first + r < last ? first + r : last, r);
        to[r] = kept_row(resize, first + r);
    }
    uint32_t n = (resize->x.destination + TSP_SQUEEZE_PIXELS - 1) / TSP_SQUEEZE_PIXELS * TSP_SQUEEZE_PIXELS;
    resize->kernels->squeeze(&resize->x.weights, n, from, to);
}

/* Makes destination row `i`, which becomes line `line` of the output. */
static void blend_line(struct tsp_resize *resize, uint32_t i, uint32_t line)
{
    const struct tsp_taps taps = resize->y.weights.taps[i];
    const uint8_t **window = resize->window.data;
    uint8_t *place = tsp_writer_place(&resize->writer, line);
    for (uint32_t k = 0; k < taps.count; k++)
        window[k] = kept_row(resize, taps.first + k);
    resize->kernels->blend(&resize->y.weights, i, window, place ? place : resize->line.data,
                           (size_t)resize->x.destination * 3);
    if (!place)
        tsp_writer_line(&resize->writer, line, resize->line.data);
}

static void resize_rows(struct tsp_resize *resize, const struct tsp_pixels *pixels, bool flop)
{
    const struct tsp_axis *y = &resize->y;
    uint32_t next = 0; /* source row to squeeze */
    for (uint32_t i = 0; i < y->destination; i++) {
        const struct tsp_taps taps = y->weights.taps[i];
        for (; next < taps.first + taps.count; next += TSP_SQUEEZE_ROWS)
            squeeze_rows(resize, pixels, next);
        blend_line(resize, i, flop ? y->destination - 1 - i : i);
    }
}

bool tsp_resize_draw(struct tsp_resize *resize, const struct tsp_pixels *pixels, const struct tsp_view *view)
{
    tsp_writer_init(&resize->writer, &view->out, view->turn);
    if (is_copy(view)) {
        copy_rows(resize, pixels, view);
        return true;
    }
    set_axes(&resize->x, &resize->y, view, pixels->width, pixels->height);
    if (!tsp_axis_prepare(&resize->x, view->flip) || !tsp_axis_prepare(&resize->y, false) || !reserve(resize))
        return false;
    resize_rows(resize, pixels, view->flop);
    return true;
}
