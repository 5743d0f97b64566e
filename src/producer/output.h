/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output: lines of RGB on their way into a slot, in its dtype and layout, normalised as they are written. A line is a
 * row of the output or, where a picture lies on its side, a column. For resize.c alone.
 */
#ifndef TSP_OUTPUT_H
#define TSP_OUTPUT_H

#include "../ipc/norm.h"
#include "decode.h"

struct tsp_writer {
    struct tsp_output out;
    bool columns;         /* lines are columns */
    struct tsi_norm norm; /* the last one that was needed: floating point has one, bytes have none */
};

/* Starts from {0}, or from any earlier use. */
void tsp_writer_init(struct tsp_writer *writer, const struct tsp_output *out, bool columns);

/* Where line `i` lies in the output, if it is written as it comes; otherwise NULL, and it must be given to line. */
uint8_t *tsp_writer_place(const struct tsp_writer *writer, uint32_t i);

/* Writes line `i`: out.width pixels of a row or out.height pixels of a column. */
void tsp_writer_line(const struct tsp_writer *writer, uint32_t i, const uint8_t *rgb);

#endif
