/* SPDX-License-Identifier: Apache-2.0 */
#include "plan.h"

#include <assert.h>
#include <stdio.h>

uint32_t tsp_stream_plan_views(const struct tsp_stream_plan *plan)
{
    return plan->n_views > 0 ? plan->n_views : 1;
}

/* The first field behind those of every stream. */
static uint32_t others(const struct tsp_stream_plan *plan)
{
    return plan->on_bad == TSOCKET_BAD_MASK ? TSP_FIELD_VALID + 1 : TSP_FIELD_INDEX + 1;
}

uint32_t tsp_stream_plan_image(const struct tsp_stream_plan *plan, uint32_t view)
{
    return view == 0 ? TSP_FIELD_IMAGE : others(plan) + view - 1;
}

uint32_t tsp_stream_plan_aug(const struct tsp_stream_plan *plan, uint32_t view)
{
    return others(plan) + tsp_stream_plan_views(plan) - 1 + view;
}

static const struct tsp_recipe *recipe_of(const struct tsp_stream_plan *plan, uint32_t view)
{
    return plan->n_views > 0 ? &plan->views[view].recipe : &plan->recipe;
}

bool tsp_stream_plan_is_fast(const struct tsp_stream_plan *plan)
{
    bool fast = false;
    for (uint32_t i = 0; i < tsp_stream_plan_views(plan); i++)
        fast = fast || recipe_of(plan, i)->quality == TSP_FAST;
    return fast;
}

static const char *name_of(const struct tsp_stream_plan *plan, uint32_t view)
{
    return plan->n_views > 0 ? plan->views[view].name : "image";
}

static void image_field(const struct tsp_stream_plan *plan, uint32_t view, struct tsocket_field *field_out)
{
    const struct tsp_source *source = plan->source;
    const struct tsp_recipe *recipe = recipe_of(plan, view);
    bool raw = source->raw_width > 0;
    tsp_recipe_image_field(recipe, raw ? source->raw_width : recipe->size, raw ? source->raw_height : recipe->size,
                           field_out);
    snprintf(field_out->name, sizeof field_out->name, "%s", name_of(plan, view));
}

static void aug_field(const struct tsp_stream_plan *plan, uint32_t view, struct tsocket_field *field_out)
{
    *field_out = (struct tsocket_field){.dtype = TSOCKET_FLOAT32, .ndim = 1, .shape = {TSP_AUG_VALUES}};
    snprintf(field_out->name, sizeof field_out->name, "%.*s.aug", TSOCKET_NAME_MAX - 4, name_of(plan, view));
}

uint32_t tsp_stream_plan_fields(const struct tsp_stream_plan *plan, struct tsocket_field fields_out[TSOCKET_FIELDS_MAX])
{
    uint32_t views = tsp_stream_plan_views(plan), n = others(plan) + views - 1 + (plan->aug ? views : 0);
    assert(n <= TSOCKET_FIELDS_MAX);
    fields_out[TSP_FIELD_LABEL] = (struct tsocket_field){.name = "label", .dtype = TSOCKET_INT64};
    fields_out[TSP_FIELD_INDEX] = (struct tsocket_field){.name = "index", .dtype = TSOCKET_INT64};
    if (plan->on_bad == TSOCKET_BAD_MASK)
        fields_out[TSP_FIELD_VALID] = (struct tsocket_field){.name = "valid", .dtype = TSOCKET_UINT8};
    for (uint32_t i = 0; i < views; i++) {
        image_field(plan, i, &fields_out[tsp_stream_plan_image(plan, i)]);
        if (plan->aug)
            aug_field(plan, i, &fields_out[tsp_stream_plan_aug(plan, i)]);
    }
    return n;
}

void tsp_stream_plan_draw(const struct tsp_stream_plan *plan, uint64_t epoch, uint64_t sample, uint32_t view,
                          uint32_t width, uint32_t height, struct tsp_view *view_out)
{
    struct tsp_recipe recipe = *recipe_of(plan, view);
    recipe.seed = plan->recipe.seed;
    if (plan->source->raw_width > 0)
        tsp_view_whole(&recipe, width, height, view_out);
    else
        tsp_view_plan(&recipe, epoch, sample, view, width, height, view_out);
}
