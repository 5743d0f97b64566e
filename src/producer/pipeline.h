/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pipeline: decode threads that fill the claims of all streams of one producer.
 *
 *     claim -> order -> source: read -> decode: header, draw all views -> label, index -> commit (or reject)
 */
#ifndef TSP_PIPELINE_H
#define TSP_PIPELINE_H

#include <tsocket/producer.h>

#include "cache.h"
#include "plan.h"

/* What claim.stage_ns[] count, for tsocket_producer_options: with a cache, "read" includes decoding for it; resize and
 * output are part of "decode". */
extern const char *const tsp_stage_names[TSOCKET_STAGES_MAX];

struct tsp_pipeline;

/*
 * Starts `workers` threads on the producer, whose stream i was added for plans[i]; plans are copied,
 * `cache` is borrowed and may be NULL. NULL with one line
 * in `error` on failure; the producer is stopped then. The threads block all signals and end when claim answers
 * TSOCKET_END. A sample that fails for a reason that is not its own (TSP_STOP) makes the producer fail, and ends its
 * thread without giving the claim back.
 */
struct tsp_pipeline *tsp_pipeline_start(struct tsocket_producer *producer, const struct tsp_stream_plan *plans,
                                        uint32_t n_plans, const struct tsp_limits *limits, struct tsp_cache *cache,
                                        uint32_t workers, char *error, size_t len);

/* Waits for the threads (call tsocket_producer_stop before, or they may wait for ever) and frees. NULL is allowed. */
void tsp_pipeline_join(struct tsp_pipeline *pipeline);

#endif
