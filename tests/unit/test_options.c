/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "command_line.h"
#include "producer/option.h"
#include "producer/usage.h"

/* ---- defaults and precedence ---- */

static void defaults_are_those_of_the_recipe(void **state)
{
    (void)state;
    struct tsp_recipe recipe;
    tsp_recipe_init(&recipe);
    assert_true(parse("/data"));
    assert_int_equal(options.n_streams, 1);
    const struct tsp_stream_options *train = &options.streams[0];
    assert_string_equal(train->name, "train");
    assert_string_equal(train->source, "/data");
    assert_int_equal(train->recipe.size, recipe.size);
    assert_int_equal(train->recipe.augment, recipe.augment);
    assert_memory_equal(train->recipe.scale, recipe.scale, sizeof(recipe.scale));
    assert_memory_equal(train->recipe.ratio, recipe.ratio, sizeof(recipe.ratio));
    assert_true(train->recipe.hflip == recipe.hflip);
    assert_true(train->recipe.crop_pct == recipe.crop_pct);
    assert_int_equal(train->recipe.filter, recipe.filter);
    assert_int_equal(train->recipe.quality, recipe.quality);
    assert_true(train->recipe.exif == recipe.exif);
    assert_int_equal(train->n_views, 0);
    assert_false(train->aug);
    assert_int_equal(train->recipe.dtype, recipe.dtype);
    assert_int_equal(train->recipe.layout, recipe.layout);
    assert_memory_equal(train->recipe.mean, recipe.mean, sizeof(recipe.mean));
    assert_memory_equal(train->recipe.std, recipe.std, sizeof(recipe.std));
    assert_true(train->recipe.seed == recipe.seed);
    assert_true(train->recipe.shuffle == recipe.shuffle);
    assert_string_equal(options.name, "main");
    assert_int_equal(options.join_grace_ms, 5000);
    assert_int_equal(options.workers, 0);
    done();
}

static void a_flag_wins_over_a_variable_over_the_file_over_the_default(void **state)
{
    (void)state;
    char *environment[] = {"HOME=/", "TSOCKETD_SIZE=64", "TSOCKETD_MAX_BATCH=16", NULL};
    assert_true(parse_in(environment, "--size 32 /data"));
    assert_int_equal(options.streams[0].recipe.size, 32);
    assert_int_equal(options.streams[0].max_batch, 16);
    done();
    assert_true(merge_config("{\"size\": 96, \"max-batch\": 8, \"dataset\": \"/file\"}", "--size 32"));
    assert_int_equal(options.streams[0].recipe.size, 32);
    assert_int_equal(options.streams[0].max_batch, 8);
    assert_string_equal(options.streams[0].source, "/file");
    done();
    assert_true(merge_config("{\"dataset\": \"/file\"}", "/flag"));
    assert_string_equal(options.streams[0].source, "/flag");
    done();
}

static void the_last_of_two_flags_counts(void **state)
{
    (void)state;
    assert_true(parse("--size 32 --size=48 --shuffle --no-shuffle /data"));
    assert_int_equal(options.streams[0].recipe.size, 48);
    assert_false(options.streams[0].recipe.shuffle);
    done();
}

static void lists_grow_within_a_layer_and_replace_a_weaker_one(void **state)
{
    (void)state;
    char *environment[] = {"TSOCKETD_ALLOW_UID=7,8,9", NULL};
    assert_true(parse_in(environment, "--allow-uid 1,2 --allow-uid 3 /data"));
    assert_int_equal(options.allow_uids.count, 3);
    assert_int_equal(options.allow_uids.values[0], 1);
    assert_int_equal(options.allow_uids.values[2], 3);
    done();
    assert_true(parse_in(environment, "/data"));
    assert_int_equal(options.allow_uids.count, 3);
    assert_int_equal(options.allow_uids.values[2], 9);
    done();
    assert_true(merge_config("{\"streams\": [{\"name\": \"a\", \"source\": \"/a\"}]}", "--stream b=/b"));
    assert_int_equal(options.n_streams, 1);
    assert_string_equal(options.streams[0].name, "b");
    done();
}

