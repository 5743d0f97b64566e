/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder as a whole: several views, turned pictures, the two qualities, and what it allocates. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "inputs.h"
#include "producer/decode.h"

enum {
    SIDE = 96,
    BYTES = SIDE * SIDE * 3,
    SAMPLES = 60, /* drawn per test */
};

/* Fast against exact, on pictures that are decoded smaller, dB: of all pixels, and of the worst crop. */
#define FAST_PSNR       43.5
#define FAST_PSNR_WORST 39.0

static const struct tsp_limits limits = {.max_pixels = 1 << 22, .max_scans = 100};
static const char *folder;
static struct tsp_decoder *decoder;

/* ---- allocations of our own code: the linker sends them here (CMakeLists.txt) ---- */

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);

static uint64_t allocations;
static uint64_t failing; /* the number of the allocation that fails; 0: none */

static bool fails(void)
{
    return ++allocations == failing;
}

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return fails() ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return fails() ? NULL : __real_realloc(old, bytes);
}

/* ---- inputs ---- */

static int make(void **state)
{
    (void)state;
    char arguments[512];
    folder = inputs_folder();
    snprintf(arguments, sizeof arguments, "unit/make_references.py '%s'", folder);
    inputs_python(arguments);
    decoder = tsp_decoder_create(&limits);
    return decoder ? 0 : -1;
}

static int discard(void **state)
{
    (void)state;
    tsp_decoder_destroy(decoder);
    return 0;
}

static struct tsp_encoded read_file(const char *name)
{
    struct tsp_encoded encoded = {0};
    encoded.data = inputs_read(inputs_path(folder, name), &encoded.len);
    return encoded;
}

/* A copy of a JPEG with an EXIF segment. */
static struct tsp_encoded with_orientation(const struct tsp_encoded *plain, uint8_t orientation)
{
    const uint8_t segment[] = {0xff, 0xe1, 0, 34, 'E', 'x', 'i', 'f', 0, 0, 'M', 'M',         0, 42, 0, 0, 0, 8,
                               0,    1,    1, 18, 0,   3,   0,   0,   0, 1, 0,   orientation, 0, 0,  0, 0, 0, 0};
    struct tsp_encoded encoded = {.len = plain->len + sizeof segment, .data = malloc(plain->len + sizeof segment)};
    memcpy(encoded.data, plain->data, 2);
    memcpy(encoded.data + 2, segment, sizeof segment);
    memcpy(encoded.data + 2 + sizeof segment, plain->data + 2, plain->len - 2);
    return encoded;
}

static struct tsp_recipe small_recipe(void)
{
    struct tsp_recipe recipe;
    tsp_recipe_init(&recipe);
    recipe.size = SIDE;
    return recipe;
}

/* Draws views 0 to n - 1 of the sample into `to`. */
static void draw(const struct tsp_encoded *encoded, const struct tsp_recipe *recipe, uint64_t sample, uint32_t first,
                 uint32_t n, uint8_t *to)
{
    struct tsp_view views[TSP_VIEWS_MAX];
    uint32_t width, height;
    assert_int_equal(tsp_decoder_header(decoder, encoded, recipe->exif, &width, &height), TSP_GOOD);
    for (uint32_t i = 0; i < n; i++) {
        tsp_view_plan(recipe, 0, sample, first + i, width, height, &views[i]);
        views[i].out.data = to + (size_t)i * BYTES;
    }
    assert_int_equal(tsp_decoder_draw(decoder, views, n), TSP_GOOD);
}

/* The picture as it is seen under its orientation, as raw pixels. */
static struct tsp_encoded turned(const struct tsp_encoded *plain, uint8_t orientation)
{
    struct tsp_recipe recipe = small_recipe();
    struct tsp_view view;
    uint32_t w, h;
    assert_int_equal(tsp_decoder_header(decoder, plain, false, &w, &h), TSP_GOOD);
    uint8_t *stored = malloc((size_t)w * h * 3);
    tsp_view_whole(&recipe, w, h, &view);
    view.out.data = stored;
    assert_int_equal(tsp_decoder_draw(decoder, &view, 1), TSP_GOOD);
    bool swaps = orientation >= 5;
    struct tsp_encoded upright = {
        .data = malloc((size_t)w * h * 3), .raw_width = swaps ? h : w, .raw_height = swaps ? w : h};
    for (uint32_t y = 0; y < upright.raw_height; y++)
        for (uint32_t x = 0; x < upright.raw_width; x++) {
            uint32_t from_x = swaps ? y : x, from_y = swaps ? x : y;
            if (orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8)
                from_x = w - 1 - from_x;
            if (orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7)
                from_y = h - 1 - from_y;
            memcpy(upright.data + ((size_t)y * upright.raw_width + x) * 3, stored + ((size_t)from_y * w + from_x) * 3,
                   3);
        }
    free(stored);
    return upright;
}

