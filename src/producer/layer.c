/* SPDX-License-Identifier: Apache-2.0 */
#include "layer.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- settings and streams ---- */

static void settings_fini(struct tsp_settings *settings)
{
    for (size_t i = 0; i < settings->count; i++)
        free(settings->items[i].text);
    free(settings->items);
}

void tsp_layer_fini(struct tsp_layer *layer)
{
    for (uint32_t i = 0; i < layer->n_streams; i++) {
        free(layer->streams[i].name);
        free(layer->streams[i].source);
        settings_fini(&layer->streams[i].settings);
    }
    settings_fini(&layer->settings);
    memset(layer, 0, sizeof(*layer));
}

const char *tsp_layer_text(const struct tsp_layer *layer, const char *name)
{
    for (size_t i = layer->settings.count; i > 0; i--) {
        if (strcmp(layer->settings.items[i - 1].option->name, name) == 0)
            return layer->settings.items[i - 1].text;
    }
    return NULL;
}

bool tsp_settings_add(struct tsp_settings *settings, const struct tsp_option *option, const char *text,
                      const char *label, struct tsp_problem *problem_out)
{
    struct tsp_setting *items = realloc(settings->items, (settings->count + 1) * sizeof(*items));

    if (items == NULL)
        return tsp_problem_set(problem_out, "%s: out of memory", label);
    settings->items = items;
    struct tsp_setting *item = &items[settings->count];
    item->option = option;
    item->text = strdup(text);
    if (item->text == NULL)
        return tsp_problem_set(problem_out, "%s: out of memory", label);
    snprintf(item->label, sizeof(item->label), "%s", label);
    settings->count++;
    return true;
}

struct tsp_stream_spec *tsp_layer_add_stream(struct tsp_layer *layer, const char *name, size_t name_len,
                                             const char *source, size_t source_len, const char *label,
                                             struct tsp_problem *problem_out)
{
    if (layer->n_streams == TSOCKET_STREAMS_MAX) {
        tsp_problem_set(problem_out, "%s: a daemon serves at most %d streams; start another one for it", label,
                        TSOCKET_STREAMS_MAX);
        return NULL;
    }
    struct tsp_stream_spec *stream = &layer->streams[layer->n_streams];
    memset(stream, 0, sizeof(*stream));
    stream->name = strndup(name, name_len);
    stream->source = strndup(source, source_len);
    snprintf(stream->label, sizeof(stream->label), "%s", label);
    layer->n_streams++;
    if (stream->name == NULL || stream->source == NULL) {
        tsp_problem_set(problem_out, "%s: out of memory", label);
        return NULL;
    }
    return stream;
}

const struct tsp_option *tsp_layer_stream_key(const char *key, size_t len, const char *label,
                                              struct tsp_problem *problem_out)
{
    const struct tsp_option *option = tsp_option_find(key, len);
    char name[TSP_LABEL_MAX];

    if (option != NULL && option->per_stream)
        return option;
    snprintf(name, sizeof(name), "%.*s", (int)len, key);
    const char *nearest = tsp_option_nearest(name, true);
    if (option != NULL)
        tsp_problem_set(problem_out, "%s: %s is the same for all streams; give it as --%s", label, name, name);
    else if (nearest != NULL)
        tsp_problem_set(problem_out, "%s: unknown key %s; did you mean %s?", label, name, nearest);
    else
        tsp_problem_set(problem_out, "%s: unknown key %s; tsocketd --help marks the keys of a stream with *", label,
                        name);
    return NULL;
}

/* A comma begins a key where "word=" follows, so that values (scale=0.5,1) and folders may have commas of their own. */
static const char *find_key(const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text != ',')
            continue;
        size_t word = strspn(text + 1, "abcdefghijklmnopqrstuvwxyz-_");
        if (word > 0 && text[1 + word] == '=')
            break;
    }
    return text;
}

static bool add_stream_key(struct tsp_settings *settings, const char *text, size_t len, const char *name,
                           struct tsp_problem *problem_out)
{
    char key[TSP_LABEL_MAX], label[TSP_LABEL_MAX];

