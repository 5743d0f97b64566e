/* SPDX-License-Identifier: Apache-2.0 */
/* The options that say what becomes of a picture: views, and the recipe as one text. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "command_line.h"

/* ---- views ---- */

static void views_are_the_recipe_but_for_their_keys(void **state)
{
    (void)state;
    assert_true(parse("--view big --view small:size=96:scale=0.05,0.4,augment=eval --size 128 --hflip 0 /data"));
    const struct tsp_stream_options *train = &options.streams[0];
    assert_int_equal(train->n_views, 2);
    assert_string_equal(train->views[0].name, "big");
    assert_int_equal(train->views[0].recipe.size, 128);
    assert_string_equal(train->views[1].name, "small");
    assert_int_equal(train->views[1].recipe.size, 96);
    assert_int_equal(train->views[1].recipe.augment, TSP_AUGMENT_EVAL);
    assert_true(train->views[1].recipe.scale[0] == 0.05 && train->views[1].recipe.scale[1] == 0.4);
    assert_true(train->views[1].recipe.hflip == 0);
    assert_int_equal(train->recipe.size, 128);
    done();
}

static void a_streams_views_replace_the_common_ones(void **state)
{
    (void)state;
    assert_true(parse("--view a --view b /data --stream val=/val,view=c:size=64:augment=eval,aug=on,view=d"));
    assert_int_equal(options.streams[0].n_views, 2);
    assert_false(options.streams[0].aug);
    assert_int_equal(options.streams[1].n_views, 2);
    assert_string_equal(options.streams[1].views[0].name, "c");
    assert_int_equal(options.streams[1].views[0].recipe.size, 64);
    assert_string_equal(options.streams[1].views[1].name, "d");
    assert_true(options.streams[1].aug);
    done();
}

static void a_file_may_list_views(void **state)
{
    (void)state;
    assert_true(merge_config("{\"dataset\": \"/data\", \"view\": [\"a:size=32\", \"b\"]}", ""));
    assert_int_equal(options.streams[0].n_views, 2);
    assert_int_equal(options.streams[0].views[0].recipe.size, 32);
    done();
    assert_true(merge_config("{\"dataset\": \"/data\", \"view\": \"a:size=32\"}", ""));
    assert_int_equal(options.streams[0].n_views, 1);
    done();
    assert_false(merge_config("{\"dataset\": \"/data\", \"view\": [1]}", ""));
    assert_problem("conf.json: view: must be a string or a list of strings");
}

static void every_problem_of_a_view_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *line, *text;
    } wrong[] = {
        {"--view a:size=0 /d", "--view a: size=0: must be a whole number from 1 to 8192; for example 224"},
        {"--view a:seed=1 /d", "--view a: seed=1: seed is the same for all views of a stream"},
        {"--view a:sice=1 /d", "--view a: sice=1: unknown key; tsocketd --help marks the keys of a view with +"},
        {"--view a:eval /d", "--view a: eval: must be KEY=VALUE; for example size=96"},
        {"--view a: /d", "--view a: : must be KEY=VALUE; for example size=96"},
        {"--view a --view a /d", "--view a: there is a field a already; give the view another name"},
        {"--view index /d", "--view index: there is a field index already; give the view another name"},
        {"--view .a /d", "--view .a: a view's name has 1 to 60 of the characters A-Z a-z 0-9 . _ - and does not start "
                         "with a dot; for example small:size=96"},
        {"--view a:mean=1,1,1 /d", "stream train: view a: mean and std do nothing with dtype uint8; give the view "
                                   "mean=0,0,0:std=1,1,1, or dtype=float32, float16 or bfloat16"},
        {"--dtype float16 --mean 0.5,0.5,0.5 --view a --view b:dtype=uint8 /d",
         "stream train: view b: mean and std do nothing with dtype uint8; give the view mean=0,0,0:std=1,1,1, or "
         "dtype=float32, float16 or bfloat16"},
        {"--view a:dtype=float16:std=0.00001,1,1 /d",
         "stream train: view a: mean 0,0,0 and std 1e-05,1,1: values up to 100000, but float16 ends at 65504; take "
         "bfloat16"},
        {"--aug --view a --view b --view c --view d --view e --view f --view g --view h /d",
         "stream train: 8 views with --aug make 18 fields, the limit is 16; leave out some of the views, or --aug"},
        {"--view a --view b --view c --view d --view e --view f --view g --view h --view i /d",
         "--view i: must be a name, then keys: NAME[:KEY=VALUE...], of less than 256 bytes, and at most 8 of them; for "
         "example small:size=96:scale=0.05,0.4"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_false(parse(wrong[i].line));
        assert_problem(wrong[i].text);
    }
    assert_true(parse("--dtype float16 --mean 0.5,0.5,0.5 --view a --view b:dtype=uint8:mean=0,0,0:std=1,1,1 /d"));
    done();
}

