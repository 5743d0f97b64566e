/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PNG, the only place that knows libpng. As in jpeg.h: header, then at most one decode of the same image; nothing of
 * libpng, its jumps included, leaves this module; what lost pixels is TSP_TRUNCATED or TSP_CORRUPT. Grey is replicated,
 * palettes are expanded, alpha is dropped without blending, of 16 bits the upper 8 are taken; colour profiles are not
 * looked at. For decode.c alone; a tsp_png belongs to one thread.
 */
#ifndef TSP_PNG_H
#define TSP_PNG_H

#include "decode.h"
#include "pixels.h"

struct tsp_png;

/* `why`, of TSP_WHY_MAX bytes, receives one line with each result that is not TSP_GOOD. NULL: no memory. */
struct tsp_png *tsp_png_create(const struct tsp_limits *limits, char *why);
void tsp_png_destroy(struct tsp_png *png); /* NULL is allowed */

/* Reads up to the first pixels of `data`, which must stay until the decode; the limits are checked. */
enum tsp_bad tsp_png_header(struct tsp_png *png, const uint8_t *data, size_t len, uint32_t *width_out,
                            uint32_t *height_out);

/* The EXIF orientation in the header that was read, 1 to 8. */
uint32_t tsp_png_orientation(struct tsp_png *png);

/* How it is stored, by the header that was read: "interlaced PNG"; "palette". */
const char *tsp_png_format(const struct tsp_png *png);
const char *tsp_png_colours(const struct tsp_png *png);

/* Decodes at least `wanted`; rows below it only in a file without its end. *pixels_out stays until the next call. */
enum tsp_bad tsp_png_decode(struct tsp_png *png, const struct tsp_rect *wanted, struct tsp_pixels *pixels_out);

/* "1.6.39": what runs. */
const char *tsp_png_library(void);

#endif
