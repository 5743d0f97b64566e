/* SPDX-License-Identifier: Apache-2.0 */
/* PNG: whole pictures have Pillow's pixels, parts have those of the whole, interlaced or not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "inputs.h"
#include "producer/png.h"
#include "producer/random.h"

static const struct tsp_limits limits = {.max_pixels = 1 << 20, .max_scans = 100};
static const char *folder;
static struct tsp_png *png;
static char why[TSP_WHY_MAX];

static int make(void **state)
{
    (void)state;
    char arguments[512];
    const char *root = inputs_folder();
    snprintf(arguments, sizeof arguments, "unit/make_references.py '%s'", root);
    inputs_python(arguments);
    folder = inputs_path(root, "png");
    png = tsp_png_create(&limits, why);
    return png ? 0 : -1;
}

static int discard(void **state)
{
    (void)state;
    tsp_png_destroy(png);
    return 0;
}

struct picture {
    uint8_t *file;
    size_t file_len;
    uint8_t *rgb;
    uint32_t width, height;
};

/* Calls `check` for each picture. */
static void each_picture(void (*check)(const struct picture *))
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    uint32_t n = 0;
    while ((entry = readdir(dir)) != NULL) {
        char name[256];
        size_t rgb_len;
        struct picture picture;
        if (!strstr(entry->d_name, ".png") || strcmp(entry->d_name, "turned.png") == 0)
            continue;
        snprintf(name, sizeof name, "%.*s.rgb", (int)strlen(entry->d_name) - 4, entry->d_name);
        picture.file = inputs_read(inputs_path(folder, entry->d_name), &picture.file_len);
        picture.rgb = inputs_read(inputs_path(folder, name), &rgb_len);
        assert_int_equal(tsp_png_header(png, picture.file, picture.file_len, &picture.width, &picture.height),
                         TSP_GOOD);
        assert_int_equal(rgb_len, (size_t)picture.width * picture.height * 3);
        check(&picture);
        free(picture.file);
        free(picture.rgb);
        n++;
    }
    closedir(dir);
    assert_int_equal(n, 21);
}

static void assert_part_equals(const struct picture *picture, const struct tsp_rect *wanted)
{
    uint32_t width, height;
    struct tsp_pixels pixels;
    assert_int_equal(tsp_png_header(png, picture->file, picture->file_len, &width, &height), TSP_GOOD);
    assert_int_equal(tsp_png_decode(png, wanted, &pixels), TSP_GOOD);
    const struct tsp_rect *part = &pixels.part;
    assert_true(part->x <= wanted->x && part->x + part->width >= wanted->x + wanted->width);
    assert_true(part->y <= wanted->y && part->y + part->height >= wanted->y + wanted->height);
    for (uint32_t y = 0; y < wanted->height; y++) {
        const uint8_t *got =
            pixels.data + (wanted->y + y - part->y) * pixels.stride + (size_t)(wanted->x - part->x) * 3;
        const uint8_t *want = picture->rgb + ((size_t)(wanted->y + y) * picture->width + wanted->x) * 3;
        assert_memory_equal(got, want, (size_t)wanted->width * 3);
    }
}

static void check_parts(const struct picture *picture)
{
    struct tsp_random random;
    tsp_random_init(&random, 1, 0, picture->width, 0, TSP_RANDOM_CROP);
    assert_part_equals(picture, &(struct tsp_rect){0, 0, picture->width, picture->height});
    for (int i = 0; i < 30; i++) {
        struct tsp_rect part;
        part.x = (uint32_t)tsp_random_below(&random, picture->width);
        part.y = (uint32_t)tsp_random_below(&random, picture->height);
        part.width = 1 + (uint32_t)tsp_random_below(&random, picture->width - part.x);
        part.height = 1 + (uint32_t)tsp_random_below(&random, picture->height - part.y);
        assert_part_equals(picture, &part);
    }
}

static void wholes_and_parts_have_pillows_pixels(void **state)
{
    (void)state;
    each_picture(check_parts);
}

/* Wherever it is cut: in the header, the pixels or the end, of which the first row needs nothing. */
static void check_cuts(const struct picture *picture)
{
    uint32_t width, height;
    struct tsp_pixels pixels;
    const struct tsp_rect top = {0, 0, picture->width, 1};
    for (size_t len = 8; len + 16 < picture->file_len; len += 1 + picture->file_len / 50) {
        uint8_t *cut = malloc(len);
        memcpy(cut, picture->file, len);
        enum tsp_bad bad = tsp_png_header(png, cut, len, &width, &height);
        if (bad == TSP_GOOD)
            bad = tsp_png_decode(png, &top, &pixels);
        assert_int_equal(bad, TSP_TRUNCATED);
        assert_non_null(strstr(why, "too early"));
        free(cut);
    }
}

static void a_cut_file_is_found(void **state)
{
    (void)state;
    each_picture(check_cuts);
}

static void a_large_header_is_refused(void **state)
{
    (void)state;
    size_t len;
    uint32_t width, height;
    uint8_t *file = inputs_read(inputs_path(folder, "RGB_333x251.png"), &len);
    const struct tsp_limits small = {.max_pixels = 333 * 251 - 1};
    struct tsp_png *strict = tsp_png_create(&small, why);
    assert_int_equal(tsp_png_header(strict, file, len, &width, &height), TSP_TOO_LARGE);
    assert_non_null(strstr(why, "333 x 251"));
    tsp_png_destroy(strict);
    free(file);
}

static void the_orientation_is_known(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint32_t orientation;
    } files[] = {{"turned.png", 6}, {"RGB_333x251.png", 1}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        size_t len;
        uint32_t width, height;
        uint8_t *file = inputs_read(inputs_path(folder, files[i].name), &len);
        assert_int_equal(tsp_png_header(png, file, len, &width, &height), TSP_GOOD);
        assert_int_equal(tsp_png_orientation(png), files[i].orientation);
        free(file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wholes_and_parts_have_pillows_pixels),
        cmocka_unit_test(a_cut_file_is_found),
        cmocka_unit_test(a_large_header_is_refused),
        cmocka_unit_test(the_orientation_is_known),
    };
    return cmocka_run_group_tests(tests, make, discard);
}
