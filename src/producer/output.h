/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output: lines of RGB on their way into a slot, in its dtype and layout, normalised as they are written. A line is a
 * row of the output or, where a picture lies on its side, a column. For resize.c alone.
 */
#ifndef TSP_OUTPUT_H
#define TSP_OUTPUT_H

#include "decode.h"

struct tsp_writer {
    struct tsp_output out;
    bool columns;         /* lines are columns */
    float values[3][256]; /* float32: what becomes of each byte, by channel ... */
    float mean[3];        /* ... with these; std 0: there are none yet */
    float std[3];
};

/* Starts from {0}, or from any earlier use. */
void tsp_writer_init(struct tsp_writer *writer, const struct tsp_output *out, bool columns);

/* Where line `i` lies in the output, if it is written as it comes; otherwise NULL, and it must be given to line. */
uint8_t *tsp_writer_place(const struct tsp_writer *writer, uint32_t i);

/* Writes line `i`: out.width pixels of a row or out.height pixels of a column. */
void tsp_writer_line(const struct tsp_writer *writer, uint32_t i, const uint8_t *rgb);

#endif