static void an_empty_variable_is_not_set(void **state)
{
    (void)state;
    char *environment[] = {"TSOCKETD_SIZE=", "TSOCKETD_PORT=tcp://10.0.0.1:80", "TSOCKETD_SERVICE_HOST=x", NULL};
    assert_true(parse_in(environment, "/data"));
    assert_int_equal(options.streams[0].recipe.size, 224);
    done();
}

/* ---- streams ---- */

static void keys_of_a_stream_win_over_all_else(void **state)
{
    (void)state;
    assert_true(parse("--stream val=/data/val,augment=eval,shuffle=off,size=96 --augment train --size 32 /data"));
    assert_int_equal(options.n_streams, 2);
    assert_string_equal(options.streams[0].name, "train");
    assert_int_equal(options.streams[0].recipe.size, 32);
    assert_string_equal(options.streams[1].name, "val");
    assert_string_equal(options.streams[1].source, "/data/val");
    assert_int_equal(options.streams[1].recipe.augment, TSP_AUGMENT_EVAL);
    assert_int_equal(options.streams[1].recipe.size, 96);
    assert_false(options.streams[1].recipe.shuffle);
    assert_true(options.named_streams);
    done();
}

static void without_a_dataset_there_is_no_train(void **state)
{
    (void)state;
    assert_true(parse("--stream val=/data/val --stream test=/data/test"));
    assert_int_equal(options.n_streams, 2);
    assert_string_equal(options.streams[0].name, "val");
    assert_string_equal(options.streams[1].name, "test");
    done();
}

static void values_and_folders_of_a_stream_may_have_commas(void **state)
{
    (void)state;
    assert_true(parse("--stream v=/data/a,b,scale=0.5,1,ratio=1,2,mean=1,2,3,dtype=float32"));
    assert_string_equal(options.streams[0].source, "/data/a,b");
    assert_true(options.streams[0].recipe.scale[0] == 0.5 && options.streams[0].recipe.scale[1] == 1);
    assert_true(options.streams[0].recipe.ratio[1] == 2);
    assert_true(options.streams[0].recipe.mean[2] == 3);
    done();
}

