/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <string.h>

/* Where one line's elements lie: its first one, and the way from it to the others. */
struct line {
    size_t pixels;
    size_t first; /* in elements */
    struct tsi_norm_steps steps;
};

/* The norm of the picture before is mostly good for this one. */
static void set_norm(struct tsi_norm *norm, const struct tsp_output *out)
{
    if (norm->dtype == out->dtype && memcmp(norm->mean, out->mean, sizeof out->mean) == 0 &&
        memcmp(norm->std, out->std, sizeof out->std) == 0)
        return;
    tsi_norm_init(norm, out->dtype, 3, out->mean, out->std);
}

void tsp_writer_init(struct tsp_writer *writer, const struct tsp_output *out, bool columns)
{
    writer->out = *out;
    writer->columns = columns;
    if (out->dtype != TSOCKET_UINT8)
        set_norm(&writer->norm, out);
}

static struct line find_line(const struct tsp_writer *writer, uint32_t i)
{
    const struct tsp_output *out = &writer->out;
    size_t pixel = out->layout == TSP_NHWC ? 3 : 1;
    size_t row = out->width * pixel;
    return (struct line){
        .pixels = writer->columns ? out->height : out->width,
        .first = i * (writer->columns ? pixel : row),
        .steps.pixel = (ptrdiff_t)(writer->columns ? row : pixel),
        .steps.channel = out->layout == TSP_NHWC ? 1 : (ptrdiff_t)out->width * out->height,
    };
}

static void write_bytes(const struct tsp_writer *writer, const struct line *line, const uint8_t *rgb)
{
    for (int c = 0; c < 3; c++) {
        uint8_t *to = (uint8_t *)writer->out.data + line->first + c * line->steps.channel;
        for (size_t x = 0; x < line->pixels; x++, to += line->steps.pixel)
            *to = rgb[x * 3 + (size_t)c];
    }
}

static void write_floats(const struct tsp_writer *writer, const struct line *line, const uint8_t *rgb)
{
    uint8_t *to = (uint8_t *)writer->out.data + line->first * tsocket_dtype_bytes(writer->out.dtype);
    tsi_norm_write(&writer->norm, rgb, line->pixels, to, line->steps);
}

uint8_t *tsp_writer_place(const struct tsp_writer *writer, uint32_t i)
{
    if (writer->out.dtype != TSOCKET_UINT8 || writer->out.layout != TSP_NHWC || writer->columns)
        return NULL;
    return (uint8_t *)writer->out.data + (size_t)i * writer->out.width * 3;
}

void tsp_writer_line(const struct tsp_writer *writer, uint32_t i, const uint8_t *rgb)
{
    struct line line = find_line(writer, i);
    uint8_t *place = tsp_writer_place(writer, i);
    if (place)
        memcpy(place, rgb, line.pixels * 3);
    else if (writer->out.dtype == TSOCKET_UINT8)
        write_bytes(writer, &line, rgb);
    else
        write_floats(writer, &line, rgb);
}
