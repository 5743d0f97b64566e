/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Output: rows of RGB on their way into a slot, in its dtype and layout, flipped and normalised as they are written.
 * For resize.c alone.
 */
#ifndef TSP_OUTPUT_H
#define TSP_OUTPUT_H

#include "decode.h"

struct tsp_writer {
    struct tsp_output out;
    bool flip;
    float values[3][256]; /* float32: what becomes of each byte, by channel */
};

void tsp_writer_init(struct tsp_writer *writer, const struct tsp_output *out, bool flip);

/* Writes row `y` of the output from out.width pixels. */
void tsp_writer_row(const struct tsp_writer *writer, uint32_t y, const uint8_t *rgb);

#endif
