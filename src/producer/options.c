/* SPDX-License-Identifier: Apache-2.0 */
#include "options.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ipc/runtime.h"
#include "config.h"
#include "layer.h"
#include "views.h"

#define BATCH_DEFAULT        256
#define RING_BATCHES_DEFAULT 4

/* ---- layers into one ---- */

static void *base_of(const struct tsp_option *option, struct tsp_options *options)
{
    return option->per_stream ? (void *)&options->common : (void *)options;
}

static bool apply_defaults(struct tsp_options *options, struct tsp_problem *problem_out)
{
    for (size_t i = 0; i < tsp_option_count; i++) {
        const struct tsp_option *option = &tsp_option_table[i];
        if (option->initial != NULL &&
            !tsp_option_set(option, base_of(option, options), option->initial, option->name, problem_out))
            return false;
    }
    return true;
}

/* A list replaces that of a weaker layer and grows within its own. */
static void clear_lists(const struct tsp_layer *layer, struct tsp_options *options)
{
    for (size_t i = 0; i < layer->settings.count; i++) {
        const struct tsp_option *option = layer->settings.items[i].option;
        if (tsp_option_is_list(option))
            tsp_option_clear(option, base_of(option, options));
    }
}

static bool apply_layer(const struct tsp_layer *layer, struct tsp_options *options, struct tsp_problem *problem_out)
{
    clear_lists(layer, options);
    for (size_t i = 0; i < layer->settings.count; i++) {
        const struct tsp_setting *setting = &layer->settings.items[i];
        void *base = base_of(setting->option, options);
        if (!tsp_option_set(setting->option, base, setting->text, setting->label, problem_out))
            return false;
    }
    return true;
}

/* ---- streams ---- */

static const struct tsp_stream_options *find_stream(const struct tsp_options *options, const char *name)
{
    for (uint32_t i = 0; i < options->n_streams; i++) {
        if (strcmp(options->streams[i].name, name) == 0)
            return &options->streams[i];
    }
    return NULL;
}

/* A stream that is like the common options as yet; NULL: *problem_out says why. */
static struct tsp_stream_options *add_stream(struct tsp_options *options, const char *name, const char *source,
                                             const char *label, struct tsp_problem *problem_out)
{
    const struct tsp_stream_options *same = find_stream(options, name);

    if (!tsi_name_ok(name))
        tsp_problem_set(problem_out,
                        "%s: a stream's name has 1 to %d of the characters A-Z a-z 0-9 . _ - and does not "
                        "start with a dot; for example val",
                        label, TSOCKET_NAME_MAX);
    else if (*source == '\0')
        tsp_problem_set(problem_out, "%s: the folder is missing; for example %s=/data/%s", label, name, name);
    else if (same != NULL)
        tsp_problem_set(problem_out, "%s: there is a stream %s already, of %s; give one of them another name", label,
                        name, same->source);
    else if (options->n_streams == TSOCKET_STREAMS_MAX)
        tsp_problem_set(problem_out, "%s: a daemon serves at most %d streams; start another one for it", label,
                        TSOCKET_STREAMS_MAX);
    else {
        struct tsp_stream_options *stream = &options->streams[options->n_streams];
        *stream = options->common;
        strcpy(stream->name, name); /* its length has just been checked */
        stream->source = strdup(source);
        stream->skip = stream->skip != NULL ? strdup(stream->skip) : NULL; /* a copy of its own */
        options->n_streams++;
        if (stream->source != NULL && (stream->skip != NULL) == (options->common.skip != NULL))
            return stream;
        tsp_problem_set(problem_out, "%s: out of memory", label);
    }
    return NULL;
}

static bool add_named_stream(struct tsp_options *options, const struct tsp_stream_spec *spec,
                             struct tsp_problem *problem_out)
{
    struct tsp_stream_options *stream = add_stream(options, spec->name, spec->source, spec->label, problem_out);

    if (stream == NULL)
        return false;
    for (size_t i = 0; i < spec->settings.count; i++) {
        if (tsp_option_is_list(spec->settings.items[i].option))
            tsp_option_clear(spec->settings.items[i].option, stream);
    }
    for (size_t i = 0; i < spec->settings.count; i++) {
        const struct tsp_setting *setting = &spec->settings.items[i];
        if (!tsp_option_set(setting->option, stream, setting->text, setting->label, problem_out))
            return false;
    }
    return true;
}

