/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode: one encoded image, and a list of boxes that are wanted of it, each resized into a slot.
 *
 *     header    size known, limits checked, nothing allocated yet
 *       v       the caller draws its boxes (they depend on the size)
 *     draw      pixels inside the boxes are decoded once, resized, flipped, converted and written to the slots
 *
 * A decoder belongs to one thread and reuses its buffers: after warm-up nothing is allocated per image, except inside
 * libjpeg and for libpng. Files are known by their first bytes: JPEG and PNG are decoded, others are named.
 */
#ifndef TSP_DECODE_H
#define TSP_DECODE_H

#include "pixels.h"
#include "recipe.h"
#include "source.h"

enum {
    TSP_VIEWS_MAX = 8,
    TSP_WHY_MAX = 256, /* bytes of the line that says what is wrong with an image */
};

struct tsp_limits {
    uint64_t max_pixels;
    uint32_t max_scans;
};

/* Where the pixels go: width x height x 3 in dtype and layout. */
struct tsp_output {
    uint32_t width;
    uint32_t height;
    enum tsocket_dtype dtype;
    enum tsp_layout layout;
    float mean[3];
    float std[3];
    void *data;
};

/* One view of the image: a box in source pixels (it may have fractions), how to resize it and where to put it. */
struct tsp_view {
    double x, y, width, height;
    enum tsp_filter filter;
    bool fast; /* may be made of a picture that was decoded smaller, if all views of a draw may */
    bool clip; /* crop, then resize: the filter does not see the picture around the box */
    bool flip; /* mirrored left to right */
    bool flop; /* top to bottom */
    bool turn; /* then rows become columns: those of the box are columns of the output */
    struct tsp_output out;
};

struct tsp_decoder;

struct tsp_decoder *tsp_decoder_create(const struct tsp_limits *limits); /* NULL: no memory */
void tsp_decoder_destroy(struct tsp_decoder *decoder);                   /* NULL is allowed */

/*
 * Looks at the header of `encoded`, which must stay until draw. TSP_GOOD: the image's size is known. With `upright`,
 * size and boxes are those of the picture as its EXIF orientation says that it is to be seen, else as it is stored.
 */
enum tsp_bad tsp_decoder_header(struct tsp_decoder *decoder, const struct tsp_encoded *encoded, bool upright,
                                uint32_t *width_out, uint32_t *height_out);

/* How the picture of the last good header is stored, in words that stay: to be asked between header and draw. */
struct tsp_storage {
    const char *format;  /* "JPEG", "progressive JPEG", "PNG", ... */
    const char *colours; /* "4:2:0", "grey", "RGB", ... */
    bool turned;         /* by its EXIF orientation, if the header was asked for that */
};

struct tsp_storage tsp_decoder_storage(const struct tsp_decoder *decoder);

/* Decodes once and writes `n` views, 1 to TSP_VIEWS_MAX. On TSP_GOOD all outputs are written, otherwise their content
 * is undefined. */
enum tsp_bad tsp_decoder_draw(struct tsp_decoder *decoder, const struct tsp_view *views, uint32_t n);

/*
 * In place of draw: decodes all of it, as it is stored. TSP_GOOD: every pixel is there; *pixels_out stays valid until
 * the next call, and *orientation_out is how it is to be turned (1 if the header was not asked for that).
 */
enum tsp_bad tsp_decoder_whole(struct tsp_decoder *decoder, struct tsp_pixels *pixels_out, uint32_t *orientation_out);

/* One line about the last result that was not TSP_GOOD. */
const char *tsp_decoder_why(const struct tsp_decoder *decoder);

/*
 * Draws the box and flip of view number `view` of `sample` in `epoch` for an image of width x height, by the recipe,
 * and fills everything of *view_out but out.data. A pure function of its arguments.
 */
void tsp_view_plan(const struct tsp_recipe *recipe, uint64_t epoch, uint64_t sample, uint32_t view, uint32_t width,
                   uint32_t height, struct tsp_view *view_out);

/* The whole image, pixel for pixel, for sources of raw pictures: their recipe does not crop. Fills all but out.data. */
void tsp_view_whole(const struct tsp_recipe *recipe, uint32_t width, uint32_t height, struct tsp_view *view_out);

#endif
