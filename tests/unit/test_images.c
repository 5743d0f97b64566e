/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder, against the pictures of make_inputs.py: each is delivered or refused as its policy in expected.json
 * says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <cjson/cJSON.h>

#include "inputs.h"
#include "producer/decode.h"

static const struct tsp_limits limits = {.max_pixels = 1 << 25, .max_scans = 100};
static const char *root;
static cJSON *expected;
static struct tsp_decoder *decoder;

static int make(void **state)
{
    (void)state;
    char arguments[512];
    size_t len;
    root = inputs_folder();
    snprintf(arguments, sizeof arguments, "make_inputs.py '%s' --only images", root);
    inputs_python(arguments);
    uint8_t *text = inputs_read(inputs_path(root, "expected.json"), &len);
    expected = cJSON_Parse((char *)text);
    free(text);
    decoder = tsp_decoder_create(&limits);
    return expected && decoder ? 0 : -1;
}

static int discard(void **state)
{
    (void)state;
    tsp_decoder_destroy(decoder);
    cJSON_Delete(expected);
    return 0;
}

static const cJSON *field(const cJSON *object, const char *name)
{
    return cJSON_GetObjectItemCaseSensitive(object, name);
}

static const char *text_of(const cJSON *object, const char *name)
{
    return field(object, name)->valuestring;
}

/* Decodes the whole picture; *rgb_out is the caller's, if the result is good. */
static enum tsp_bad decode(const cJSON *entry, bool upright, uint8_t **rgb_out, uint32_t *width_out,
                           uint32_t *height_out)
{
    struct tsp_recipe recipe;
    struct tsp_view view;
    struct tsp_encoded encoded = {0};
    tsp_recipe_init(&recipe);
    encoded.data = inputs_read(inputs_path(root, text_of(entry, "file")), &encoded.len);
    enum tsp_bad bad = tsp_decoder_header(decoder, &encoded, upright, width_out, height_out);
    if (bad == TSP_GOOD) {
        tsp_view_whole(&recipe, *width_out, *height_out, &view);
        view.out.data = *rgb_out = malloc((size_t)*width_out * *height_out * 3);
        bad = tsp_decoder_draw(decoder, &view, 1);
        if (bad != TSP_GOOD)
            free(*rgb_out);
    }
    tsp_encoded_fini(&encoded);
    return bad;
}

/* The mean of channel `c` in quarter `q` of the picture: as "quads" in make_inputs.py, a side of one pixel counts
 * twice. */
static double quarter_mean(const uint8_t *rgb, uint32_t width, uint32_t height, int q, int c)
{
    uint32_t x0 = 0, x1 = width / 2 ? width / 2 : 1, y0 = 0, y1 = height / 2 ? height / 2 : 1;
    if (q % 2) {
        x0 = width > 1 ? width / 2 : 0;
        x1 = width;
    }
    if (q / 2) {
        y0 = height > 1 ? height / 2 : 0;
        y1 = height;
    }
    double sum = 0;
    for (uint32_t y = y0; y < y1; y++)
        for (uint32_t x = x0; x < x1; x++)
            sum += rgb[((size_t)y * width + x) * 3 + (size_t)c];
    return sum / ((double)(x1 - x0) * (y1 - y0));
}

static void check_pixels(const cJSON *entry, bool upright, const uint8_t *rgb, uint32_t width, uint32_t height)
{
    const cJSON *size = field(entry, upright ? "size_exif" : "size_raw");
    const cJSON *quads = field(entry, upright ? "quads_exif" : "quads_raw");
    assert_int_equal(width, cJSON_GetArrayItem(size, 0)->valueint);
    assert_int_equal(height, cJSON_GetArrayItem(size, 1)->valueint);
    for (int q = 0; q < 4; q++)
        for (int c = 0; c < 3; c++) {
            double mean = quarter_mean(rgb, width, height, q, c);
            double wanted = cJSON_GetArrayItem(cJSON_GetArrayItem(quads, q), c)->valuedouble;
            if (fabs(mean - wanted) > field(entry, "tol")->valuedouble)
                fail_msg("%s: quarter %d, channel %d is %g, not %g", text_of(entry, "id"), q, c, mean, wanted);
        }
}

/* Whether `word` is one of the words in `list`, which '|' separates. */
static bool is_listed(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *at = list; at; at = strchr(at, '|')) {
        at += *at == '|';
        if (strncmp(at, word, len) == 0 && (at[len] == '\0' || at[len] == '|'))
            return true;
    }
    return false;
}

static void check_refusal(const cJSON *entry, enum tsp_bad bad)
{
    const char *policy = text_of(entry, "policy");
    const char *allowed = strcmp(policy, "decode_or_unsupported") == 0 ? "unsupported"
                          : strcmp(policy, "decode") == 0              ? ""
                                                                       : text_of(entry, "error");
    if (!is_listed(allowed, tsp_bad_word(bad)))
        fail_msg("%s: %s (%s), policy %s %s", text_of(entry, "id"), tsp_bad_word(bad), tsp_decoder_why(decoder), policy,
                 allowed);
    assert_true(strlen(tsp_decoder_why(decoder)) > 0);
}

