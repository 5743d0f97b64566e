/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "producer/decode.h"

enum {
    DRAWS = 40000,
};

static void assert_near(double value, double expected, double tolerance)
{
    if (!(fabs(value - expected) <= tolerance))
        fail_msg("%g is not within %g of %g", value, tolerance, expected);
}

static void assert_inside(const struct tsp_view *view, uint32_t width, uint32_t height)
{
    const double hair = 1e-6;
    assert_true(view->width > 0 && view->height > 0);
    assert_true(view->x >= -hair && view->x + view->width <= width + hair);
    assert_true(view->y >= -hair && view->y + view->height <= height + hair);
}

/* In a large square picture nearly every first draw fits where the scale is small, so the distribution is the rule's.
 */
static void crops_have_the_area_and_shape_asked_for(void **state)
{
    (void)state;
    struct tsp_recipe recipe;
    struct tsp_view view;
    double area = 0, log_ratio = 0, log_ratio_squared = 0, x = 0, flips = 0;
    tsp_recipe_init(&recipe);
    recipe.scale[1] = 0.7; /* above, wide and tall crops of a square do not fit and are drawn again */
    for (uint64_t i = 0; i < DRAWS; i++) {
        tsp_view_plan(&recipe, 0, i, 0, 2000, 2000, &view);
        assert_inside(&view, 2000, 2000);
        double share = view.width * view.height / (2000.0 * 2000.0);
        double ratio = view.width / view.height;
        assert_true(share > 0.0799 && share < 0.7005 && ratio > 0.748 && ratio < 1.336);
        assert_true(view.x == floor(view.x) && view.width == floor(view.width));
        area += share;
        log_ratio += log(ratio);
        log_ratio_squared += log(ratio) * log(ratio);
        x += view.x / (2000 - view.width);
        flips += view.flip;
    }
    double half = log(4.0 / 3.0);
    assert_near(area / DRAWS, 0.39, 0.005);
    assert_near(log_ratio / DRAWS, 0, 0.005);
    assert_near(log_ratio_squared / DRAWS, half * half / 3, 0.002); /* uniform over the logarithm */
    assert_near(x / DRAWS, 0.5, 0.01);
    assert_near(flips / DRAWS, 0.5, 0.01);
}

static void pictures_that_no_crop_fits_give_their_centre(void **state)
{
    (void)state;
    struct tsp_recipe recipe;
    struct tsp_view view;
    tsp_recipe_init(&recipe);
    recipe.scale[0] = 0.5;
    for (uint64_t i = 0; i < 1000; i++) {
        tsp_view_plan(&recipe, 0, i, 0, 1000, 100, &view);
        assert_true(view.width == 133 && view.height == 100 && view.x == 433 && view.y == 0);
        tsp_view_plan(&recipe, 0, i, 0, 90, 1001, &view);
        assert_true(view.width == 90 && view.height == 120 && view.x == 0 && view.y == 440);
    }
}

/*
 * In a 3:1 picture a crop of share s and ratio r fits where s <= r / 3. The mean of r is 1.0139, so 0.28 of the draws
 * fit, and ten in a row do not with probability 0.72^10 = 0.0372.
 */
static void the_centre_is_the_exception(void **state)
{
    (void)state;
    struct tsp_recipe recipe;
    struct tsp_view view;
    uint32_t centres = 0;
    tsp_recipe_init(&recipe);
    for (uint64_t i = 0; i < DRAWS; i++) {
        tsp_view_plan(&recipe, 0, i, 0, 900, 300, &view);
        assert_inside(&view, 900, 300);
        centres += view.width == 400 && view.height == 300 && view.x == 250;
    }
    assert_near((double)centres / DRAWS, 0.0372, 0.004);
}

