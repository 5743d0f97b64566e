/* SPDX-License-Identifier: Apache-2.0 */
#include "feed.h"

#include <string.h>

#include "../ipc/text.h"

/* Every number has its limit in the option or the source that it comes from: no product overflows. */
static uint64_t field_bytes(const struct tsocket_field *field)
{
    uint64_t bytes = tsocket_dtype_bytes(field->dtype);

    for (uint32_t i = 0; i < field->ndim; i++)
        bytes *= field->shape[i];
    return bytes;
}

bool tsp_feed_open(const struct tsp_options *daemon, const struct tsp_stream_options *options,
                   const struct tsp_source_limits *limits, struct tsp_feed *feed_out, struct tsp_problem *problem_out)
{
    struct tsp_feed feed = {.options = options};
    char error[512];

    feed.source = tsp_source_open(options->source, limits, error, sizeof(error));
    if (feed.source == NULL)
        return tsp_problem_set(problem_out, "stream %s: %s", options->name, error);
    feed.plan = (struct tsp_stream_plan){
        .source = feed.source,
        .recipe = options->recipe,
        .on_bad = options->on_bad,
        .n_views = options->n_views,
        .aug = options->aug,
    };
    memcpy(feed.plan.views, options->views, sizeof(feed.plan.views));
    feed.n_fields = tsp_stream_plan_fields(&feed.plan, feed.fields);
    for (uint32_t i = 0; i < feed.n_fields; i++)
        feed.sample_bytes += field_bytes(&feed.fields[i]);
    tsp_fingerprint_dataset(feed.source, feed.dataset_id);
    tsp_options_recipe(daemon, options, feed.recipe);
    tsp_fingerprint_text(feed.recipe, feed.recipe_id);
    *feed_out = feed;
    return true;
}

/* A resident stream's ring is as large as the dataset, where nothing else was asked for. */
bool tsp_feed_size(struct tsp_feed *feed, struct tsp_problem *problem_out)
{
    if (!tsp_options_ring(feed->options, feed->sample_bytes, &feed->ring, problem_out))
        return false;
    if (feed->options->resident && feed->options->ring.amount == 0)
        feed->ring.capacity = feed->source->count;
    if (feed->options->resident && feed->ring.max_batch > feed->ring.capacity)
        feed->ring.max_batch = (uint32_t)feed->ring.capacity;
    return true;
}

void tsp_feed_close(struct tsp_feed *feed)
{
    tsp_source_close(feed->source);
}

int tsp_feed_add(const struct tsp_feed *feed, struct tsocket_producer *producer)
{
    struct tsocket_stream_options options;

    tsocket_stream_options_init(&options);
    options.name = feed->options->name;
    options.fields = feed->fields;
    options.n_fields = feed->n_fields;
    options.epoch_samples = feed->source->count;
    options.epochs = feed->options->epochs;
    options.capacity = feed->ring.capacity;
    options.max_batch = feed->ring.max_batch;
    options.on_bad = feed->options->on_bad;
    options.max_bad = feed->options->max_bad;
    options.null = feed->source->null;
    options.resident = feed->options->resident;
    options.side_rings = feed->options->resident ? 0 : feed->options->side_rings;
    options.side_capacity = feed->options->side_capacity;
    options.dataset_id = feed->dataset_id;
    options.recipe_id = feed->recipe_id;
    options.recipe = feed->recipe;
    options.seed = feed->options->recipe.seed;
    options.first_epoch = feed->first_epoch;
    options.source = feed->options->source;
    options.device = feed->options->device;
    options.share = feed->options->share;
    return tsocket_producer_add_stream(producer, &options, NULL);
}

/* " image uint8 224x224x3" */
static size_t describe_field(const struct tsocket_field *field, char *text, size_t len)
{
    size_t used = (size_t)snprintf(text, len, " %s %s", field->name, tsocket_dtype_name(field->dtype));

    for (uint32_t i = 0; i < field->ndim && used < len; i++)
        used += (size_t)snprintf(text + used, len - used, "%c%llu", i == 0 ? ' ' : 'x',
                                 (unsigned long long)field->shape[i]);
    return used;
}

void tsp_feed_describe(const struct tsp_feed *feed, char *text, size_t len)
{
    const struct tsp_source *source = feed->source;
    uint64_t samples = feed->ring.capacity + feed->ring.max_batch; /* the mirror holds the largest batch once more */
    size_t used = (size_t)snprintf(text, len, "stream %s: %.256s, %llu samples, %u classes, %llu entries skipped",
                                   feed->options->name, feed->options->source, (unsigned long long)source->count,
                                   source->n_classes, (unsigned long long)source->skipped);

    if (feed->options->skip != NULL && used < len)
        used += (size_t)snprintf(text + used, len - used, ", %llu left out by --skip %.256s",
                                 (unsigned long long)source->left_out, feed->options->skip);
    if (used < len)
        used += (size_t)snprintf(text + used, len - used, ";");
    for (uint32_t i = 0; i < feed->n_fields && used < len; i++)
        used += describe_field(&feed->fields[i], text + used, len - used);
    if (used < len)
        snprintf(text + used, len - used, "; ring of %llu samples, %.1f MiB; largest batch %u",
                 (unsigned long long)feed->ring.capacity, (double)(samples * feed->sample_bytes) / (1024.0 * 1024),
                 feed->ring.max_batch);
    tsi_text_clean(text);
}

void tsp_feed_list(const struct tsp_feed *feed, bool named, FILE *out)
{
    const struct tsp_source *source = feed->source;

    for (uint64_t i = 0; i < source->count; i++) {
        putc('{', out);
        if (named)
            fprintf(out, "\"stream\":\"%s\",", feed->options->name);
        fprintf(out, "\"index\":%llu,\"key\":", (unsigned long long)i);
        tsi_text_json_string(source->ops->key(source, i), out);
        fprintf(out, ",\"label\":%lld}\n", (long long)source->ops->label(source, i));
    }
}