/* DATASET first, then the streams of the strongest layer that names any. */
static bool add_streams(struct tsp_options *options, const struct tsp_layer *layers, uint32_t n,
                        struct tsp_problem *problem_out)
{
    if (options->dataset != NULL &&
        add_stream(options, "train", options->dataset, options->dataset, problem_out) == NULL)
        return false;
    while (n > 0 && layers[n - 1].n_streams == 0)
        n--;
    options->named_streams = n > 0;
    for (uint32_t i = 0; n > 0 && i < layers[n - 1].n_streams; i++) {
        if (!add_named_stream(options, &layers[n - 1].streams[i], problem_out)) {
            problem_out->in_file = layers[n - 1].is_file;
            return false;
        }
    }
    if (options->n_streams == 0)
        return tsp_problem_set(problem_out, "nothing to serve: give a DATASET (tsocketd /data/train) or streams "
                                            "(--stream val=/data/val); tsocketd --help explains both");
    return true;
}

/* ---- what only shows when all is known ---- */

static bool is_neutral(const struct tsp_recipe *recipe)
{
    for (int i = 0; i < 3; i++) {
        if (recipe->mean[i] < 0 || recipe->mean[i] > 0 || recipe->std[i] < 1 || recipe->std[i] > 1)
            return false;
    }
    return true;
}

static bool check_recipe(const struct tsp_stream_options *stream, struct tsp_problem *problem_out)
{
    char text[256];
    const char *wrong = tsp_recipe_check(&stream->recipe, text, sizeof(text));

    if (wrong != NULL)
        return tsp_problem_set(problem_out, "stream %s: %s", stream->name, wrong);
    if (stream->recipe.dtype == TSOCKET_UINT8 && !is_neutral(&stream->recipe))
        return tsp_problem_set(problem_out,
                               "stream %s: --mean and --std do nothing with --dtype uint8; leave them out, "
                               "or add --dtype float32, float16 or bfloat16",
                               stream->name);
    return true;
}

/* What is wrong with a view may be what it has from the stream: leaving that out would change the other views. */
static bool check_view(const struct tsp_stream_options *stream, const struct tsp_named_view *view,
                       struct tsp_problem *problem_out)
{
    char text[256];
    const char *wrong = tsp_recipe_check(&view->recipe, text, sizeof(text));

    if (wrong != NULL)
        return tsp_problem_set(problem_out, "stream %s: view %s: %s", stream->name, view->name, wrong);
    if (view->recipe.dtype == TSOCKET_UINT8 && !is_neutral(&view->recipe))
        return tsp_problem_set(problem_out,
                               "stream %s: view %s: mean and std do nothing with dtype uint8; give the view "
                               "mean=0,0,0:std=1,1,1, or dtype=float32, float16 or bfloat16",
                               stream->name, view->name);
    return true;
}

static bool check_fields(const struct tsp_stream_options *stream, struct tsp_problem *problem_out)
{
    uint32_t fields = 2 + stream->n_views * (stream->aug ? 2 : 1) + (stream->on_bad == TSOCKET_BAD_MASK);

    if (fields <= TSOCKET_FIELDS_MAX)
        return true;
    return tsp_problem_set(problem_out,
                           "stream %s: %u views with --aug make %u fields, the limit is %d; leave out some of the "
                           "views, or --aug",
                           stream->name, stream->n_views, fields, TSOCKET_FIELDS_MAX);
}

static bool check_stream(const struct tsp_stream_options *stream, struct tsp_problem *problem_out)
{
    if (!check_recipe(stream, problem_out) || !check_fields(stream, problem_out))
        return false;
    for (uint32_t i = 0; i < stream->n_views; i++) {
        if (!check_view(stream, &stream->views[i], problem_out))
            return false;
    }
    if (stream->ring.amount > 0 && !stream->ring.bytes && stream->max_batch > stream->ring.amount)
        return tsp_problem_set(problem_out,
                               "stream %s: --max-batch %u is more than --ring %llu holds; raise --ring to "
                               "%u or more, or lower --max-batch",
                               stream->name, stream->max_batch, (unsigned long long)stream->ring.amount,
                               stream->max_batch);
    return true;
}