static void every_problem_of_a_stream_is_said(void **state)
{
    (void)state;
    static const struct {
        const char *line, *text;
    } wrong[] = {
        {"--stream val", "--stream val: must be NAME=FOLDER[,KEY=VALUE...]; for example --stream "
                         "val=/data/val,augment=eval"},
        {"--stream val=", "--stream val=: the folder is missing; for example val=/data/val"},
        {"--stream a/b=/d", "--stream a/b=/d: a stream's name has 1 to 64 of the characters A-Z a-z 0-9 . _ - and does "
                            "not start with a dot; for example val"},
        {"--stream v=/d,sise=3", "--stream v: sise=3: unknown key sise; did you mean size?"},
        {"--stream v=/d,qqqqqqqq=3",
         "--stream v: qqqqqqqq=3: unknown key qqqqqqqq; tsocketd --help marks the keys of a "
         "stream with *"},
        {"--stream v=/d,workers=3", "--stream v: workers=3: workers is the same for all streams; give it as --workers"},
        {"--stream v=/d,size=0", "--stream v: size=0: must be a whole number from 1 to 8192; for example 224"},
        {"--stream train=/d /data", "--stream train=/d: there is a stream train already, of /data; give one of them "
                                    "another name"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_false(parse(wrong[i].line));
        assert_problem(wrong[i].text);
    }
}

static void there_is_a_limit_to_the_streams(void **state)
{
    (void)state;
    char line[1024];
    size_t used = 0;
    for (int i = 0; i < TSOCKET_STREAMS_MAX; i++)
        used += (size_t)snprintf(line + used, sizeof(line) - used, "--stream s%d=/d ", i);
    assert_true(parse(line));
    assert_int_equal(options.n_streams, TSOCKET_STREAMS_MAX);
    done();
    snprintf(line + used, sizeof(line) - used, "/data");
    assert_false(parse(line));
    assert_problem("--stream s15=/d: a daemon serves at most 16 streams; start another one for it");
}

static void a_switch_may_be_given_its_word(void **state)
{
    (void)state;
    assert_true(parse("--exif off --shuffle on --aug --list ./off"));
    assert_false(options.streams[0].recipe.exif);
    assert_true(options.streams[0].recipe.shuffle && options.streams[0].aug && options.list);
    assert_string_equal(options.streams[0].source, "./off");
    done();
    assert_true(parse("--exif=off /data"));
    assert_false(options.streams[0].recipe.exif);
    done();
    assert_true(parse("--list off")); /* which is no setting, but something to do */
    assert_string_equal(options.streams[0].source, "off");
    done();
}

/* ---- problems ---- */

static void every_bad_value_names_flag_value_limit_and_way_out(void **state)
{
    (void)state;
    static const struct {
        const char *line, *text;
    } wrong[] = {
        {"--size 0 /d", "--size 0: must be a whole number from 1 to 8192; for example 224"},
        {"--size=-3 /d", "--size -3: must be a whole number from 1 to 8192; for example 224"},
        {"--augment all /d", "--augment all: must be one of train, eval; for example train"},
        {"--scale 1,0.5 /d",
         "--scale 1,0.5: must be two numbers, the smaller first, with a comma between, from 1e-06 to "
         "1; for example 0.08,1"},
        {"--scale 0.5 /d",
         "--scale 0.5: must be two numbers, the smaller first, with a comma between, from 1e-06 to 1; "
         "for example 0.08,1"},
        {"--hflip 1.5 /d", "--hflip 1.5: must be a number from 0 to 1; for example 0.5"},
        {"--mean 1,2 /d",
         "--mean 1,2: must be three numbers (red, green, blue) with commas between, from -1000 to 1000; "
         "for example 0.485,0.456,0.406"},
        {"--std 0,0,0 /d", "--std 0,0,0: must be three numbers (red, green, blue) with commas between, from 1e-06 to "
                           "1000; for example 0.229,0.224,0.225"},
        {"--seed -1 /d", "--seed -1: must be a whole number, 0 or more; for example 0"},
        {"--ring 3Q /d", "--ring 3Q: must be a whole number, or one with the unit k, M, G, KiB, MiB or GiB, from 1 to "
                         "1125899906842624; for example 1024, or 2GiB for so many bytes"},
        {"--join-grace 5d /d", "--join-grace 5d: must be a time in seconds, or with the unit ms, s, m or h, up to "
                               "3600s; for example 5s"},
        {"--workers 0 /d", "--workers 0: must be a whole number from 1 to 1024; for example 4"},
        {"--name .x /d", "--name .x: must be 1 to 64 of the characters A-Z a-z 0-9 . _ -, not starting with a dot; for "
                         "example main"},
        {"--allow-uid root /d", "--allow-uid root: must be up to 64 numbers, with commas between; for example 1000"},
        {"--shuffle=maybe /d", "--shuffle=maybe: must be on or off; for example on"},
        {"/d --size", "--size: a value must follow: --size PIXELS"},
        {"--sise 3 /d", "--sise: unknown option; did you mean --size?"},
        {"--no-sufle /d", "--no-sufle: unknown option; tsocketd --help lists them"},
        {"--quatsch /d", "--quatsch: unknown option; tsocketd --help lists them"},
        {"-x /d", "-x: unknown option; tsocketd --help lists them"},
        {"/a /b", "/b: one DATASET is given already, /a; --stream NAME=FOLDER serves more"},
        {"", "nothing to serve: give a DATASET (tsocketd /data/train) or streams (--stream val=/data/val); tsocketd "
             "--help explains both"},
        {"--mean 1,2,3 /d",
         "stream train: --mean and --std do nothing with --dtype uint8; leave them out, or add --dtype "
         "float32, float16 or bfloat16"},
        {"--dtype float64 /d", "--dtype float64: must be one of uint8, float16, bfloat16, float32; for example uint8"},
        {"--dtype float16 --std 1,1e-5,1 /d", "stream train: mean 0,0,0 and std 1,1e-05,1: values up to 100000, but "
                                              "float16 ends at 65504; take bfloat16"},
        {"--ring 10 --max-batch 20 /d",
         "stream train: --max-batch 20 is more than --ring 10 holds; raise --ring to 20 or "
         "more, or lower --max-batch"},
        {"--config /nowhere/at.all", "--config /nowhere/at.all: No such file or directory"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_false(parse(wrong[i].line));
        assert_problem(wrong[i].text);
    }
}

static void a_bad_variable_is_named_as_one(void **state)
{
    (void)state;
    char *bad[] = {"TSOCKETD_SIZE=0", NULL}, *slip[] = {"TSOCKETD_MAXBATCH=1", NULL};
    assert_false(parse_in(bad, "/data"));
    assert_problem("TSOCKETD_SIZE=0: must be a whole number from 1 to 8192; for example 224");
    assert_false(parse_in(slip, "/data"));
    assert_problem("TSOCKETD_MAXBATCH=1: unknown variable; did you mean the one for --max-batch?");
}

static void a_message_holds_nothing_for_the_terminal_to_obey(void **state)
{
    (void)state;
    assert_false(parse("--size \033[31m\n7 /d"));
    assert_problem("--size ?[31m?7: must be a whole number from 1 to 8192; for example 224");
}

/* ---- the file ---- */

static void a_file_takes_values_of_every_kind(void **state)
{
    (void)state;
    assert_true(merge_config("{\"dataset\": \"/d\", \"size\": 64, \"shuffle\": false, \"scale\": [0.25, 1],"
                             " \"ring\": \"2GiB\", \"hflip\": 0.1, \"seed\": \"18446744073709551615\","
                             " \"allow-uid\": [1, 2],"
                             " \"streams\": [{\"name\": \"val\", \"source\": \"/v\", \"augment\": \"eval\"}]}",
                             ""));
    assert_int_equal(options.n_streams, 2);
    const struct tsp_stream_options *train = &options.streams[0];
    assert_int_equal(train->recipe.size, 64);
    assert_false(train->recipe.shuffle);
    assert_true(train->recipe.scale[0] == 0.25);
    assert_true(train->ring.bytes && train->ring.amount == UINT64_C(2) << 30);
    assert_true(train->recipe.hflip == 0.1);
    assert_true(train->recipe.seed == UINT64_MAX);
    assert_int_equal(options.allow_uids.count, 2);
    assert_int_equal(options.streams[1].recipe.augment, TSP_AUGMENT_EVAL);
    assert_int_equal(options.streams[1].recipe.size, 64);
    done();
}

static void a_file_may_write_streams_as_the_flag_does(void **state)
{
    (void)state;
    assert_true(merge_config("{\"stream\": [\"a=/a,size=8\", \"b=/b\"]}", ""));
    assert_int_equal(options.n_streams, 2);
    assert_int_equal(options.streams[0].recipe.size, 8);
    done();
    assert_true(merge_config("{\"stream\": \"a=/a\"}", ""));
    assert_int_equal(options.n_streams, 1);
    done();
}

static void every_problem_of_a_file_is_said(void **state)
{
    (void)state;
    static const char value[] = "must be a string of less than 4096 bytes, a number below 2^53 (a larger one as a "
                                "string), true, false, or a list of numbers";
    static const char object[] = "must be an object with the strings \"name\" and \"source\"; for example {\"name\": "
                                 "\"val\", \"source\": \"/data/val\", \"augment\": \"eval\"}";
    char text[512];
    static const struct {
        const char *json, *text, *more;
    } wrong[] = {
        {"{\n \"size\": 3,\n}",
         "conf.json:3:2: not JSON (names and strings in double quotes, no comma after the last "
         "member, no comments)",
         ""},
        {"[]", "conf.json: must be an object; for example {\"dataset\": \"/data/train\", \"size\": 224}", ""},
        {"{\"size\": 0}", "conf.json: size = 0: must be a whole number from 1 to 8192; for example 224", ""},
        {"{\"size\": 1.5}", "conf.json: size = 1.5: must be a whole number from 1 to 8192; for example 224", ""},
        {"{\"size\": null}", "conf.json: size: ", value},
        {"{\"size\": {}}", "conf.json: size: ", value},
        {"{\"seed\": 18446744073709551615}", "conf.json: seed: ", value},
        {"{\"mean\": [[1],2]}", "conf.json: mean: ", value},
        {"{\"size\": 3, \"size\": 4}", "conf.json: size is given twice", ""},
        {"{\"max_batch\": 3}", "conf.json: unknown key \"max_batch\"; did you mean \"max-batch\"?", ""},
        {"{\"config\": \"x\"}", "conf.json: \"config\" is not a key of this file; tsocketd --help lists the names", ""},
        {"{\"help\": true}", "conf.json: \"help\" is not a key of this file; tsocketd --help lists the names", ""},
        {"{\"streams\": {}}",
         "conf.json: streams: must be a list of objects; for example [{\"name\": \"val\", "
         "\"source\": \"/data/val\"}]",
         ""},
        {"{\"streams\": [3]}", "conf.json: streams[0]: ", object},
        {"{\"streams\": [{\"name\": 3, \"source\": \"x\"}]}", "conf.json: streams[0]: ", object},
        {"{\"streams\": [{\"name\": \"a\", \"source\": \"/a\", \"sise\": 3}]}",
         "conf.json: streams[0]: unknown key sise; did you mean size?", ""},
        {"{\"streams\": [{\"name\": \"a\", \"source\": \"/a\", \"size\": 0}]}",
         "conf.json: streams[0]: size = 0: must be a whole number from 1 to 8192; for example 224", ""},
        {"{\"stream\": 3}",
         "conf.json: stream: must be a string NAME=FOLDER[,KEY=VALUE...] or a list of such; objects "
         "go into \"streams\"",
         ""},
        {"{\"stream\": \"a=/a\", \"streams\": [{\"name\": \"b\", \"source\": \"/b\"}]}",
         "conf.json: streams are given twice; put all of them into one \"streams\"", ""},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        assert_false(merge_config(wrong[i].json, "/data"));
        snprintf(text, sizeof(text), "%s%s", wrong[i].text, wrong[i].more);
        assert_problem(text);
    }
}

/* ---- help ---- */

static void help_and_version_do_not_look_at_the_rest(void **state)
{
    (void)state;
    char *environment[] = {"TSOCKETD_SIZE=0", NULL};
    assert_true(parse_in(environment, "--help"));
    assert_true(options.help);
    done();
    assert_true(parse_in(environment, "-h --config /nowhere"));
    assert_true(options.help);
    done();
    assert_true(parse_in(environment, "--version"));
    assert_true(options.version);
    done();
}

static void help_names_every_option(void **state)
{
    (void)state;
    char *text, name[64];
    size_t len;
    FILE *file = open_memstream(&text, &len);
    assert_non_null(file);
    tsp_usage_print(file);
    fclose(file);
    for (size_t i = 0; i < tsp_option_count; i++) {
        snprintf(name, sizeof(name), "%s", tsp_option_table[i].name);
        if (strstr(text, name) == NULL)
            fail_msg("--%s is missing", name);
    }
    for (const char *line = text; line != NULL && *line != '\0';) {
        size_t columns = strcspn(line, "\n");
        assert_true(columns <= 80);
        line += columns + 1;
    }
    free(text);
}

/* ---- the ring ---- */

static void assert_ring(const char *line, uint64_t sample_bytes, uint64_t capacity, uint32_t max_batch)
{
    struct tsp_ring_plan plan;
    assert_true(parse(line));
    assert_true(tsp_options_ring(&options.streams[0], sample_bytes, &plan, &problem));
    assert_true(plan.capacity == capacity);
    assert_int_equal(plan.max_batch, max_batch);
    done();
}

static void the_ring_follows_the_batch_and_the_batch_a_small_ring(void **state)
{
    (void)state;
    assert_ring("/d", 1000, 1024, 256);
    assert_ring("--max-batch 64 /d", 1000, 256, 64);
    assert_ring("--ring 4096 /d", 1000, 4096, 256);
    assert_ring("--ring 100 /d", 1000, 100, 50);
    assert_ring("--ring 1 /d", 1000, 1, 1);
    assert_ring("--ring 20 --max-batch 20 /d", 1000, 20, 20);
}

static void bytes_pay_for_the_mirror_too(void **state)
{
    (void)state;
    assert_ring("--ring 1000k /d", 1000, 744, 256);
    assert_ring("--ring 300k /d", 1000, 200, 100);
    assert_ring("--ring 300k --max-batch 10 /d", 1000, 290, 10);
}

static void a_ring_of_too_few_bytes_is_refused(void **state)
{
    (void)state;
    struct tsp_ring_plan plan;
    assert_true(parse("--ring 2k /d"));
    assert_false(tsp_options_ring(&options.streams[0], 1000, &plan, &problem));
    assert_problem(
        "stream train: --ring 2000B holds no batch of 1 samples of 1000 bytes; raise it to 2000B or more, or "
        "lower --max-batch");
    done();
}

/* ---- lists of bad samples ---- */

static void a_skip_list_may_differ_by_stream(void **state)
{
    (void)state;
    assert_true(parse("--skip a.skip --stream val=/val,skip=b.skip --stream test=/test /data"));
    assert_string_equal(options.streams[0].skip, "a.skip");
    assert_string_equal(options.streams[1].skip, "b.skip");
    assert_string_equal(options.streams[2].skip, "a.skip");
    done();
    assert_true(parse("/data"));
    assert_null(options.streams[0].skip);
    done();
}

static void a_list_is_written_by_a_check_of_one_whole_dataset(void **state)
{
    (void)state;
    assert_true(parse("--check --json --write-skip x /data"));
    assert_string_equal(options.write_skip, "x");
    assert_true(options.json);
    done();
    assert_false(parse("--write-skip x /data"));
    assert_problem("--write-skip x: only --check finds out what belongs there; add --check");
    assert_false(parse("--check --write-skip x --stream a=/a --stream b=/b"));
    assert_problem("--write-skip x: a list is of one dataset, not of 2; check each alone");
    assert_false(parse("--check --write-skip x --skip y /data"));
    assert_problem("--write-skip x: would lack what --skip y leaves out; leave out --skip, and the list holds all");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_are_those_of_the_recipe),
        cmocka_unit_test(a_flag_wins_over_a_variable_over_the_file_over_the_default),
        cmocka_unit_test(the_last_of_two_flags_counts),
        cmocka_unit_test(lists_grow_within_a_layer_and_replace_a_weaker_one),
        cmocka_unit_test(an_empty_variable_is_not_set),
        cmocka_unit_test(keys_of_a_stream_win_over_all_else),
        cmocka_unit_test(without_a_dataset_there_is_no_train),
        cmocka_unit_test(values_and_folders_of_a_stream_may_have_commas),
        cmocka_unit_test(every_problem_of_a_stream_is_said),
        cmocka_unit_test(there_is_a_limit_to_the_streams),
        cmocka_unit_test(a_switch_may_be_given_its_word),
        cmocka_unit_test(every_bad_value_names_flag_value_limit_and_way_out),
        cmocka_unit_test(a_bad_variable_is_named_as_one),
        cmocka_unit_test(a_message_holds_nothing_for_the_terminal_to_obey),
        cmocka_unit_test(a_file_takes_values_of_every_kind),
        cmocka_unit_test(a_file_may_write_streams_as_the_flag_does),
        cmocka_unit_test(every_problem_of_a_file_is_said),
        cmocka_unit_test(help_and_version_do_not_look_at_the_rest),
        cmocka_unit_test(help_names_every_option),
        cmocka_unit_test(the_ring_follows_the_batch_and_the_batch_a_small_ring),
        cmocka_unit_test(bytes_pay_for_the_mirror_too),
        cmocka_unit_test(a_ring_of_too_few_bytes_is_refused),
        cmocka_unit_test(a_skip_list_may_differ_by_stream),
        cmocka_unit_test(a_list_is_written_by_a_check_of_one_whole_dataset),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
