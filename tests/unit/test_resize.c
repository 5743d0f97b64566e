/* SPDX-License-Identifier: Apache-2.0 */
/* The resize, byte by byte against Pillow's, with each kind of kernels that runs here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "inputs.h"
#include "producer/resize.h"

struct reference {
    uint32_t source_width, source_height, filter, clip, width, height;
    double box[4];
    const uint8_t *source;
    const uint8_t *result;
};

static uint8_t *file;
static size_t file_len;

static int make(void **state)
{
    (void)state;
    char arguments[512];
    const char *folder = inputs_folder();
    snprintf(arguments, sizeof arguments, "unit/make_references.py '%s'", folder);
    inputs_python(arguments);
    file = inputs_read(inputs_path(folder, "resizes.bin"), &file_len);
    return 0;
}

static int discard(void **state)
{
    (void)state;
    free(file);
    return 0;
}

/* Takes the next reference off the file. */
static bool next_reference(size_t *at, struct reference *reference)
{
    if (*at == file_len)
        return false;
    uint32_t numbers[6];
    memcpy(numbers, file + *at, sizeof numbers);
    memcpy(reference->box, file + *at + sizeof numbers, sizeof reference->box);
    *at += sizeof numbers + sizeof reference->box;
    reference->source_width = numbers[0];
    reference->source_height = numbers[1];
    reference->filter = numbers[2];
    reference->clip = numbers[3];
    reference->width = numbers[4];
    reference->height = numbers[5];
    reference->source = file + *at;
    *at += (size_t)numbers[0] * numbers[1] * 3;
    reference->result = file + *at;
    *at += (size_t)numbers[4] * numbers[5] * 3;
    assert_true(*at <= file_len);
    return true;
}

static struct tsp_view view_of(const struct reference *reference, uint8_t *data)
{
    return (struct tsp_view){
        .x = reference->box[0],
        .y = reference->box[1],
        .width = reference->box[2],
        .height = reference->box[3],
        .filter = reference->filter ? TSP_BICUBIC : TSP_BILINEAR,
        .clip = reference->clip != 0,
        .out = {.width = reference->width, .height = reference->height, .dtype = TSOCKET_UINT8, .data = data},
    };
}

/* A copy of the part of the source that the view needs, alone in memory: a read outside it is found by the sanitizer.
 */
static uint8_t *cut_out(const struct reference *reference, const struct tsp_rect *part)
{
    size_t stride = (size_t)part->width * 3;
    uint8_t *copy = malloc(stride * part->height);
    assert_non_null(copy);
    for (uint32_t y = 0; y < part->height; y++)
        memcpy(copy + y * stride, reference->source + ((size_t)(part->y + y) * reference->source_width + part->x) * 3,
               stride);
    return copy;
}

/* Draws the view into view->out.data. */
static void draw(struct tsp_resize *resize, const struct reference *reference, const struct tsp_view *view)
{
    struct tsp_rect part = tsp_resize_needs(view, reference->source_width, reference->source_height);
    assert_true(part.x + part.width <= reference->source_width);
    assert_true(part.y + part.height <= reference->source_height);
    uint8_t *source = cut_out(reference, &part);
    const struct tsp_pixels pixels = {
        reference->source_width, reference->source_height, part, source, (size_t)part.width * 3,
    };
    assert_true(tsp_resize_draw(resize, &pixels, view));
    free(source);
}

static void compare_with_pillow(const struct tsp_kernels *kernels)
{
    struct tsp_resize *resize = tsp_resize_create(kernels);
    struct reference reference;
    size_t at = 0;
    while (next_reference(&at, &reference)) {
        size_t bytes = (size_t)reference.width * reference.height * 3;
        uint8_t *data = malloc(bytes);
        struct tsp_view view = view_of(&reference, data);
        draw(resize, &reference, &view);
        assert_memory_equal(data, reference.result, bytes);
        free(data);
    }
    tsp_resize_destroy(resize);
}

static void every_resize_is_as_pillow_makes_it(void **state)
{
    (void)state;
    for (size_t i = 0; tsp_kernels_at(i); i++)
        compare_with_pillow(tsp_kernels_at(i));
}

/* Where pixel x, y of a turned view is found in the one that is not turned. */
static size_t place_before(const struct tsp_view *view, uint32_t x, uint32_t y)
{
    uint32_t across = view->turn ? view->out.height : view->out.width;
    uint32_t down = view->turn ? view->out.width : view->out.height;
    uint32_t column = view->turn ? y : x, row = view->turn ? x : y;
    column = view->flip ? across - 1 - column : column;
    row = view->flop ? down - 1 - row : row;
    return ((size_t)row * across + column) * 3;
}

static void check_turned(struct tsp_resize *resize, const struct reference *reference, int how)
{
    size_t bytes = (size_t)reference->width * reference->height * 3;
    uint8_t *data = malloc(bytes);
    struct tsp_view view = view_of(reference, data);
    view.flip = how & 1;
    view.flop = how & 2;
    view.turn = how & 4;
    if (view.turn) {
        view.out.width = reference->height;
        view.out.height = reference->width;
    }
    draw(resize, reference, &view);
    for (uint32_t y = 0; y < view.out.height; y++)
        for (uint32_t x = 0; x < view.out.width; x++)
            assert_memory_equal(data + ((size_t)y * view.out.width + x) * 3,
                                reference->result + place_before(&view, x, y), 3);
    free(data);
}

static void flips_and_turns_move_pixels_and_change_none(void **state)
{
    (void)state;
    struct tsp_resize *resize = tsp_resize_create(tsp_kernels_best());
    struct reference reference;
    size_t at = 0;
    for (int i = 0; next_reference(&at, &reference); i++)
        check_turned(resize, &reference, i / 3 % 8);
    tsp_resize_destroy(resize);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_resize_is_as_pillow_makes_it),
        cmocka_unit_test(flips_and_turns_move_pixels_and_change_none),
    };
    return cmocka_run_group_tests(tests, make, discard);
}
