/* SPDX-License-Identifier: Apache-2.0 */
/* JPEG: whole pictures have Pillow's pixels, parts have those of the whole. */
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
#include "producer/jpeg.h"
#include "producer/random.h"

static const struct tsp_limits limits = {.max_pixels = 1 << 20, .max_scans = 100};
static const char *folder;
static struct tsp_jpeg *jpeg;
static char why[TSP_WHY_MAX];

static int make(void **state)
{
    (void)state;
    char arguments[512];
    folder = inputs_folder();
    snprintf(arguments, sizeof arguments, "unit/make_references.py '%s'", folder);
    inputs_python(arguments);
    jpeg = tsp_jpeg_create(&limits, why);
    return jpeg ? 0 : -1;
}

static int discard(void **state)
{
    (void)state;
    tsp_jpeg_destroy(jpeg);
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
        if (!strstr(entry->d_name, ".jpg"))
            continue;
        snprintf(name, sizeof name, "%.*s.rgb", (int)strlen(entry->d_name) - 4, entry->d_name);
        picture.file = inputs_read(inputs_path(folder, entry->d_name), &picture.file_len);
        picture.rgb = inputs_read(inputs_path(folder, name), &rgb_len);
        assert_int_equal(tsp_jpeg_header(jpeg, picture.file, picture.file_len, &picture.width, &picture.height),
                         TSP_GOOD);
        assert_int_equal(rgb_len, (size_t)picture.width * picture.height * 3);
        check(&picture);
        free(picture.file);
        free(picture.rgb);
        n++;
    }
    closedir(dir);
    assert_true(n >= 9);
}

static void assert_part_equals(const struct picture *picture, const struct tsp_rect *wanted)
{
    uint32_t width, height;
    struct tsp_pixels pixels;
    assert_int_equal(tsp_jpeg_header(jpeg, picture->file, picture->file_len, &width, &height), TSP_GOOD);
    assert_int_equal(tsp_jpeg_decode(jpeg, wanted, 1, &pixels), TSP_GOOD);
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

static void check_whole(const struct picture *picture)
{
    assert_part_equals(picture, &(struct tsp_rect){0, 0, picture->width, picture->height});
}

static void check_random_parts(const struct picture *picture)
{
    struct tsp_random random;
    tsp_random_init(&random, 1, 0, picture->width, 0, TSP_RANDOM_CROP);
    for (int i = 0; i < 300; i++) {
        struct tsp_rect part;
        part.x = (uint32_t)tsp_random_below(&random, picture->width);
        part.y = (uint32_t)tsp_random_below(&random, picture->height);
        part.width = 1 + (uint32_t)tsp_random_below(&random, picture->width - part.x);
        part.height = 1 + (uint32_t)tsp_random_below(&random, picture->height - part.y);
        assert_part_equals(picture, &part);
    }
}

static void whole_pictures_have_pillows_pixels(void **state)
{
    (void)state;
    each_picture(check_whole);
}

static void parts_have_the_pixels_of_the_whole(void **state)
{
    (void)state;
    each_picture(check_random_parts);
}

/* A cut below the part that is wanted is found all the same. */
static void check_cut_below(const struct picture *picture)
{
    uint32_t width, height;
    struct tsp_pixels pixels;
    const struct tsp_rect top = {0, 0, picture->width, 1};
    assert_int_equal(tsp_jpeg_header(jpeg, picture->file, picture->file_len - 12, &width, &height), TSP_GOOD);
    assert_int_equal(tsp_jpeg_decode(jpeg, &top, 1, &pixels), TSP_TRUNCATED);
    assert_non_null(strstr(why, "too early"));
}

static void a_cut_below_the_part_is_found(void **state)
{
    (void)state;
    each_picture(check_cut_below);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_pictures_have_pillows_pixels),
        cmocka_unit_test(parts_have_the_pixels_of_the_whole),
        cmocka_unit_test(a_cut_below_the_part_is_found),
    };
    return cmocka_run_group_tests(tests, make, discard);
}
