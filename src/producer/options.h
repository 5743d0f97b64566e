/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tsocketd was asked to do.
 *
 *     flags        --max-batch 64 --stream val=/data/val,augment=eval
 *     environment  TSOCKETD_MAX_BATCH=64
 *     file         {"max-batch": 64, "streams": [{"name": "val", "source": "/data/val", "augment": "eval"}]}
 *     default      the table in option.c, which the three above and --help come from
 *
 * The higher one wins, option by option; lists (streams, users) are not merged. A key of a stream wins over the option
 * of the same name, wherever either was given.
 */
#ifndef TSP_OPTIONS_H
#define TSP_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include <tsocket/producer.h>

#include "decode.h"
#include "plan.h"
#include "problem.h"

#define TSP_IDS_MAX          64
#define TSP_VIEW_TEXT_MAX    256 /* bytes of one --view */
#define TSP_DEVICES_TEXT_MAX 384 /* bytes of --device: as many UUIDs as can be */

struct tsp_ids {
    uint32_t count;
    uint32_t values[TSP_IDS_MAX];
};

/* --ring: samples, or bytes; amount 0 stands for the default. */
struct tsp_amount {
    uint64_t amount;
    bool bytes;
};

/* --view, as it was given: NAME[:KEY=VALUE...]. What the keys say is known when the stream's own options are. */
struct tsp_view_texts {
    uint32_t count;
    char texts[TSP_VIEWS_MAX][TSP_VIEW_TEXT_MAX];
};

enum tsp_log_format {
    TSP_LOG_TEXT,
    TSP_LOG_JSON,
    TSP_LOG_JOURNALD,
};

struct tsp_stream_options {
    char name[TSOCKET_NAME_MAX + 1];
    char *source;
    bool hidden;
    char *skip; /* NULL: nothing */
    struct tsp_recipe recipe;
    struct tsp_view_texts view_texts;
    struct tsp_named_view views[TSP_VIEWS_MAX]; /* made of view_texts */
    uint32_t n_views;
    bool aug;
    uint64_t epochs;
    struct tsp_amount ring;
    uint32_t max_batch; /* 0: the default */
    enum tsocket_on_bad on_bad;
    uint64_t max_bad;
    bool resident;
    uint32_t side_rings;
    uint64_t side_capacity; /* 0: the default */
    char device[TSP_DEVICES_TEXT_MAX];
    enum tsocket_share share;
};

struct tsp_options {
    char name[TSOCKET_NAME_MAX + 1];
    char *dataset;
    char *config;
    struct tsp_stream_options common;                       /* what every stream starts from; without name and source */
    struct tsp_stream_options streams[TSOCKET_STREAMS_MAX]; /* DATASET's `train` first, where there is one */
    uint32_t n_streams;
    bool named_streams; /* --stream was used */
    uint32_t workers;   /* 0: as many as there are CPUs */
    uint32_t wait_for;
    uint32_t join_grace_ms;
    uint32_t max_hold_ms; /* 0: no limit */
    uint32_t side_share;  /* percent */
    uint32_t max_crashes; /* of one name in a minute; 0: no limit */
    bool exit_when_idle;
    struct tsp_limits limits;
    uint64_t max_bytes;
    uint64_t cache_bytes; /* 0: no cache */
    char *ledger;         /* these two: NULL: none */
    char *state;
    struct tsp_ids allow_uids;
    struct tsp_ids allow_gids;
    bool list;
    bool check;
    bool json;        /* what --check prints */
    char *write_skip; /* NULL: no list is wanted */
    bool verbose;
    bool quiet;
    enum tsp_log_format log_format;
    bool help; /* with one of these two nothing else has been looked at */
    bool version;
};

/*
 * True: *options_out is filled and belongs to the caller until tsp_options_fini. False: *problem_out has the message.
 * `environment` is a list of "NAME=value" with a final NULL.
 */
bool tsp_options_parse(int argc, char *const *argv, char *const *environment, struct tsp_options *options_out,
                       struct tsp_problem *problem_out);

void tsp_options_fini(struct tsp_options *options);

struct tsp_layer;

/* The end of tsp_options_parse: merges `n` layers, the weakest first, over the defaults, and checks the whole. */
bool tsp_options_merge(const struct tsp_layer *layers, uint32_t n, struct tsp_options *options_out,
                       struct tsp_problem *problem_out);

#define TSP_RECIPE_TEXT_MAX 4096

/*
 * Every option that changes the order or the bytes of that stream, the seed apart, as one line with a single form:
 * "size=224 augment=train ... shuffle=on ...". What its fingerprint is made of, and what an appendix prints.
 */
void tsp_options_recipe(const struct tsp_options *options, const struct tsp_stream_options *stream,
                        char out[TSP_RECIPE_TEXT_MAX]);

/* The ring of a stream whose samples have `sample_bytes`: its capacity and the largest batch, in samples. */
struct tsp_ring_plan {
    uint64_t capacity;
    uint32_t max_batch;
};

bool tsp_options_ring(const struct tsp_stream_options *stream, uint64_t sample_bytes, struct tsp_ring_plan *plan_out,
                      struct tsp_problem *problem_out);

#endif
