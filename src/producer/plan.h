/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The plan of a stream: what its samples are made of, and the fields that they have.
 *
 *     first view | label | index | valid, with TSOCKET_BAD_MASK | other views | aug of each view, where asked for
 *
 * A plan is constant once it is made; any thread may read it.
 */
#ifndef TSP_PLAN_H
#define TSP_PLAN_H

#include <tsocket/producer.h>

#include "decode.h"
#include "recipe.h"
#include "source.h"

/* The fields of every stream, by number. `valid` (uint8: 1, or 0 for a masked sample) only under TSOCKET_BAD_MASK. */
enum {
    TSP_FIELD_IMAGE,
    TSP_FIELD_LABEL,
    TSP_FIELD_INDEX,
    TSP_FIELD_VALID,
};

enum {
    TSP_AUG_VALUES = 5, /* float32: x, y, width, height of the box in the source picture's pixels; 1 if flipped, or 0 */
};

/* One image of each sample, as a field of its own. */
struct tsp_named_view {
    char name[TSOCKET_NAME_MAX + 1];
    struct tsp_recipe recipe;
};

/* The plan borrows the source. */
struct tsp_stream_plan {
    const struct tsp_source *source;
    struct tsp_recipe recipe; /* seed, shuffle and exif are those of the stream, whatever a view's recipe says */
    enum tsocket_on_bad on_bad;
    struct tsp_named_view views[TSP_VIEWS_MAX];
    uint32_t n_views; /* 0: one view, "image", by `recipe` */
    bool aug;         /* each view has a field NAME.aug */
};

/* Fills `fields_out` and returns how many there are; the caller has seen to it that they are not too many. */
uint32_t tsp_stream_plan_fields(const struct tsp_stream_plan *plan,
                                struct tsocket_field fields_out[TSOCKET_FIELDS_MAX]);

/* How many views there are, at least 1; and the field numbers of view `view` and of its aug. */
uint32_t tsp_stream_plan_views(const struct tsp_stream_plan *plan);
uint32_t tsp_stream_plan_image(const struct tsp_stream_plan *plan, uint32_t view);
uint32_t tsp_stream_plan_aug(const struct tsp_stream_plan *plan, uint32_t view);

/* Whether some view may be made of a picture that was decoded smaller. */
bool tsp_stream_plan_is_fast(const struct tsp_stream_plan *plan);

/* The box of view number `view` in a picture of width x height, all but where its pixels go. */
void tsp_stream_plan_draw(const struct tsp_stream_plan *plan, uint64_t epoch, uint64_t sample, uint32_t view,
                          uint32_t width, uint32_t height, struct tsp_view *view_out);

#endif
