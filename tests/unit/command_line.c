/* SPDX-License-Identifier: Apache-2.0 */
#include "command_line.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

#include "producer/config.h"

#define ARGUMENTS_MAX 64

static char *no_environment[] = {NULL};
struct tsp_options options;
struct tsp_problem problem;

/* Splits a copy of `line` at its spaces: enough for arguments without any. */
static int split(char *line, char **argv)
{
    int argc = 0;

    argv[argc++] = "tsocketd";
    for (char *word = strtok(line, " "); word != NULL; word = strtok(NULL, " ")) {
        assert_true(argc < ARGUMENTS_MAX);
        argv[argc++] = word;
    }
    return argc;
}

bool parse_in(char *const *environment, const char *line)
{
    char copy[1024], *argv[ARGUMENTS_MAX];

    snprintf(copy, sizeof(copy), "%s", line);
    int argc = split(copy, argv);
    return tsp_options_parse(argc, argv, environment, &options, &problem);
}

bool parse(const char *line)
{
    return parse_in(no_environment, line);
}

bool merge_config(const char *json, const char *line)
{
    struct tsp_layer layers[2] = {0};
    char copy[256], *argv[ARGUMENTS_MAX];

    snprintf(copy, sizeof(copy), "%s", line);
    int argc = split(copy, argv);
    bool good = tsp_config_parse(&layers[0], json, "conf.json", &problem) &&
                tsp_layer_flags(&layers[1], argc, argv, &problem) && tsp_options_merge(layers, 2, &options, &problem);
    tsp_layer_fini(&layers[0]);
    tsp_layer_fini(&layers[1]);
    return good;
}

void assert_problem(const char *text)
{
    if (strcmp(problem.text, text) != 0)
        fail_msg("got:      %s\nexpected: %s", problem.text, text);
}

void done(void)
{
    tsp_options_fini(&options);
}
