/* SPDX-License-Identifier: Apache-2.0 */
#include "resize.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "output.h"

enum {
    WEIGHT_BITS = 22, /* 8 of 32 bits hold the pixel, 2 the sign and what a negative lobe adds */
    ROUND = 1 << (WEIGHT_BITS - 1),
};

struct filter {
    double (*weight)(double x);
    double reach; /* 0 from here on */
};

/* Which source pixels one destination pixel is made of. */
struct taps {
    uint32_t first;
    uint32_t count;
};

/* One direction of a resize, counted from the first source pixel that the filter may see. */
struct axis {
    uint32_t origin;              /* that pixel's place in the picture */
    double from, scale;           /* the box's edge; source pixels per destination pixel */
    double reach;                 /* of the filter, in source pixels */
    uint32_t source, destination; /* pixels that the filter may see; that are made */
    uint32_t max_taps;
    struct taps *taps; /* by destination pixel */
    size_t taps_bytes; /* room */
    int32_t *weights;  /* max_taps by destination pixel, times 2^WEIGHT_BITS */
    size_t weights_bytes;
    double *exact; /* max_taps: the weights of one pixel before they are rounded */
    size_t exact_bytes;
};

struct tsp_resize {
    struct axis x, y;
    struct tsp_writer writer;
    uint8_t *rows; /* y.max_taps rows of the destination's width: source row r is in row r % max_taps */
    size_t rows_bytes;
    int32_t *sums; /* one row */
    size_t sums_bytes;
    uint8_t *row; /* one row */
    size_t row_bytes;
};

static double bilinear(double x)
{
    x = fabs(x);
    return x < 1 ? 1 - x : 0;
}

/* Keys' cubic convolution with a = -1/2. The operations and their order are Pillow's: the last bit counts. */
static double bicubic(double x)
{
    const double a = -0.5;
    x = fabs(x);
    if (x < 1)
        return ((a + 2) * x - (a + 3)) * x * x + 1;
    if (x < 2)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0;
}

static const struct filter filters[] = {
    [TSP_BILINEAR] = {bilinear, 1},
    [TSP_BICUBIC] = {bicubic, 2},
};

struct tsp_resize *tsp_resize_create(void)
{
    return calloc(1, sizeof(struct tsp_resize));
}

static void free_axis(struct axis *axis)
{
    free(axis->taps);
    free(axis->weights);
    free(axis->exact);
}

void tsp_resize_destroy(struct tsp_resize *resize)
{
    if (!resize)
        return;
    free_axis(&resize->x);
    free_axis(&resize->y);
    free(resize->rows);
    free(resize->sums);
    free(resize->row);
    free(resize);
}

/* Makes *buffer at least `bytes` long; its content is lost. */
static bool reserve(void *buffer_at, size_t *room, size_t bytes)
{
    void **buffer = buffer_at;
    if (bytes <= *room)
        return true;
    free(*buffer);
    *buffer = malloc(bytes);
    *room = *buffer ? bytes : 0;
    return *buffer != NULL;
}

/*
 * Sets the geometry: the box from .. from + length of `source` pixels becomes `destination` pixels. A clipped one is
 * treated as a picture of its own.
 */
static void set_axis(struct axis *axis, double from, double length, uint32_t source, uint32_t destination,
                     const struct tsp_view *view)
{
    axis->origin = view->clip ? (uint32_t)floor(from) : 0;
    axis->source = view->clip ? (uint32_t)ceil(from + length) - axis->origin : source;
    from -= axis->origin;
    /* Pillow takes boxes in single precision. */
    float low = (float)from, high = (float)(from + length);
    axis->from = (double)low;
    axis->scale = (double)(high - low) / destination;
    axis->reach = filters[view->filter].reach * fmax(axis->scale, 1); /* enlarging: the filter's own width */
    axis->destination = destination;
    axis->max_taps = (uint32_t)ceil(axis->reach) * 2 + 1;
}

static double centre_of(const struct axis *axis, uint32_t destination)
{
    return axis->from + (destination + 0.5) * axis->scale;
}

static struct taps find_taps(const struct axis *axis, uint32_t destination)
{
    double centre = centre_of(axis, destination);
    double low = fmax(centre - axis->reach + 0.5, 0);
    double high = fmin(centre + axis->reach + 0.5, axis->source);
    return (struct taps){(uint32_t)low, (uint32_t)high - (uint32_t)low};
}

static struct rows_or_columns {
    uint32_t first, count;
} find_needs(const struct axis *axis)
{
    struct taps first = find_taps(axis, 0), last = find_taps(axis, axis->destination - 1);
    return (struct rows_or_columns){axis->origin + first.first, last.first + last.count - first.first};
}

static void set_axes(struct axis *x, struct axis *y, const struct tsp_view *view, uint32_t width, uint32_t height)
{
    set_axis(x, view->x, view->width, width, view->out.width, view);
    set_axis(y, view->y, view->height, height, view->out.height, view);
}

struct tsp_rect tsp_resize_needs(const struct tsp_view *view, uint32_t width, uint32_t height)
{
    struct axis x, y;
    set_axes(&x, &y, view, width, height);
    struct rows_or_columns columns = find_needs(&x), rows = find_needs(&y);
    return (struct tsp_rect){columns.first, rows.first, columns.count, rows.count};
}

static int32_t round_weight(double weight)
{
    return (int32_t)(weight * (1 << WEIGHT_BITS) + (weight < 0 ? -0.5 : 0.5));
}

/* The weights of one destination pixel: they sum to 1 before they are rounded, also where the picture's edge cuts off.
 */
