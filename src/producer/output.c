/* SPDX-License-Identifier: Apache-2.0 */
#include "output.h"

#include <string.h>

/* Where one line's elements lie: its first, the way to the next pixel and to the next channel, in elements. */
struct line {
    size_t pixels;
    size_t first;
    size_t pixel_step;
    size_t channel_step;
};

/* The values of the picture before are mostly good for this one. */
static void set_values(struct tsp_writer *writer, const float mean[3], const float std[3])
{
    if (memcmp(writer->mean, mean, sizeof writer->mean) == 0 && memcmp(writer->std, std, sizeof writer->std) == 0)
        return;
    memcpy(writer->mean, mean, sizeof writer->mean);
    memcpy(writer->std, std, sizeof writer->std);
    /* The divisions in this order and in float, so that the bits are those of ToTensor and Normalize. */
    for (uint32_t c = 0; c < 3; c++)
        for (uint32_t v = 0; v < 256; v++)
            writer->values[c][v] = ((float)v / 255.0f - mean[c]) / std[c];
}

void tsp_writer_init(struct tsp_writer *writer, const struct tsp_output *out, bool columns)
{
    writer->out = *out;
    writer->columns = columns;
    if (out->dtype == TSOCKET_FLOAT32)
        set_values(writer, out->mean, out->std);
}

static struct line find_line(const struct tsp_writer *writer, uint32_t i)
{
    const struct tsp_output *out = &writer->out;
    size_t pixel = out->layout == TSP_NHWC ? 3 : 1;
    size_t row = out->width * pixel;
    return (struct line){
        .pixels = writer->columns ? out->height : out->width,
        .first = i * (writer->columns ? pixel : row),
        .pixel_step = writer->columns ? row : pixel,
        .channel_step = out->layout == TSP_NHWC ? 1 : (size_t)out->width * out->height,
    };
}

static void write_uint8(const struct tsp_writer *writer, const struct line *line, const uint8_t *rgb)
{
    for (size_t c = 0; c < 3; c++) {
        uint8_t *to = (uint8_t *)writer->out.data + line->first + c * line->channel_step;
        for (size_t x = 0; x < line->pixels; x++)
            to[x * line->pixel_step] = rgb[x * 3 + c];
    }
}

/* One channel of a line whose pixels lie side by side, as they do in most: eight at once, for the loop costs as much.
 */
static void look_up(float *restrict to, const uint8_t *restrict rgb, const float *restrict values, size_t pixels)
{
    enum {
        AT_ONCE = 8
    };
    size_t x = 0;
    for (; x + AT_ONCE <= pixels; x += AT_ONCE, to += AT_ONCE, rgb += 3 * AT_ONCE)
        for (size_t k = 0; k < AT_ONCE; k++)
            to[k] = values[rgb[k * 3]];
    for (size_t k = 0; x + k < pixels; k++)
        to[k] = values[rgb[k * 3]];
}

static void write_float32(const struct tsp_writer *writer, const struct line *line, const uint8_t *rgb)
{
    for (size_t c = 0; c < 3; c++) {
        float *to = (float *)writer->out.data + line->first + c * line->channel_step;
        const float *values = writer->values[c];
        if (line->pixel_step == 1)
            look_up(to, rgb + c, values, line->pixels);
        else
            for (size_t x = 0; x < line->pixels; x++)
                to[x * line->pixel_step] = values[rgb[x * 3 + c]];
    }
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
    else if (writer->out.dtype == TSOCKET_FLOAT32)
        write_float32(writer, &line, rgb);
    else
        write_uint8(writer, &line, rgb);
}
