/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <string.h>

/* Where one row's elements lie: its first pixel, the way to the next pixel and to the next channel, in elements. */
struct row {
    size_t first;
    ptrdiff_t pixel_step;
    size_t channel_step;
};

void tsp_writer_init(struct tsp_writer *writer, const struct tsp_output *out, bool flip)
{
    writer->out = *out;
    writer->flip = flip;
    if (out->dtype == TSOCKET_UINT8)
        return;
    /* The divisions in this order and in float, so that the bits are those of ToTensor and Normalize. */
    for (uint32_t c = 0; c < 3; c++)
        for (uint32_t v = 0; v < 256; v++)
            writer->values[c][v] = ((float)v / 255.0f - out->mean[c]) / out->std[c];
}

static struct row find_row(const struct tsp_writer *writer, uint32_t y)
{
    const struct tsp_output *out = &writer->out;
    size_t width = out->width;
    bool nhwc = out->layout == TSP_NHWC;
    size_t step = nhwc ? 3 : 1;
    return (struct row){
        .first = (y * width + (writer->flip ? width - 1 : 0)) * step,
        .pixel_step = writer->flip ? -(ptrdiff_t)step : (ptrdiff_t)step,
        .channel_step = nhwc ? 1 : width * out->height,
    };
}

static void write_uint8(const struct tsp_writer *writer, const struct row *row, const uint8_t *rgb)
{
    uint8_t *to = writer->out.data;
    ptrdiff_t at = (ptrdiff_t)row->first;
    for (uint32_t x = 0; x < writer->out.width; x++, rgb += 3, at += row->pixel_step)
        for (size_t c = 0; c < 3; c++)
            to[(size_t)at + c * row->channel_step] = rgb[c];
}

static void write_float32(const struct tsp_writer *writer, const struct row *row, const uint8_t *rgb)
{
    float *to = writer->out.data;
    ptrdiff_t at = (ptrdiff_t)row->first;
    for (uint32_t x = 0; x < writer->out.width; x++, rgb += 3, at += row->pixel_step)
        for (size_t c = 0; c < 3; c++)
            to[(size_t)at + c * row->channel_step] = writer->values[c][rgb[c]];
}

void tsp_writer_row(const struct tsp_writer *writer, uint32_t y, const uint8_t *rgb)
{
    struct row row = find_row(writer, y);
    if (writer->out.dtype == TSOCKET_FLOAT32)
        write_float32(writer, &row, rgb);
    else if (writer->out.layout == TSP_NHWC && !writer->flip)
        memcpy((uint8_t *)writer->out.data + row.first, rgb, (size_t)writer->out.width * 3);
    else
        write_uint8(writer, &row, rgb);
}