static void weigh(const struct axis *axis, uint32_t destination, double (*weight)(double), int32_t *weights)
{
    double centre = centre_of(axis, destination);
    double shrink = 1 / fmax(axis->scale, 1);
    struct taps taps = axis->taps[destination];
    double sum = 0;
    for (uint32_t k = 0; k < taps.count; k++) {
        axis->exact[k] = weight((k + taps.first - centre + 0.5) * shrink);
        sum += axis->exact[k];
    }
    for (uint32_t k = 0; k < taps.count; k++)
        weights[k] = round_weight(sum != 0 ? axis->exact[k] / sum : axis->exact[k]);
}

static bool prepare_axis(struct axis *axis, enum tsp_filter filter)
{
    size_t n = axis->destination, max_taps = axis->max_taps;
    if (!reserve(&axis->taps, &axis->taps_bytes, n * sizeof *axis->taps) ||
        !reserve(&axis->weights, &axis->weights_bytes, n * max_taps * sizeof *axis->weights) ||
        !reserve(&axis->exact, &axis->exact_bytes, max_taps * sizeof *axis->exact))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        axis->taps[i] = find_taps(axis, i);
        assert(axis->taps[i].count <= max_taps);
        weigh(axis, i, filters[filter].weight, axis->weights + i * max_taps);
    }
    return true;
}

static uint8_t to_pixel(int32_t sum)
{
    int32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* One source row, whose column 0 would be at `source`, to the destination's width. */
static void squeeze_row(const struct axis *x, const uint8_t *source, uint32_t left, uint8_t *to)
{
    for (uint32_t i = 0; i < x->destination; i++, to += 3) {
        const int32_t *weights = x->weights + (size_t)i * x->max_taps;
        const uint8_t *from = source + (size_t)(x->origin + x->taps[i].first - left) * 3;
        int32_t red = ROUND, green = ROUND, blue = ROUND;
        for (uint32_t k = 0; k < x->taps[i].count; k++, from += 3) {
            red += from[0] * weights[k];
            green += from[1] * weights[k];
            blue += from[2] * weights[k];
        }
        to[0] = to_pixel(red);
        to[1] = to_pixel(green);
        to[2] = to_pixel(blue);
    }
}

static void add_row(int32_t *restrict sums, const uint8_t *restrict row, int32_t weight, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sums[i] += row[i] * weight;
}

static void round_row(uint8_t *restrict row, const int32_t *restrict sums, size_t n)
{
    for (size_t i = 0; i < n; i++)
        row[i] = to_pixel(sums[i]);
}

/* Destination row `i` from the rows that are kept. */
static void blend_rows(struct tsp_resize *resize, uint32_t i)
{
    const struct axis *y = &resize->y;
    const int32_t *weights = y->weights + (size_t)i * y->max_taps;
    size_t n = (size_t)resize->x.destination * 3;
    for (size_t k = 0; k < n; k++)
        resize->sums[k] = ROUND;
    for (uint32_t k = 0; k < y->taps[i].count; k++)
        add_row(resize->sums, resize->rows + (y->taps[i].first + k) % y->max_taps * n, weights[k], n);
    round_row(resize->row, resize->sums, n);
}

static const uint8_t *source_row(const struct tsp_pixels *pixels, uint32_t y)
{
    return pixels->data + (size_t)(y - pixels->part.y) * pixels->stride;
}

static void resize_rows(struct tsp_resize *resize, const struct tsp_pixels *pixels)
{
    const struct axis *x = &resize->x, *y = &resize->y;
    uint32_t next = y->taps[0].first; /* source row to squeeze */
    for (uint32_t i = 0; i < y->destination; i++) {
        for (; next < y->taps[i].first + y->taps[i].count; next++)
            squeeze_row(x, source_row(pixels, y->origin + next), pixels->part.x,
                        resize->rows + (size_t)(next % y->max_taps) * x->destination * 3);
        blend_rows(resize, i);
        tsp_writer_row(&resize->writer, i, resize->row);
    }
}

/* Whether each destination pixel is one source pixel: then both filters have weight 1 there and 0 elsewhere. */
static bool is_copy(const struct tsp_view *view)
{
    return view->width == view->out.width && view->height == view->out.height && view->x == floor(view->x) &&
           view->y == floor(view->y);
}

static void copy_rows(struct tsp_resize *resize, const struct tsp_pixels *pixels, const struct tsp_view *view)
{
    size_t left = ((uint32_t)view->x - pixels->part.x) * (size_t)3;
    for (uint32_t i = 0; i < view->out.height; i++)
        tsp_writer_row(&resize->writer, i, source_row(pixels, (uint32_t)view->y + i) + left);
}

bool tsp_resize_draw(struct tsp_resize *resize, const struct tsp_pixels *pixels, const struct tsp_view *view)
{
    tsp_writer_init(&resize->writer, &view->out, view->flip);
    if (is_copy(view)) {
        copy_rows(resize, pixels, view);
        return true;
    }
    struct axis *x = &resize->x, *y = &resize->y;
    set_axes(x, y, view, pixels->width, pixels->height);
    size_t n = (size_t)x->destination * 3;
    if (!prepare_axis(x, view->filter) || !prepare_axis(y, view->filter) ||
        !reserve(&resize->rows, &resize->rows_bytes, n * y->max_taps) ||
        !reserve(&resize->sums, &resize->sums_bytes, n * sizeof *resize->sums) ||
        !reserve(&resize->row, &resize->row_bytes, n))
        return false;
    resize_rows(resize, pixels);
    return true;
}
