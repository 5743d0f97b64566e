/* SPDX-License-Identifier: Apache-2.0 */
/* The resize, byte by byte against Pillow's. */
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

static void every_resize_is_as_pillow_makes_it(void **state)
{
    (void)state;
    struct tsp_resize *resize = tsp_resize_create();
    struct reference reference;
    size_t at = 0;
    while (next_reference(&at, &reference)) {
        size_t bytes = (size_t)reference.width * reference.height * 3;
        uint8_t *data = malloc(bytes);
        struct tsp_view view = view_of(&reference, data);
        struct tsp_rect part = tsp_resize_needs(&view, reference.source_width, reference.source_height);
        assert_true(part.x + part.width <= reference.source_width);
        assert_true(part.y + part.height <= reference.source_height);
        uint8_t *source = cut_out(&reference, &part);
        const struct tsp_pixels pixels = {
            reference.source_width, reference.source_height, part, source, (size_t)part.width * 3,
        };
        assert_true(tsp_resize_draw(resize, &pixels, &view));
        assert_memory_equal(data, reference.result, bytes);
        free(source);
        free(data);
    }
    tsp_resize_destroy(resize);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_resize_is_as_pillow_makes_it),
    };
    return cmocka_run_group_tests(tests, make, discard);
}