/* ---- tests ---- */

static int largest_difference(const uint8_t *a, const uint8_t *b)
{
    int largest = 0;
    for (size_t i = 0; i < BYTES; i++)
        largest = abs(a[i] - b[i]) > largest ? abs(a[i] - b[i]) : largest;
    return largest;
}

static void several_views_are_those_that_come_alone(void **state)
{
    (void)state;
    static uint8_t together[TSP_VIEWS_MAX * BYTES], alone[BYTES];
    const struct tsp_recipe recipe = small_recipe();
    struct tsp_encoded encoded = read_file("420_333x251.jpg");
    for (uint64_t sample = 0; sample < SAMPLES; sample++) {
        draw(&encoded, &recipe, sample, 0, TSP_VIEWS_MAX, together);
        for (uint32_t i = 0; i < TSP_VIEWS_MAX; i++) {
            draw(&encoded, &recipe, sample, i, 1, alone);
            assert_memory_equal(together + (size_t)i * BYTES, alone, BYTES);
        }
    }
    tsp_encoded_fini(&encoded);
}

/* Which pass comes first differs where rows are columns, and with it the last rounding. */
static void crops_of_turned_pictures_are_those_of_upright_ones(void **state)
{
    (void)state;
    static uint8_t made[BYTES], expected[BYTES];
    struct tsp_recipe recipe = small_recipe();
    struct tsp_encoded plain = read_file("444_333x251.jpg");
    for (uint8_t orientation = 1; orientation <= 8; orientation++) {
        struct tsp_encoded encoded = with_orientation(&plain, orientation), upright = turned(&plain, orientation);
        for (uint64_t sample = 0; sample < SAMPLES; sample++) {
            recipe.augment = sample % 4 ? TSP_AUGMENT_TRAIN : TSP_AUGMENT_EVAL;
            draw(&encoded, &recipe, sample, 0, 1, made);
            draw(&upright, &recipe, sample, 0, 1, expected);
            assert_true(largest_difference(made, expected) <= (orientation > 1));
        }
        tsp_encoded_fini(&encoded);
        tsp_encoded_fini(&upright);
    }
    tsp_encoded_fini(&plain);
}

static void an_orientation_may_be_left_alone(void **state)
{
    (void)state;
    static uint8_t made[BYTES], expected[BYTES];
    struct tsp_recipe recipe = small_recipe();
    struct tsp_encoded plain = read_file("444_333x251.jpg"), encoded = with_orientation(&plain, 6);
    recipe.exif = false;
    draw(&plain, &recipe, 1, 0, 1, expected);
    draw(&encoded, &recipe, 1, 0, 1, made);
    assert_memory_equal(made, expected, BYTES);
    tsp_encoded_fini(&encoded);
    tsp_encoded_fini(&plain);
}

static double mean_square(const uint8_t *a, const uint8_t *b)
{
    double sum = 0;
    for (size_t i = 0; i < BYTES; i++)
        sum += (a[i] - b[i]) * (a[i] - b[i]);
    return sum / BYTES;
}

static double psnr(double square)
{
    return 10 * log10(255.0 * 255 / square);
}

static void fast_is_near_exact(void **state)
{
    (void)state;
    static const char *const names[] = {"large/444.jpg", "large/420.jpg"};
    static uint8_t exact[BYTES], fast[BYTES];
    struct tsp_recipe recipe = small_recipe();
    uint32_t differ = 0;
    double sum = 0, worst = 0;
    for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
        struct tsp_encoded encoded = read_file(names[n]);
        for (uint64_t sample = 0; sample < SAMPLES; sample++) {
            recipe.quality = TSP_EXACT;
            draw(&encoded, &recipe, sample, 0, 1, exact);
            recipe.quality = TSP_FAST;
            draw(&encoded, &recipe, sample, 0, 1, fast);
            double square = mean_square(exact, fast);
            sum += square;
            worst = fmax(worst, square);
            differ += memcmp(exact, fast, BYTES) != 0;
        }
        tsp_encoded_fini(&encoded);
    }
    print_message("%.1f dB, at worst %.1f dB\n", psnr(sum / (2 * SAMPLES)), psnr(worst));
    assert_true(psnr(sum / (2 * SAMPLES)) >= FAST_PSNR);
    assert_true(psnr(worst) >= FAST_PSNR_WORST);
    assert_true(differ > SAMPLES); /* else nothing was decoded smaller */
}

