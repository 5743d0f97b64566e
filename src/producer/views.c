/* SPDX-License-Identifier: Apache-2.0 */
#include "views.h"

#include <stdio.h>
#include <string.h>

#include "../ipc/runtime.h"
#include "layer.h"

#define NAME_MAX_BYTES (TSOCKET_NAME_MAX - 4) /* ".aug" goes behind it */

/* A key begins behind a colon, or behind a comma where "word=" follows: values (scale=0.5,1) may have commas. */
static size_t find_end(const char *text)
{
    size_t at = 0;

    for (; text[at] != '\0' && text[at] != ':'; at++) {
        size_t word = text[at] == ',' ? strspn(text + at + 1, "abcdefghijklmnopqrstuvwxyz-") : 0;
        if (word > 0 && text[at + 1 + word] == '=')
            break;
    }
    return at;
}

static bool set_key(struct tsp_stream_options *as_view, const char *name, const char *text, size_t len,
                    struct tsp_problem *problem_out)
{
    char key[TSP_VIEW_TEXT_MAX], label[TSP_LABEL_MAX];
    size_t word = strcspn(text, "=");

    snprintf(key, sizeof(key), "%.*s", (int)len, text);
    snprintf(label, sizeof(label), "--view %.64s: %.100s", name, key);
    if (word >= len)
        return tsp_problem_set(problem_out, "%s: must be KEY=VALUE; for example size=96", label);
    const struct tsp_option *option = tsp_option_find(key, word);
    if (option != NULL && option->per_view)
        return tsp_option_set(option, as_view, key + word + 1, label, problem_out);
    if (option != NULL)
        return tsp_problem_set(problem_out, "%s: %s is the same for all views of a stream", label, option->name);
    return tsp_problem_set(problem_out, "%s: unknown key; tsocketd --help marks the keys of a view with +", label);
}

static bool check_name(const struct tsp_stream_options *stream, const char *name, struct tsp_problem *problem_out)
{
    static const char *const taken[] = {"label", "index", "valid"};
    bool twice = false;

    if (!tsi_name_ok(name) || strlen(name) > NAME_MAX_BYTES)
        return tsp_problem_set(problem_out,
                               "--view %.64s: a view's name has 1 to %d of the characters A-Z a-z 0-9 . _ - and does "
                               "not start with a dot; for example small:size=96",
                               name, NAME_MAX_BYTES);
    for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++)
        twice = twice || strcmp(name, taken[i]) == 0;
    for (uint32_t i = 0; i < stream->n_views; i++)
        twice = twice || strcmp(name, stream->views[i].name) == 0;
    if (twice)
        return tsp_problem_set(problem_out, "--view %s: there is a field %s already; give the view another name", name,
                               name);
    return true;
}

static bool add_view(struct tsp_stream_options *stream, const char *text, struct tsp_problem *problem_out)
{
    struct tsp_named_view *view = &stream->views[stream->n_views];
    struct tsp_stream_options as_view = *stream;
    char name[TSP_VIEW_TEXT_MAX];
    size_t len = find_end(text);

    snprintf(name, sizeof(name), "%.*s", (int)len, text);
    if (!check_name(stream, name, problem_out))
        return false;
    for (text += len; *text != '\0'; text += len) {
        len = find_end(++text);
        if (!set_key(&as_view, name, text, len, problem_out))
            return false;
    }
    strcpy(view->name, name); /* its length has just been checked */
    view->recipe = as_view.recipe;
    stream->n_views++;
    return true;
}

bool tsp_views_resolve(struct tsp_stream_options *stream, struct tsp_problem *problem_out)
{
    stream->n_views = 0;
    for (uint32_t i = 0; i < stream->view_texts.count; i++) {
        if (!add_view(stream, stream->view_texts.texts[i], problem_out))
            return false;
    }
    return true;
}
