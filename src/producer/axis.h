/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One direction of a resize: which source pixels make each destination pixel, and with which weights.
 *
 *     set       the geometry: what the filter may see, and what it needs
 *     prepare   taps and weights, once per box
 *
 * The numbers are those of Pillow's Image.resize, to the last bit. For resize.c alone.
 */
#ifndef TSP_AXIS_H
#define TSP_AXIS_H

#include "buffer.h"
#include "decode.h"
#include "kernels.h"

struct tsp_axis {
    uint32_t origin;              /* place in the picture of the first pixel that the filter may see */
    double from, scale;           /* the box's edge, counted from there; source pixels per destination pixel */
    double reach;                 /* of the filter, in source pixels */
    uint32_t source, destination; /* pixels that the filter may see; that are made */
    enum tsp_filter filter;
    uint32_t start, needed;     /* the part of the picture that the filter looks at */
    struct tsp_weights weights; /* after prepare; taps count from `start` */
    struct tsp_buffer taps;     /* what weights consist of */
    struct tsp_buffer whole;
    struct tsp_buffer pairs;
    struct tsp_buffer exact; /* the weights of one pixel before they are rounded */
};

/*
 * The box from .. from + length of `source` pixels becomes `destination` pixels. Clipped: nothing outside the box is
 * seen, as if it were a picture of its own. Starts from {0}, or from any earlier use.
 */
void tsp_axis_set(struct tsp_axis *axis, double from, double length, uint32_t source, uint32_t destination,
                  enum tsp_filter filter, bool clip);

/*
 * Fills `weights`; with `mirror` for the destination in reverse order. Behind the last one stand as many taps without
 * weights as make up a multiple of TSP_SQUEEZE_PIXELS. False: no memory.
 */
bool tsp_axis_prepare(struct tsp_axis *axis, bool mirror);

void tsp_axis_fini(struct tsp_axis *axis);

#endif
