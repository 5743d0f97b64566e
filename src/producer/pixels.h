/* SPDX-License-Identifier: Apache-2.0 */
/* A decoded picture, or the part of it that is there: what jpeg.c makes and resize.c reads. */
#ifndef TSP_PIXELS_H
#define TSP_PIXELS_H

#include <stddef.h>
#include <stdint.h>

struct tsp_rect {
    uint32_t x, y, width, height;
};

/* RGB, three bytes a pixel. Reading outside `part` is an error. */
struct tsp_pixels {
    uint32_t width, height; /* of the whole picture */
    struct tsp_rect part;   /* the part that is in memory */
    const uint8_t *data;    /* its first pixel; whoever filled this owns it */
    size_t stride;          /* bytes from one row to the next */
};

#endif