    snprintf(label, sizeof(label), "--stream %.64s: %.*s", name, (int)len, text);
    if (len >= sizeof(key))
        return tsp_problem_set(problem_out, "%s: longer than any value may be", label);
    memcpy(key, text, len);
    key[len] = '\0';
    size_t word = strcspn(key, "=");
    const struct tsp_option *option = tsp_layer_stream_key(key, word, label, problem_out);
    return option != NULL && tsp_settings_add(settings, option, key + word + 1, label, problem_out);
}

bool tsp_layer_add_stream_text(struct tsp_layer *layer, const char *text, const char *label,
                               struct tsp_problem *problem_out)
{
    size_t name_len = strcspn(text, "=");

    if (text[name_len] == '\0')
        return tsp_problem_set(problem_out,
                               "%s: must be NAME=FOLDER[,KEY=VALUE...]; for example "
                               "--stream val=/data/val,augment=eval",
                               label);
    const char *source = text + name_len + 1;
    const char *key = find_key(source);
    struct tsp_stream_spec *stream =
        tsp_layer_add_stream(layer, text, name_len, source, (size_t)(key - source), label, problem_out);
    if (stream == NULL)
        return false;
    while (*key != '\0') {
        const char *next = find_key(key + 1);
        if (!add_stream_key(&stream->settings, key + 1, (size_t)(next - key - 1), stream->name, problem_out))
            return false;
        key = next;
    }
    return true;
}

static bool add(struct tsp_layer *layer, const struct tsp_option *option, const char *text, const char *label,
                struct tsp_problem *problem_out)
{
    if (option->type == TSP_OPTION_STREAM)
        return tsp_layer_add_stream_text(layer, text, label, problem_out);
    return tsp_settings_add(&layer->settings, option, text, label, problem_out);
}

/* ---- flags ---- */

/* The arguments that are still to be read. */
struct reader {
    char *const *argv;
    int argc;
    int next;
};

static bool unknown_flag(const char *argument, struct tsp_problem *problem_out)
{
    char name[64];

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(argument, "="), argument);
    const char *nearest = tsp_option_nearest(name + strspn(name, "-"), false);
    if (nearest != NULL)
        return tsp_problem_set(problem_out, "%s: unknown option; did you mean --%s?", name, nearest);
    return tsp_problem_set(problem_out, "%s: unknown option; tsocketd --help lists them", name);
}

static bool read_switch(struct tsp_layer *layer, const struct tsp_option *option, const char *value,
                        struct tsp_problem *problem_out)
{
    char label[TSP_LABEL_MAX];

    snprintf(label, sizeof(label), "--%s=%.64s", option->name, value);
    return add(layer, option, value, label, problem_out);
}

static bool read_value(struct tsp_layer *layer, const struct tsp_option *option, const char *value,
                       struct reader *reader, struct tsp_problem *problem_out)
{
    char label[TSP_LABEL_MAX];

    if (value == NULL && reader->next == reader->argc)
        return tsp_problem_set(problem_out, "--%s: a value must follow: --%s %s", option->name, option->name,
                               option->argument);
    if (value == NULL)
        value = reader->argv[reader->next++];
    snprintf(label, sizeof(label), "--%s %.64s", option->name, value);
    return add(layer, option, value, label, problem_out);
}

/* A switch needs no value, but may have one: "--exif off". A folder of that name is ./off. */
static const char *switch_value(const struct tsp_option *option, struct reader *reader)
{
    const char *next = reader->next < reader->argc ? reader->argv[reader->next] : "";

    if (option->flag_only || (strcmp(next, "on") != 0 && strcmp(next, "off") != 0))
        return "on";
    reader->next++;
    return next;
}

static bool read_long(struct tsp_layer *layer, const char *argument, struct reader *reader,
                      struct tsp_problem *problem_out)
{
    const char *name = argument + 2;
    size_t len = strcspn(name, "=");
    const char *value = name[len] == '=' ? name + len + 1 : NULL;
    const struct tsp_option *option = tsp_option_find(name, len);

