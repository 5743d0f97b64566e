/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Resize of a box of a picture into a slot: antialiased, in two passes, with the bits of Pillow's Image.resize(size,
 * filter, box) in 8-bit arithmetic.
 *
 *     source rows --horizontal--> a few narrow rows, kept in turn --vertical--> one row --output.h--> slot
 *
 * The filter is as wide as a destination pixel is in the source, so at the box's edges it sees pixels outside the box,
 * where the picture has them; with view->clip it does not, as in crop(box).resize(size, filter). A flip costs nothing:
 * the weights of the horizontal pass are taken in the other order. For decode.c alone; a tsp_resize belongs to one
 * thread and reuses its buffers.
 */
#ifndef TSP_RESIZE_H
#define TSP_RESIZE_H

#include "decode.h"
#include "kernels.h"
#include "pixels.h"

struct tsp_resize;

struct tsp_resize *tsp_resize_create(const struct tsp_kernels *kernels); /* NULL: no memory */
void tsp_resize_destroy(struct tsp_resize *resize);                      /* NULL is allowed */

/* The pixels that the view needs of a picture of width x height. */
struct tsp_rect tsp_resize_needs(const struct tsp_view *view, uint32_t width, uint32_t height);

/* Draws the view from pixels that contain what it needs. False: no memory. */
bool tsp_resize_draw(struct tsp_resize *resize, const struct tsp_pixels *pixels, const struct tsp_view *view);

#endif