static void tiny_pictures_give_a_box(void **state)
{
    (void)state;
    static const uint32_t sides[] = {1, 2, 3, 7, 300, 65500};
    enum {
        N = sizeof sides / sizeof sides[0]
    };
    struct tsp_recipe recipe;
    struct tsp_view view;
    tsp_recipe_init(&recipe);
    for (size_t i = 0; i < N * N; i++)
        for (uint64_t sample = 0; sample < 50; sample++) {
            uint32_t width = sides[i / N], height = sides[i % N];
            recipe.augment = TSP_AUGMENT_TRAIN;
            tsp_view_plan(&recipe, 0, sample, 0, width, height, &view);
            assert_inside(&view, width, height);
            recipe.augment = TSP_AUGMENT_EVAL;
            tsp_view_plan(&recipe, 0, sample, 0, width, height, &view);
            assert_inside(&view, width, height);
        }
}

static bool same_box(const struct tsp_view *a, const struct tsp_view *b)
{
    return a->x == b->x && a->y == b->y && a->width == b->width && a->height == b->height && a->flip == b->flip;
}

static void a_crop_is_a_function_of_seed_epoch_sample_and_view(void **state)
{
    (void)state;
    struct tsp_recipe recipe, other_seed;
    struct tsp_view view, again;
    tsp_recipe_init(&recipe);
    other_seed = recipe;
    other_seed.seed = 1;
    tsp_view_plan(&recipe, 3, 5, 0, 640, 480, &view);
    tsp_view_plan(&recipe, 3, 5, 0, 640, 480, &again);
    assert_true(same_box(&view, &again));
    tsp_view_plan(&recipe, 4, 5, 0, 640, 480, &again);
    assert_false(same_box(&view, &again));
    tsp_view_plan(&recipe, 3, 6, 0, 640, 480, &again);
    assert_false(same_box(&view, &again));
    tsp_view_plan(&recipe, 3, 5, 1, 640, 480, &again);
    assert_false(same_box(&view, &again));
    tsp_view_plan(&other_seed, 3, 5, 0, 640, 480, &again);
    assert_false(same_box(&view, &again));
}

/* 500 x 375: the short side becomes 256, the long one 341; the crop starts at column 58 (58.5 to even), row 16. */
static void eval_takes_the_centre_of_the_resized_picture(void **state)
{
    (void)state;
    struct tsp_recipe recipe;
    struct tsp_view view;
    tsp_recipe_init(&recipe);
    recipe.augment = TSP_AUGMENT_EVAL;
    tsp_view_plan(&recipe, 7, 8, 0, 500, 375, &view);
    assert_near(view.x, 58 * 500.0 / 341, 1e-9);
    assert_near(view.y, 16 * 375.0 / 256, 1e-9);
    assert_near(view.width, 224 * 500.0 / 341, 1e-9);
    assert_near(view.height, 224 * 375.0 / 256, 1e-9);
    assert_false(view.flip);
    assert_int_equal(view.out.width, 224);
    assert_int_equal(view.out.height, 224);
}

static void flips_follow_the_probability(void **state)
{
    (void)state;
    struct tsp_recipe recipe;
    struct tsp_view view;
    tsp_recipe_init(&recipe);
    for (uint64_t i = 0; i < 100; i++) {
        recipe.hflip = 0;
        tsp_view_plan(&recipe, 0, i, 0, 100, 100, &view);
        assert_false(view.flip);
        recipe.hflip = 1;
        tsp_view_plan(&recipe, 0, i, 0, 100, 100, &view);
        assert_true(view.flip);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(crops_have_the_area_and_shape_asked_for),
        cmocka_unit_test(pictures_that_no_crop_fits_give_their_centre),
        cmocka_unit_test(the_centre_is_the_exception),
        cmocka_unit_test(tiny_pictures_give_a_box),
        cmocka_unit_test(a_crop_is_a_function_of_seed_epoch_sample_and_view),
        cmocka_unit_test(eval_takes_the_centre_of_the_resized_picture),
        cmocka_unit_test(flips_follow_the_probability),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