/* A skip list holds paths below one folder, and all of those that are bad. */
static bool check_lists(const struct tsp_options *options, struct tsp_problem *problem_out)
{
    if (options->write_skip == NULL)
        return true;
    if (!options->check)
        return tsp_problem_set(problem_out, "--write-skip %s: only --check finds out what belongs there; add --check",
                               options->write_skip);
    if (options->n_streams > 1)
        return tsp_problem_set(problem_out, "--write-skip %s: a list is of one dataset, not of %u; check each alone",
                               options->write_skip, options->n_streams);
    if (options->streams[0].skip != NULL)
        return tsp_problem_set(problem_out,
                               "--write-skip %s: would lack what --skip %s leaves out; leave out --skip, and the list "
                               "holds all",
                               options->write_skip, options->streams[0].skip);
    return true;
}

bool tsp_options_merge(const struct tsp_layer *layers, uint32_t n, struct tsp_options *options_out,
                       struct tsp_problem *problem_out)
{
    struct tsp_options options = {0};

    tsp_recipe_init(&options.common.recipe);
    bool good = apply_defaults(&options, problem_out);
    for (uint32_t i = 0; good && i < n; i++) {
        good = apply_layer(&layers[i], &options, problem_out);
        problem_out->in_file = !good && layers[i].is_file;
    }
    good = good && (options.help || options.version || add_streams(&options, layers, n, problem_out));
    for (uint32_t i = 0; good && i < options.n_streams; i++)
        good = tsp_views_resolve(&options.streams[i], problem_out) && check_stream(&options.streams[i], problem_out);
    good = good && check_lists(&options, problem_out);
    if (good)
        *options_out = options;
    else
        tsp_options_fini(&options);
    return good;
}

/* ---- where it all comes from ---- */

enum {
    LAYER_FILE,
    LAYER_ENVIRONMENT,
    LAYER_FLAGS,
    LAYERS
};

/* --help and --version work whatever else is wrong. */
static bool asks_only(const struct tsp_layer *flags)
{
    return tsp_layer_text(flags, "help") != NULL || tsp_layer_text(flags, "version") != NULL;
}

static bool read_layers(int argc, char *const *argv, char *const *environment, struct tsp_layer *layers,
                        struct tsp_problem *problem_out)
{
    if (!tsp_layer_flags(&layers[LAYER_FLAGS], argc, argv, problem_out))
        return false;
    if (asks_only(&layers[LAYER_FLAGS]))
        return true;
    if (!tsp_layer_environment(&layers[LAYER_ENVIRONMENT], environment, problem_out))
        return false;
    const char *config = tsp_layer_text(&layers[LAYER_FLAGS], "config");
    if (config == NULL)
        config = tsp_layer_text(&layers[LAYER_ENVIRONMENT], "config");
    problem_out->in_file = config != NULL && !tsp_config_read(&layers[LAYER_FILE], config, problem_out);
    return !problem_out->in_file;
}

bool tsp_options_parse(int argc, char *const *argv, char *const *environment, struct tsp_options *options_out,
                       struct tsp_problem *problem_out)
{
    struct tsp_layer layers[LAYERS] = {[LAYER_FILE] = {.is_file = true}};

    problem_out->in_file = false;
    bool good = read_layers(argc, argv, environment, layers, problem_out) &&
                tsp_options_merge(layers, LAYERS, options_out, problem_out);

    for (int i = 0; i < LAYERS; i++)
        tsp_layer_fini(&layers[i]);
    return good;
}

void tsp_options_fini(struct tsp_options *options)
{
    for (uint32_t i = 0; i < options->n_streams; i++) {
        free(options->streams[i].source);
        free(options->streams[i].skip);
    }
    free(options->common.skip);
    free(options->write_skip);
    free(options->dataset);
    free(options->config);
    free(options->ledger);
    free(options->state);
    memset(options, 0, sizeof(*options));
}

/* ---- the recipe as text ---- */

