/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline: decode threads that fill the claims of all streams of one producer.
 *
 *     claim -> order -> source: read -> decode: header, draw -> label, index -> commit (or reject)
 */
#ifndef TSP_PIPELINE_H
#define TSP_PIPELINE_H

#include <tsocket/producer.h>

#include "decode.h"
#include "order.h"
#include "recipe.h"
#include "source.h"

/* The fields of every stream, by number. `valid` (uint8: 1, or 0 for a masked sample) only under TSOCKET_BAD_MASK. */
enum {
    TSP_FIELD_IMAGE,
    TSP_FIELD_LABEL,
    TSP_FIELD_INDEX,
    TSP_FIELD_VALID,
};

/* What claim.stage_ns[] count, for tsocket_producer_options. Resize and output are part of "decode". */
extern const char *const tsp_stage_names[TSOCKET_STAGES_MAX];

/* What one stream of the pipeline is made of. The pipeline borrows the source. */
struct tsp_stream_plan {
    const struct tsp_source *source;
    struct tsp_recipe recipe;
    enum tsocket_on_bad on_bad;
};

/* Fills `fields_out` (room for 4) and returns how many there are. */
uint32_t tsp_stream_plan_fields(const struct tsp_stream_plan *plan, struct tsocket_field *fields_out);

struct tsp_pipeline;

/*
 * Starts `workers` threads on the producer, whose stream i was added for plans[i]; plans are copied. NULL with one line
 * in `error` on failure; the producer is stopped then. The threads block all signals and end when claim answers
 * TSOCKET_END. A sample that fails for a reason that is not its own (TSP_STOP) makes the producer fail, and ends its
 * thread without giving the claim back.
 */
struct tsp_pipeline *tsp_pipeline_start(struct tsocket_producer *producer, const struct tsp_stream_plan *plans,
                                        uint32_t n_plans, const struct tsp_limits *limits, uint32_t workers,
                                        char *error, size_t len);

/* Waits for the threads (call tsocket_producer_stop before, or they may wait for ever) and frees. NULL is allowed. */
void tsp_pipeline_join(struct tsp_pipeline *pipeline);

#endif
