/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include <tsocket/convert.h>

#include "producer/output.h"

enum {
    WIDTH = 37,
    HEIGHT = 19,
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

static const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};

static void check_bytes(struct tsp_writer *writer, struct tsp_output *out, bool columns)
{
    uint8_t bytes[ELEMENTS];
    out->dtype = TSOCKET_UINT8;
    out->data = bytes;
    write_picture(writer, out, columns);
    for (size_t y = 0; y < HEIGHT; y++)
        for (size_t x = 0; x < WIDTH; x++)
            for (size_t c = 0; c < 3; c++)
                assert_int_equal(bytes[place(out->layout, y, x, c)], picture[y][x][c]);
}

/* What a trainer would make of the bytes. */
static void check_floats(struct tsp_writer *writer, struct tsp_output *out, bool columns, enum tsocket_dtype dtype)
{
    uint8_t got[ELEMENTS * 4], wanted[sizeof got];
    struct tsocket_conversion conversion;
    tsocket_conversion_init(&conversion);
    conversion.dtype = dtype;
    conversion.channels_first = out->layout == TSP_NCHW;
    memcpy(conversion.mean, mean, sizeof mean);
    memcpy(conversion.std, std, sizeof std);
    out->dtype = dtype;
    out->data = got;
    write_picture(writer, out, columns);
    assert_int_equal(tsocket_convert(&conversion, picture[0][0], 1, (uint64_t)WIDTH * HEIGHT, wanted), TSOCKET_OK);
    assert_memory_equal(got, wanted, ELEMENTS * tsocket_dtype_bytes(dtype));
}

static void check(enum tsp_layout layout, bool columns)
{
    struct tsp_writer writer = {0};
    struct tsp_output out = {.width = WIDTH, .height = HEIGHT, .layout = layout};
    memcpy(out.mean, mean, sizeof mean);
    memcpy(out.std, std, sizeof std);
    check_bytes(&writer, &out, columns);
    check_floats(&writer, &out, columns, TSOCKET_FLOAT32);
    check_floats(&writer, &out, columns, TSOCKET_FLOAT16);
    check_floats(&writer, &out, columns, TSOCKET_BFLOAT16);
    check_bytes(&writer, &out, columns);
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
    for (float offset = 0; offset < 2; offset++) {
        out.mean[2] = offset;
        write_picture(&writer, &out, false);
        float wanted = (float)picture[0][0][2] / 255.0f - offset;
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