/* ---- the recipe as text ---- */

static const char *recipe_of(const char *line)
{
    static char text[TSP_RECIPE_TEXT_MAX];

    assert_true(parse(line));
    tsp_options_recipe(&options, &options.streams[0], text);
    tsp_options_fini(&options);
    return text;
}

static void the_recipe_has_one_form(void **state)
{
    char plain[TSP_RECIPE_TEXT_MAX];

    (void)state;
    strcpy(plain, recipe_of("/data"));
    assert_string_equal(plain, "size=224 augment=train scale=0.080000000000000002,1 "
                               "ratio=0.75,1.3333333333333333 hflip=0.5 crop-pct=0.875 interpolation=bilinear "
                               "quality=exact dtype=uint8 layout=nhwc mean=0,0,0 std=1,1,1 aug=off exif=on "
                               "shuffle=on on-bad=skip max-pixels=200000000 max-scans=100 max-bytes=268435456");
    /* the same, said otherwise; and what changes neither order nor bytes */
    assert_string_equal(plain, recipe_of("--scale 8e-2,1.0 --crop-pct 7/8 --stream train=/other"));
    assert_string_equal(plain, recipe_of("--seed 7 --ring 99 --workers 3 --epochs 2 --hidden --cache 1M /data"));
}

static void each_option_that_changes_bytes_or_order_is_in_the_recipe(void **state)
{
    static const char *const lines[] = {
        "--size 225",
        "--augment eval",
        "--scale 0.09,1",
        "--ratio 0.7,1.3",
        "--hflip 0.4",
        "--crop-pct 0.9",
        "--quality fast",
        "--no-exif",
        "--no-shuffle",
        "--on-bad mask",
        "--max-pixels 1M",
        "--max-scans 99",
        "--max-bytes 1M",
        "--layout nchw",
        "--dtype float32",
        "--aug",
        "--view image",
        "--view a --view b",
        "--view a:size=96",
        "--view a:hflip=0",
        "--view b --view a",
        "--interpolation bicubic",
        "--dtype float16",
        "--dtype bfloat16",
        "--dtype float32 --mean 1,0,0",
        "--dtype float32 --std 2,1,1",
    };
    enum {
        N = sizeof(lines) / sizeof(lines[0])
    };
    static char texts[N + 1][TSP_RECIPE_TEXT_MAX];

    (void)state;
    strcpy(texts[N], recipe_of("/data"));
    for (size_t i = 0; i < N; i++) {
        char line[128];

        snprintf(line, sizeof(line), "%s /data", lines[i]);
        strcpy(texts[i], recipe_of(line));
    }
    for (size_t i = 0; i <= N; i++) {
        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(texts[i], texts[j]);
    }
}

static void the_longest_recipe_has_room(void **state)
{
    char line[1024] = "--dtype bfloat16 --mean -0.123456789,-0.123456789,-0.123456789 --std "
                      "0.123456789,0.123456789,0.123456789 --scale 0.12345678901234567,0.98765432109876543";

    (void)state;
    for (int i = 0; i < TSP_VIEWS_MAX; i++)
        sprintf(line + strlen(line), " --view %c2345678901234567890123456789012345678901234567890123456", 'a' + i);
    strcat(line, " /data");
    assert_true(strlen(recipe_of(line)) < TSP_RECIPE_TEXT_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(views_are_the_recipe_but_for_their_keys),
        cmocka_unit_test(a_streams_views_replace_the_common_ones),
        cmocka_unit_test(a_file_may_list_views),
        cmocka_unit_test(every_problem_of_a_view_is_said),
        cmocka_unit_test(the_recipe_has_one_form),
        cmocka_unit_test(each_option_that_changes_bytes_or_order_is_in_the_recipe),
        cmocka_unit_test(the_longest_recipe_has_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
