/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define VALUE_MAX 4096 /* bytes of one value, as text */

static const double exact = 9007199254740992.0; /* 2^53: from here on a JSON number has lost digits */

/* ---- one value, as the text that the flag would have ---- */

static bool number_text(double value, char *text, size_t len)
{
    if (value == floor(value) && fabs(value) >= exact)
        return false;
    snprintf(text, len, "%.15g", value);
    if (strtod(text, NULL) != value)
        snprintf(text, len, "%.17g", value);
    return true;
}

static bool scalar_text(const cJSON *item, char *text, size_t len)
{
    if (cJSON_IsString(item))
        return (size_t)snprintf(text, len, "%s", item->valuestring) < len;
    if (cJSON_IsBool(item))
        return (size_t)snprintf(text, len, "%s", cJSON_IsTrue(item) ? "on" : "off") < len;
    return cJSON_IsNumber(item) && number_text(item->valuedouble, text, len);
}

static bool list_text(const cJSON *list, char *text, size_t len)
{
    size_t used = 0;
    const cJSON *item;

    text[0] = '\0';
    cJSON_ArrayForEach(item, list)
    {
        char one[64];
        if (!cJSON_IsNumber(item) || !scalar_text(item, one, sizeof(one)))
            return false;
        used += (size_t)snprintf(text + used, len - used, "%s%s", used > 0 ? "," : "", one);
        if (used >= len)
            return false;
    }
    return true;
}

/* A list of texts, each of which may have commas. */
static bool add_strings(struct tsp_settings *settings, const struct tsp_option *option, const cJSON *list,
                        const char *where, struct tsp_problem *problem_out)
{
    char label[TSP_LABEL_MAX];
    const cJSON *item;

    cJSON_ArrayForEach(item, list)
    {
        if (!cJSON_IsString(item))
            return tsp_problem_set(problem_out, "%s: %s: must be a string or a list of strings", where, option->name);
        snprintf(label, sizeof(label), "%.100s: %s = %.64s", where, option->name, item->valuestring);
        if (!tsp_settings_add(settings, option, item->valuestring, label, problem_out))
            return false;
    }
    return true;
}

/* `where` says in which file, and in which stream of it. */
static bool add_value(struct tsp_settings *settings, const struct tsp_option *option, const cJSON *item,
                      const char *where, struct tsp_problem *problem_out)
{
    char text[VALUE_MAX], label[TSP_LABEL_MAX];

    for (size_t i = 0; i < settings->count; i++) {
        if (settings->items[i].option == option)
            return tsp_problem_set(problem_out, "%s: %s is given twice", where, option->name);
    }
    if (option->type == TSP_OPTION_VIEW && cJSON_IsArray(item))
        return add_strings(settings, option, item, where, problem_out);
    if (!(cJSON_IsArray(item) ? list_text(item, text, sizeof(text)) : scalar_text(item, text, sizeof(text))))
        return tsp_problem_set(problem_out,
                               "%s: %s: must be a string of less than %d bytes, a number below 2^53 (a larger one as a "
                               "string), true, false, or a list of numbers",
                               where, option->name, VALUE_MAX);
    snprintf(label, sizeof(label), "%.100s: %s = %.64s", where, option->name, text);
    return tsp_settings_add(settings, option, text, label, problem_out);
}

/* ---- streams ---- */

static bool add_stream_object(struct tsp_layer *layer, const cJSON *object, const char *path, uint32_t number,
                              struct tsp_problem *problem_out)
{
    char where[TSP_LABEL_MAX];
    const cJSON *name = cJSON_GetObjectItemCaseSensitive(object, "name");
    const cJSON *source = cJSON_GetObjectItemCaseSensitive(object, "source");
    const cJSON *item;

    snprintf(where, sizeof(where), "%.64s: streams[%u]", path, number);
    if (!cJSON_IsObject(object) || !cJSON_IsString(name) || !cJSON_IsString(source))
        return tsp_problem_set(problem_out,
                               "%s: must be an object with the strings \"name\" and \"source\"; for example {\"name\": "
                               "\"val\", \"source\": \"/data/val\", \"augment\": \"eval\"}",
                               where);
    struct tsp_stream_spec *stream =
        tsp_layer_add_stream(layer, name->valuestring, strlen(name->valuestring), source->valuestring,
                             strlen(source->valuestring), where, problem_out);
    if (stream == NULL)
        return false;
    cJSON_ArrayForEach(item, object)
    {
        if (item == name || item == source)
            continue;
        const struct tsp_option *option = tsp_layer_stream_key(item->string, strlen(item->string), where, problem_out);
        if (option == NULL || !add_value(&stream->settings, option, item, where, problem_out))
            return false;
    }
    return true;
}

static bool add_stream_string(struct tsp_layer *layer, const cJSON *item, const char *path,
                              struct tsp_problem *problem_out)
{
    char label[TSP_LABEL_MAX];

