/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JPEG, the only place that knows libjpeg. header, then at most one decode of the same image; nothing of libjpeg,
 * its jumps included, leaves this module. A file that lost pixels is never delivered as good: it is TSP_TRUNCATED where
 * the file ends too early, TSP_CORRUPT where its data is wrong. Damage that costs no pixel (stray bytes between
 * segments, a missing end marker) is let pass. For decode.c alone; a tsp_jpeg belongs to one thread.
 */
#ifndef TSP_JPEG_H
#define TSP_JPEG_H

#include "decode.h"
#include "pixels.h"

struct tsp_jpeg;

/* `why`, of TSP_WHY_MAX bytes, receives one line with each result that is not TSP_GOOD. NULL: no memory. */
struct tsp_jpeg *tsp_jpeg_create(const struct tsp_limits *limits, char *why);
void tsp_jpeg_destroy(struct tsp_jpeg *jpeg); /* NULL is allowed */

/* Reads up to the first scan of `data`, which must stay until the decode; the limits are checked. */
enum tsp_bad tsp_jpeg_header(struct tsp_jpeg *jpeg, const uint8_t *data, size_t len, uint32_t *width_out,
                             uint32_t *height_out);

/* The EXIF orientation in the header that was read, 1 to 8. */
uint32_t tsp_jpeg_orientation(const struct tsp_jpeg *jpeg);

/* How it is stored, by the header that was read: "progressive JPEG"; "4:2:0", or another kind of colours than YCbCr. */
const char *tsp_jpeg_format(const struct tsp_jpeg *jpeg);
const char *tsp_jpeg_colours(const struct tsp_jpeg *jpeg);

/*
 * Decodes at least `wanted`, with the bits of a decode of the whole picture. With `reduce` 2, 4 or 8 the picture is
 * made so many times smaller, each side rounded up, by leaving out high frequencies, which saves most of the work
 * behind the entropy decoding; `wanted` and the result are in pixels of the smaller picture. Rows below it are decoded
 * only where that is needed to know that the file is whole. *pixels_out stays valid until the next call.
 */
enum tsp_bad tsp_jpeg_decode(struct tsp_jpeg *jpeg, const struct tsp_rect *wanted, uint32_t reduce,
                             struct tsp_pixels *pixels_out);

/* "libjpeg-turbo 2.1.5": what this was built with. */
const char *tsp_jpeg_library(void);

#endif