static size_t add_value(const struct tsp_option *option, const void *base, char between, char *out, size_t used)
{
    char value[128];

    tsp_option_print(option, base, value, sizeof(value));
    return used + (size_t)snprintf(out + used, TSP_RECIPE_TEXT_MAX - used, "%s%s=%s",
                                   used == 0 ? "" : (char[]){between, '\0'}, option->name, value);
}

/* Of one view; the options of a view are written as if they were a stream's. */
static size_t add_view_values(const struct tsp_stream_options *as_view, char between, char *out, size_t used)
{
    for (size_t i = 0; i < tsp_option_count && used < TSP_RECIPE_TEXT_MAX; i++) {
        if (tsp_option_table[i].in_recipe && tsp_option_table[i].per_view)
            used = add_value(&tsp_option_table[i], as_view, between, out, used);
    }
    return used;
}

void tsp_options_recipe(const struct tsp_options *options, const struct tsp_stream_options *stream,
                        char out[TSP_RECIPE_TEXT_MAX])
{
    size_t used = stream->n_views == 0 ? add_view_values(stream, ' ', out, 0) : 0;

    for (size_t i = 0; i < tsp_option_count && used < TSP_RECIPE_TEXT_MAX; i++) {
        const struct tsp_option *option = &tsp_option_table[i];
        const void *base = option->per_stream ? (const void *)stream : options;

        if (option->in_recipe && !option->per_view)
            used = add_value(option, base, ' ', out, used);
    }
    for (uint32_t i = 0; i < stream->n_views && used < TSP_RECIPE_TEXT_MAX; i++) {
        struct tsp_stream_options as_view = *stream;

        as_view.recipe = stream->views[i].recipe;
        used += (size_t)snprintf(out + used, TSP_RECIPE_TEXT_MAX - used, " view=%s", stream->views[i].name);
        used = used < TSP_RECIPE_TEXT_MAX ? add_view_values(&as_view, ':', out, used) : used;
    }
    assert(used < TSP_RECIPE_TEXT_MAX); /* the most views with the longest numbers need less */
}

/* ---- the ring ---- */

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Bytes pay for the mirror too, which has room for the largest batch: of the samples that fit, a third at most. */
static void ring_of_bytes(const struct tsp_stream_options *stream, uint64_t sample_bytes, struct tsp_ring_plan *plan)
{
    uint64_t fit = stream->ring.amount / sample_bytes;
    uint64_t batch = stream->max_batch > 0 ? stream->max_batch : smaller(BATCH_DEFAULT, fit / 3);

    plan->max_batch = (uint32_t)batch;
    plan->capacity = fit > batch ? fit - batch : 0;
}

static void ring_of_samples(const struct tsp_stream_options *stream, struct tsp_ring_plan *plan)
{
    uint64_t ring = stream->ring.amount;
    uint64_t half = ring > 1 ? ring / 2 : ring;
    uint64_t batch = BATCH_DEFAULT;

    if (stream->max_batch > 0)
        batch = stream->max_batch;
    else if (ring > 0)
        batch = smaller(BATCH_DEFAULT, half);
    plan->max_batch = (uint32_t)batch;
    plan->capacity = ring > 0 ? ring : RING_BATCHES_DEFAULT * batch;
}

bool tsp_options_ring(const struct tsp_stream_options *stream, uint64_t sample_bytes, struct tsp_ring_plan *plan_out,
                      struct tsp_problem *problem_out)
{
    struct tsp_ring_plan plan;

    if (stream->ring.bytes)
        ring_of_bytes(stream, sample_bytes, &plan);
    else
        ring_of_samples(stream, &plan);
    if (plan.max_batch < 1 || plan.capacity < plan.max_batch) {
        uint64_t least = 2 * sample_bytes * (stream->max_batch > 0 ? stream->max_batch : 1);
        return tsp_problem_set(problem_out,
                               "stream %s: --ring %lluB holds no batch of %u samples of %llu bytes; raise it "
                               "to %lluB or more, or lower --max-batch",
                               stream->name, (unsigned long long)stream->ring.amount,
                               stream->max_batch > 0 ? stream->max_batch : 1, (unsigned long long)sample_bytes,
                               (unsigned long long)least);
    }
    *plan_out = plan;
    return true;
}