static void one_exact_view_makes_all_exact(void **state)
{
    (void)state;
    static uint8_t made[2 * BYTES], expected[BYTES];
    struct tsp_recipe recipe = small_recipe(), fast = recipe;
    struct tsp_encoded encoded = read_file("large/444.jpg");
    struct tsp_view views[2];
    uint32_t width, height;
    fast.quality = TSP_FAST;
    draw(&encoded, &recipe, 3, 0, 1, expected);
    assert_int_equal(tsp_decoder_header(decoder, &encoded, true, &width, &height), TSP_GOOD);
    tsp_view_plan(&fast, 0, 3, 0, width, height, &views[0]);
    tsp_view_plan(&recipe, 0, 3, 1, width, height, &views[1]);
    views[0].out.data = made;
    views[1].out.data = made + BYTES;
    assert_int_equal(tsp_decoder_draw(decoder, views, 2), TSP_GOOD);
    assert_memory_equal(made, expected, BYTES);
    tsp_encoded_fini(&encoded);
}

static void nothing_is_allocated_after_warm_up(void **state)
{
    (void)state;
    static uint8_t made[2 * BYTES];
    const struct tsp_recipe recipe = small_recipe();
    struct tsp_encoded encoded[2] = {read_file("large/420.jpg"), read_file("444_333x251.jpg")};
    struct tsp_encoded sideways = with_orientation(&encoded[0], 6);
    for (int warm = 0; warm < 2; warm++) {
        uint64_t before = allocations;
        for (uint64_t sample = 0; sample < 2 * SAMPLES; sample++)
            draw(sample % 5 ? &encoded[sample % 2] : &sideways, &recipe, sample, 0, 2, made);
        if (warm)
            assert_int_equal(allocations, before);
    }
    tsp_encoded_fini(&encoded[0]);
    tsp_encoded_fini(&encoded[1]);
    tsp_encoded_fini(&sideways);
}

/* A new decoder and one picture, of which the k-th allocation fails. True: it was never reached. */
static bool survives(const struct tsp_encoded *encoded, uint64_t k)
{
    static uint8_t made[BYTES];
    const struct tsp_recipe recipe = small_recipe();
    struct tsp_view view;
    uint32_t width, height;
    enum tsp_bad bad = TSP_STOP;
    allocations = 0;
    failing = k;
    struct tsp_decoder *poor = tsp_decoder_create(&limits);
    if (poor) {
        bad = tsp_decoder_header(poor, encoded, true, &width, &height);
        if (bad == TSP_GOOD) {
            tsp_view_plan(&recipe, 0, 0, 0, width, height, &view);
            view.out.data = made;
            bad = tsp_decoder_draw(poor, &view, 1);
        }
        if (bad != TSP_GOOD)
            assert_non_null(strstr(tsp_decoder_why(poor), "emory"));
    }
    bool reached = allocations >= k;
    failing = 0;
    assert_true(bad == TSP_GOOD || (reached && bad == TSP_STOP)); /* libpng can do without some things */
    tsp_decoder_destroy(poor);
    return !reached;
}

static void failing_allocations_stop_the_run_and_leak_nothing(void **state)
{
    (void)state;
    static const char *const names[] = {"444_333x251.jpg", "png/RGB_333x251.png", "png/interlaced_333x251.png"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct tsp_encoded encoded = read_file(names[i]);
        uint64_t k = 1;
        while (!survives(&encoded, k))
            k++;
        assert_true(k > 10);
        tsp_encoded_fini(&encoded);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(several_views_are_those_that_come_alone),
        cmocka_unit_test(crops_of_turned_pictures_are_those_of_upright_ones),
        cmocka_unit_test(an_orientation_may_be_left_alone),
        cmocka_unit_test(fast_is_near_exact),
        cmocka_unit_test(one_exact_view_makes_all_exact),
        cmocka_unit_test(nothing_is_allocated_after_warm_up),
        cmocka_unit_test(failing_allocations_stop_the_run_and_leak_nothing),
    };
    return cmocka_run_group_tests(tests, make, discard);
}