static void check_all(bool upright)
{
    const cJSON *entry;
    cJSON_ArrayForEach(entry, field(expected, "images"))
    {
        uint8_t *rgb;
        uint32_t width, height;
        enum tsp_bad bad = decode(entry, upright, &rgb, &width, &height);
        if (bad != TSP_GOOD) {
            check_refusal(entry, bad);
            continue;
        }
        if (strcmp(text_of(entry, "policy"), "error") == 0)
            fail_msg("%s: was delivered", text_of(entry, "id"));
        check_pixels(entry, upright, rgb, width, height);
        free(rgb);
    }
}

static void every_picture_is_treated_by_its_policy(void **state)
{
    (void)state;
    check_all(false);
}

static void so_it_is_when_turned_upright(void **state)
{
    (void)state;
    check_all(true);
}

static enum tsp_bad decode_id(const char *id)
{
    const cJSON *entry;
    uint8_t *rgb;
    uint32_t width, height;
    cJSON_ArrayForEach(entry, field(expected, "images"))
    {
        if (strcmp(text_of(entry, "id"), id) != 0)
            continue;
        enum tsp_bad bad = decode(entry, true, &rgb, &width, &height);
        if (bad == TSP_GOOD)
            free(rgb);
        return bad;
    }
    fail_msg("no picture %s", id);
    return TSP_STOP;
}

static void other_kinds_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *id, *name;
    } kinds[] = {{"is_webp", "WebP"}, {"is_bmp", "BMP"}, {"is_gif", "GIF"}, {"jpeg_12bit", "12"}};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        assert_int_equal(decode_id(kinds[i].id), TSP_UNSUPPORTED);
        assert_non_null(strstr(tsp_decoder_why(decoder), kinds[i].name));
    }
}

static void pngs_are_decoded(void **state)
{
    (void)state;
    static const char *const ids[] = {"is_png", "png16_gray", "png16_rgb", "png_palette", "png_rgba", "png_1bit"};
    for (size_t i = 0; i < sizeof ids / sizeof ids[0]; i++)
        assert_int_equal(decode_id(ids[i]), TSP_GOOD);
    assert_int_equal(decode_id("png_cut"), TSP_TRUNCATED);
}

static void a_missing_end_marker_costs_nothing(void **state)
{
    (void)state;
    assert_int_equal(decode_id("no_eoi"), TSP_GOOD);
    assert_int_equal(decode_id("garbage_between"), TSP_GOOD);
}

/* Tables of one picture must not help the next, which has none. */
static void a_picture_does_not_depend_on_the_one_before(void **state)
{
    (void)state;
    assert_int_equal(decode_id("jpeg_baseline"), TSP_GOOD);
    assert_int_equal(decode_id("dqt_missing"), TSP_CORRUPT);
}

static void assert_stored(const char *id, const char *format, const char *colours)
{
    const cJSON *entry;
    cJSON_ArrayForEach(entry, field(expected, "images"))
    {
        struct tsp_encoded encoded = {0};
        uint32_t width, height;
        if (strcmp(text_of(entry, "id"), id) != 0)
            continue;
        encoded.data = inputs_read(inputs_path(root, text_of(entry, "file")), &encoded.len);
        assert_int_equal(tsp_decoder_header(decoder, &encoded, true, &width, &height), TSP_GOOD);
        struct tsp_storage storage = tsp_decoder_storage(decoder);
        assert_string_equal(storage.format, format);
        assert_string_equal(storage.colours, colours);
        tsp_encoded_fini(&encoded);
    }
}

static void it_is_told_how_a_picture_is_stored(void **state)
{
    (void)state;
    static const struct {
        const char *id, *format, *colours;
    } stored[] = {
        {"jpeg_baseline", "JPEG", "4:4:4"},
        {"jpeg_progressive", "progressive JPEG", "4:4:4"},
        {"jpeg_arith", "arithmetic JPEG", "4:2:0"},
        {"jpeg_420", "JPEG", "4:2:0"},
        {"jpeg_422", "JPEG", "4:2:2"},
        {"jpeg_440", "JPEG", "4:4:0"},
        {"jpeg_411", "JPEG", "4:1:1"},
        {"jpeg_gray", "JPEG", "grey"},
        {"jpeg_rgb", "JPEG", "RGB"},
        {"jpeg_cmyk", "JPEG", "CMYK"},
        {"jpeg_ycck", "JPEG", "YCCK"},
        {"png_rgba", "PNG", "RGB with alpha"},
        {"png_palette", "PNG", "palette"},
        {"png16_gray", "PNG", "grey"},
    };
    for (size_t i = 0; i < sizeof stored / sizeof stored[0]; i++)
        assert_stored(stored[i].id, stored[i].format, stored[i].colours);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_picture_is_treated_by_its_policy),
        cmocka_unit_test(so_it_is_when_turned_upright),
        cmocka_unit_test(pngs_are_decoded),
        cmocka_unit_test(other_kinds_are_named),
        cmocka_unit_test(a_missing_end_marker_costs_nothing),
        cmocka_unit_test(a_picture_does_not_depend_on_the_one_before),
        cmocka_unit_test(it_is_told_how_a_picture_is_stored),
    };
    return cmocka_run_group_tests(tests, make, discard);
}