    if (option == NULL && value == NULL && strncmp(name, "no-", 3) == 0) {
        option = tsp_option_find(name + 3, len - 3);
        if (option != NULL && option->type == TSP_OPTION_SWITCH && !option->flag_only)
            return read_switch(layer, option, "off", problem_out);
        option = NULL;
    }
    if (option == NULL)
        return unknown_flag(argument, problem_out);
    if (option->type == TSP_OPTION_SWITCH)
        return read_switch(layer, option, value != NULL ? value : switch_value(option, reader), problem_out);
    return read_value(layer, option, value, reader, problem_out);
}

static bool read_letters(struct tsp_layer *layer, const char *argument, struct tsp_problem *problem_out)
{
    for (const char *letter = argument + 1; *letter != '\0'; letter++) {
        const struct tsp_option *option = tsp_option_find_letter(*letter);
        if (option == NULL)
            return unknown_flag(argument, problem_out);
        if (!read_switch(layer, option, "on", problem_out))
            return false;
    }
    return true;
}

static const struct tsp_option *positional(void)
{
    const struct tsp_option *option = tsp_option_table;

    while (!option->positional)
        option++;
    return option;
}

static bool read_positional(struct tsp_layer *layer, const char *argument, struct tsp_problem *problem_out)
{
    const struct tsp_option *option = positional();
    const char *first = tsp_layer_text(layer, option->name);
    char label[TSP_LABEL_MAX];

    if (first != NULL)
        return tsp_problem_set(problem_out, "%.64s: one %s is given already, %.64s; --stream NAME=FOLDER serves more",
                               argument, option->argument, first);
    snprintf(label, sizeof(label), "%s %.64s", option->argument, argument);
    return add(layer, option, argument, label, problem_out);
}

bool tsp_layer_flags(struct tsp_layer *layer, int argc, char *const *argv, struct tsp_problem *problem_out)
{
    struct reader reader = {.argv = argv, .argc = argc, .next = 1};
    bool flags = true;

    while (reader.next < argc) {
        const char *argument = argv[reader.next++];
        bool good;
        if (flags && strcmp(argument, "--") == 0) {
            flags = false;
            continue;
        }
        if (flags && strncmp(argument, "--", 2) == 0)
            good = read_long(layer, argument, &reader, problem_out);
        else if (flags && argument[0] == '-' && argument[1] != '\0')
            good = read_letters(layer, argument, problem_out);
        else
            good = read_positional(layer, argument, problem_out);
        if (!good)
            return false;
    }
    return true;
}

/* ---- environment ---- */

/* "MAX_BATCH=64": the option's name from the variable's, and its length. */
static size_t variable_name(const char *variable, char *name, size_t len)
{
    size_t n = 0;

    for (; n + 1 < len && variable[n] != '=' && variable[n] != '\0'; n++)
        name[n] = (char)(variable[n] == '_' ? '-' : tolower((unsigned char)variable[n]));
    name[n] = '\0';
    return n;
}

bool tsp_layer_environment(struct tsp_layer *layer, char *const *environment, struct tsp_problem *problem_out)
{
    const size_t prefix = strlen(TSP_ENVIRONMENT_PREFIX);

    for (; *environment != NULL; environment++) {
        char name[64], label[TSP_LABEL_MAX];
        if (strncmp(*environment, TSP_ENVIRONMENT_PREFIX, prefix) != 0)
            continue;
        size_t len = variable_name(*environment + prefix, name, sizeof(name));
        const char *value = strchr(*environment, '=');
        const struct tsp_option *option = tsp_option_find(name, len);
        if (value == NULL || value[1] == '\0') /* "VARIABLE=" is how some tools say "not set" */
            continue;
        snprintf(label, sizeof(label), "%.100s", *environment);
        /* Other programs make such variables too (Kubernetes: TSOCKETD_PORT), so only a likely slip is an error. */
        const char *nearest = option == NULL ? tsp_option_nearest(name, false) : NULL;
        if (nearest != NULL)
            return tsp_problem_set(problem_out, "%s: unknown variable; did you mean the one for --%s?", label, nearest);
        if (option == NULL || option->flag_only)
            continue;
        if (!add(layer, option, value + 1, label, problem_out))
            return false;
    }
    return true;
}
