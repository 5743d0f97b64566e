/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A feed: one stream of tsocketd with all that is behind it, from its options to its place in the producer.
 *
 *     options --open--> source, fields --size--> ring --add--> a stream of the producer
 *
 * Used by the main thread. The decode threads read the source, so a feed must stay open until they have ended.
 */
#ifndef TSP_FEED_H
#define TSP_FEED_H

#include <stdio.h>

#include "fingerprint.h"
#include "options.h"
#include "pipeline.h"

struct tsp_feed {
    const struct tsp_stream_options *options; /* borrowed */
    struct tsp_source *source;
    struct tsp_stream_plan plan;
    struct tsocket_field fields[TSOCKET_FIELDS_MAX];
    uint32_t n_fields;
    uint64_t sample_bytes; /* of all fields */
    struct tsp_ring_plan ring;
    char dataset_id[TSP_FINGERPRINT];
    char recipe_id[TSP_FINGERPRINT];
    char recipe[TSP_RECIPE_TEXT_MAX]; /* what recipe_id stands for */
    uint64_t first_epoch;             /* bookmark.h sets it */
};

/* Lists the source of one of the daemon's streams. True: *feed_out is to be given to tsp_feed_close. */
bool tsp_feed_open(const struct tsp_options *daemon, const struct tsp_stream_options *options,
                   const struct tsp_source_limits *limits, struct tsp_feed *feed_out, struct tsp_problem *problem_out);

/* Sizes the ring; to be called before the three below. False: the options of the ring do not fit these samples. */
bool tsp_feed_size(struct tsp_feed *feed, struct tsp_problem *problem_out);

void tsp_feed_close(struct tsp_feed *feed);

/* Declares the stream to the producer; returns what tsocket_producer_add_stream does. */
int tsp_feed_add(const struct tsp_feed *feed, struct tsocket_producer *producer);

/* One line about the source, the fields and the ring, for the log. */
void tsp_feed_describe(const struct tsp_feed *feed, char *text, size_t len);

/* The samples as JSON lines, in the order of their index; with the stream's name in each line where `named`. */
void tsp_feed_list(const struct tsp_feed *feed, bool named, FILE *out);

#endif
