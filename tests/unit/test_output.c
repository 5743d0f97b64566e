/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "producer/output.h"

enum {
    WIDTH = 5,
    HEIGHT = 3,
    ELEMENTS = WIDTH * HEIGHT * 3,
};

static uint8_t picture[HEIGHT][WIDTH][3];

static int fill_picture(void **state)
{
    (void)state;
    for (size_t i = 0; i < ELEMENTS; i++)
        ((uint8_t *)picture)[i] = (uint8_t)(i * 37 + 5);
    return 0;
}

/* In columns: the picture is what comes out, its columns are what goes in. */
static void write_picture(struct tsp_writer *writer, const struct tsp_output *out, bool columns)
{
    tsp_writer_init(writer, out, columns);
    for (uint32_t i = 0; i < (columns ? WIDTH : HEIGHT); i++) {
        uint8_t line[HEIGHT > WIDTH ? HEIGHT : WIDTH][3];
        for (uint32_t k = 0; k < (columns ? HEIGHT : WIDTH); k++)
            memcpy(line[k], columns ? picture[k][i] : picture[i][k], 3);
        uint8_t *place = tsp_writer_place(writer, i);
        if (place)
            memcpy(place, line, WIDTH * 3);
        else
            tsp_writer_line(writer, i, (const uint8_t *)line);
    }
}

static size_t place(enum tsp_layout layout, size_t y, size_t x, size_t c)
{
    return layout == TSP_NHWC ? (y * WIDTH + x) * 3 + c : (c * HEIGHT + y) * WIDTH + x;
}

static void check(enum tsp_layout layout, bool columns)
{
    struct tsp_writer writer = {0};
    struct tsp_output out = {.width = WIDTH, .height = HEIGHT, .layout = layout};
    uint8_t bytes[ELEMENTS];
    float floats[ELEMENTS];
    const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
    memcpy(out.mean, mean, sizeof mean);
    memcpy(out.std, std, sizeof std);
    out.dtype = TSOCKET_UINT8;
    out.data = bytes;
    write_picture(&writer, &out, columns);
    out.dtype = TSOCKET_FLOAT32;
    out.data = floats;
    write_picture(&writer, &out, columns);
    for (size_t y = 0; y < HEIGHT; y++)
        for (size_t x = 0; x < WIDTH; x++)
            for (size_t c = 0; c < 3; c++) {
                uint8_t pixel = picture[y][x][c];
                float value = ((float)pixel / 255.0f - mean[c]) / std[c];
                assert_int_equal(bytes[place(layout, y, x, c)], pixel);
                assert_memory_equal(&floats[place(layout, y, x, c)], &value, sizeof value);
            }
}

static void nhwc_keeps_channels_together(void **state)
{
    (void)state;
    check(TSP_NHWC, false);
}

static void nchw_keeps_channels_apart(void **state)
{
    (void)state;
    check(TSP_NCHW, false);
}

static void lines_may_be_columns(void **state)
{
    (void)state;
    check(TSP_NHWC, true);
    check(TSP_NCHW, true);
}

static void each_picture_has_its_own_mean(void **state)
{
    (void)state;
    struct tsp_writer writer = {0};
    float floats[ELEMENTS];
    struct tsp_output out = {.width = WIDTH, .height = HEIGHT, .std = {1, 1, 1}, .data = floats};
    write_picture(&writer, &out, false); /* bytes need none */
    out.dtype = TSOCKET_FLOAT32;
    for (float mean = 0; mean < 2; mean++) {
        out.mean[2] = mean;
        write_picture(&writer, &out, false);
        float wanted = (float)picture[0][0][2] / 255.0f - mean;
        assert_memory_equal(&floats[2], &wanted, sizeof wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nhwc_keeps_channels_together),
        cmocka_unit_test(nchw_keeps_channels_apart),
        cmocka_unit_test(lines_may_be_columns),
        cmocka_unit_test(each_picture_has_its_own_mean),
    };
    return cmocka_run_group_tests(tests, fill_picture, NULL);
}
