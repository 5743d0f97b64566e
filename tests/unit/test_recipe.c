/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "producer/recipe.h"

static void the_default_recipe_is_good(void **state)
{
    (void)state;
    char text[256];
    struct tsp_recipe recipe;
    tsp_recipe_init(&recipe);
    assert_null(tsp_recipe_check(&recipe, text, sizeof text));
    assert_int_equal(recipe.size, 224);
    assert_true(recipe.crop_pct == 0.875);
    assert_true(recipe.shuffle);
}

static void assert_wrong(const struct tsp_recipe *recipe, const char *name)
{
    char text[256] = "";
    assert_non_null(tsp_recipe_check(recipe, text, sizeof text));
    assert_ptr_equal(strstr(text, name), text);
}

static void each_wrong_value_is_named(void **state)
{
    (void)state;
    struct tsp_recipe good, bad;
    tsp_recipe_init(&good);
#define WRONG(name, change)                                                                                            \
    bad = good;                                                                                                        \
    bad.change;                                                                                                        \
    assert_wrong(&bad, name)
    WRONG("size", size = 0);
    WRONG("size", size = 8193);
    WRONG("scale", scale[0] = 0);
    WRONG("scale", scale[0] = NAN);
    WRONG("scale", scale[1] = 0.01);
    WRONG("scale", scale[1] = 1.5);
    WRONG("ratio", ratio[0] = -1);
    WRONG("ratio", ratio[1] = INFINITY);
    WRONG("ratio", ratio[1] = 0.1);
    WRONG("hflip", hflip = 1.01);
    WRONG("hflip", hflip = NAN);
    WRONG("crop-pct", crop_pct = 0);
    WRONG("crop-pct", crop_pct = 1.1);
    WRONG("dtype", dtype = TSOCKET_INT64);
    WRONG("dtype", dtype = TSOCKET_FLOAT64);
    WRONG("mean", mean[2] = NAN);
    WRONG("std", std[1] = 0);
    WRONG("std", std[1] = INFINITY);
#undef WRONG
}

static void values_that_float16_cannot_hold_are_refused(void **state)
{
    (void)state;
    struct tsp_recipe recipe;
    tsp_recipe_init(&recipe);
    recipe.dtype = TSOCKET_FLOAT16;
    recipe.mean[0] = -1;
    recipe.std[0] = 2 / 65504.0f;
    char text[256];
    assert_null(tsp_recipe_check(&recipe, text, sizeof text));
    recipe.std[0] = 2 / 65505.0f;
    assert_wrong(&recipe, "mean");
    recipe.dtype = TSOCKET_BFLOAT16;
    assert_null(tsp_recipe_check(&recipe, text, sizeof text));
}

static void the_image_field_has_the_layout(void **state)
{
    (void)state;
    struct tsp_recipe recipe;
    struct tsocket_field field;
    tsp_recipe_init(&recipe);
    tsp_recipe_image_field(&recipe, 7, 5, &field);
    assert_string_equal(field.name, "image");
    assert_int_equal(field.dtype, TSOCKET_UINT8);
    assert_int_equal(field.ndim, 3);
    assert_int_equal(field.shape[0], 5);
    assert_int_equal(field.shape[1], 7);
    assert_int_equal(field.shape[2], 3);
    recipe.layout = TSP_NCHW;
    recipe.dtype = TSOCKET_FLOAT32;
    tsp_recipe_image_field(&recipe, 7, 5, &field);
    assert_int_equal(field.dtype, TSOCKET_FLOAT32);
    assert_int_equal(field.shape[0], 3);
    assert_int_equal(field.shape[1], 5);
    assert_int_equal(field.shape[2], 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_recipe_is_good),
        cmocka_unit_test(each_wrong_value_is_named),
        cmocka_unit_test(values_that_float16_cannot_hold_are_refused),
        cmocka_unit_test(the_image_field_has_the_layout),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
