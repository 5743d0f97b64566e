/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a dataset consists of, as --check tells at its end: how its pictures are stored, how large they are, and the
 * mean and deviation of their channels.
 *
 *     measure    one decoded picture, by the thread that decoded it     (the work)
 *     add        to the summary, under the caller's lock                (a few additions)
 *
 * Every picture counts the same for the channels, whatever its size, as in training.
 */
#ifndef TSP_SUMMARY_H
#define TSP_SUMMARY_H

#include <stdio.h>

#include "decode.h"

enum {
    TSP_TALLIES_MAX = 12, /* different formats, or colours, that the decoder names */
};

/* One picture. */
struct tsp_measure {
    struct tsp_storage storage;
    uint32_t width, height; /* upright */
    double mean[3];         /* of the channels, 0 to 1 */
    double square[3];       /* mean of their squares */
};

struct tsp_tally {
    const char *word;
    uint64_t count;
};

struct tsp_span {
    uint32_t least, most;
    uint64_t sum;
};

/* Starts from {0}. */
struct tsp_summary {
    uint64_t pictures;
    uint64_t pixels;
    uint64_t turned;
    struct tsp_tally formats[TSP_TALLIES_MAX], colours[TSP_TALLIES_MAX];
    struct tsp_span width, height;
    double mean[3], square[3]; /* sums over the pictures */
};

/* Fills mean and square from a whole picture. */
void tsp_measure_pixels(struct tsp_measure *measure, const struct tsp_pixels *pixels);

void tsp_summary_add(struct tsp_summary *summary, const struct tsp_measure *measure);

/* The channels' means and deviations, for --mean and --std; 0 and 0 without pictures. */
void tsp_summary_channels(const struct tsp_summary *summary, double mean_out[3], double std_out[3]);

/* Lines for people, each behind two spaces; members of a JSON object, each behind a comma. */
void tsp_summary_print(const struct tsp_summary *summary, FILE *out);
void tsp_summary_print_json(const struct tsp_summary *summary, FILE *out);

#endif