    if (!cJSON_IsString(item))
        return tsp_problem_set(problem_out,
                               "%s: stream: must be a string NAME=FOLDER[,KEY=VALUE...] or a list of such; "
                               "objects go into \"streams\"",
                               path);
    snprintf(label, sizeof(label), "%.64s: stream = %.64s", path, item->valuestring);
    return tsp_layer_add_stream_text(layer, item->valuestring, label, problem_out);
}

static bool add_streams(struct tsp_layer *layer, const cJSON *streams, const char *path,
                        struct tsp_problem *problem_out)
{
    bool objects = strcmp(streams->string, "streams") == 0;
    const cJSON *item;
    uint32_t number = 0;

    if (layer->n_streams > 0)
        return tsp_problem_set(problem_out, "%s: streams are given twice; put all of them into one \"streams\"", path);
    if (objects && !cJSON_IsArray(streams))
        return tsp_problem_set(problem_out,
                               "%s: streams: must be a list of objects; for example [{\"name\": \"val\", "
                               "\"source\": \"/data/val\"}]",
                               path);
    if (!cJSON_IsArray(streams))
        return add_stream_string(layer, streams, path, problem_out);
    cJSON_ArrayForEach(item, streams)
    {
        bool good = objects ? add_stream_object(layer, item, path, number++, problem_out)
                            : add_stream_string(layer, item, path, problem_out);
        if (!good)
            return false;
    }
    return true;
}

/* ---- the document ---- */

static bool unknown_key(const char *key, const char *path, struct tsp_problem *problem_out)
{
    const char *nearest = tsp_option_nearest(key, false);

    if (nearest != NULL && strcmp(nearest, key) != 0)
        return tsp_problem_set(problem_out, "%s: unknown key \"%.64s\"; did you mean \"%s\"?", path, key, nearest);
    return tsp_problem_set(problem_out, "%s: \"%.64s\" is not a key of this file; tsocketd --help lists the names",
                           path, key);
}

static bool add_member(struct tsp_layer *layer, const cJSON *item, const char *path, struct tsp_problem *problem_out)
{
    const struct tsp_option *option = tsp_option_find(item->string, strlen(item->string));

    if (strcmp(item->string, "streams") == 0 || strcmp(item->string, "stream") == 0)
        return add_streams(layer, item, path, problem_out);
    /* A file does not name another one: what wins would depend on who was read first. */
    if (option == NULL || option->flag_only || strcmp(option->name, "config") == 0)
        return unknown_key(item->string, path, problem_out);
    return add_value(&layer->settings, option, item, path, problem_out);
}

static bool syntax_error(const char *text, const char *at, const char *path, struct tsp_problem *problem_out)
{
    unsigned line = 1, column = 1;

    for (; text < at && *text != '\0'; text++) {
        column++;
        if (*text == '\n') {
            line++;
            column = 1;
        }
    }
    return tsp_problem_set(problem_out,
                           "%s:%u:%u: not JSON (names and strings in double quotes, no comma after the last "
                           "member, no comments)",
                           path, line, column);
}

bool tsp_config_parse(struct tsp_layer *layer, const char *text, const char *path, struct tsp_problem *problem_out)
{
    const char *end = text;
    cJSON *root = cJSON_ParseWithOpts(text, &end, true);
    const cJSON *item;
    bool good;

    if (root == NULL)
        return syntax_error(text, end, path, problem_out);
    good = cJSON_IsObject(root);
    if (!good)
        tsp_problem_set(problem_out, "%s: must be an object; for example {\"dataset\": \"/data/train\", \"size\": 224}",
                        path);
    for (item = root->child; good && item != NULL; item = item->next)
        good = add_member(layer, item, path, problem_out);
    cJSON_Delete(root);
    return good;
}

bool tsp_config_read(struct tsp_layer *layer, const char *path, struct tsp_problem *problem_out)
{
    bool good = false;
    FILE *file = fopen(path, "re");

    if (file == NULL)
        return tsp_problem_set(problem_out, "--config %s: %s", path, strerror(errno));
    char *text = malloc(TSP_CONFIG_BYTES_MAX + 1);
    if (text == NULL) {
        tsp_problem_set(problem_out, "--config %s: out of memory", path);
        goto close_file;
    }
    size_t len = fread(text, 1, TSP_CONFIG_BYTES_MAX + 1, file);
    if (ferror(file)) {
        tsp_problem_set(problem_out, "--config %s: %s", path, strerror(errno));
        goto free_text;
    }
    if (len > TSP_CONFIG_BYTES_MAX) {
        tsp_problem_set(problem_out, "--config %s: larger than %d bytes; is this the right file?", path,
                        TSP_CONFIG_BYTES_MAX);
        goto free_text;
    }
    text[len] = '\0';
    good = tsp_config_parse(layer, text, path, problem_out);
free_text:
    free(text);
close_file:
    fclose(file);
    return good;
}
