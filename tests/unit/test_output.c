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

static void write_picture(const struct tsp_output *out, bool flip)
{
    struct tsp_writer writer;
    tsp_writer_init(&writer, out, flip);
    for (uint32_t y = 0; y < HEIGHT; y++)
        tsp_writer_row(&writer, y, (const uint8_t *)picture[y]);
}

static size_t place(enum tsp_layout layout, size_t y, size_t x, size_t c)
{
    return layout == TSP_NHWC ? (y * WIDTH + x) * 3 + c : (c * HEIGHT + y) * WIDTH + x;
}

static void check(enum tsp_layout layout, bool flip)
{
    struct tsp_output out = {.width = WIDTH, .height = HEIGHT, .layout = layout};
    uint8_t bytes[ELEMENTS];
    float floats[ELEMENTS];
    const float mean[3] = {0.485f, 0.456f, 0.406f}, std[3] = {0.229f, 0.224f, 0.225f};
    memcpy(out.mean, mean, sizeof mean);
    memcpy(out.std, std, sizeof std);
    out.dtype = TSOCKET_UINT8;
    out.data = bytes;
    write_picture(&out, flip);
    out.dtype = TSOCKET_FLOAT32;
    out.data = floats;
    write_picture(&out, flip);
    for (size_t y = 0; y < HEIGHT; y++)
        for (size_t x = 0; x < WIDTH; x++)
            for (size_t c = 0; c < 3; c++) {
                uint8_t pixel = picture[y][flip ? WIDTH - 1 - x : x][c];
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

static void flip_mirrors_left_and_right(void **state)
{
    (void)state;
    check(TSP_NHWC, true);
    check(TSP_NCHW, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nhwc_keeps_channels_together),
        cmocka_unit_test(nchw_keeps_channels_apart),
        cmocka_unit_test(flip_mirrors_left_and_right),
    };
    return cmocka_run_group_tests(tests, fill_picture, NULL);
}
