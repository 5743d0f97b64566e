/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the pixels of a conversion on a GPU come from and go to (convert.h in include/tsocket): for the GPU's compiler,
 * and for the kernel that the tests simulate. What becomes of a byte stands in the table of the host's norm
 * (src/ipc/norm.h), so that both have the same bits, whatever the type.
 */
#ifndef TSC_CONVERT_PIXEL_H
#define TSC_CONVERT_PIXEL_H

#ifdef __CUDA__
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
#define TSC_SHARED static inline __attribute__((device))
#else
#include <stdint.h>
#define TSC_SHARED static inline
#endif

#define TSC_CONVERT_VALUES 256 /* of a byte: entries of each channel's table */

/* What a kernel is told, but for the addresses. */
struct tsc_convert_shape {
    uint32_t images;
    uint32_t pixels; /* of an image */
    uint32_t width;  /* of its rows; for flips */
    uint32_t channels;
    uint32_t channels_first;
};

/* The pixel that `pixel` of the result's `image` is made of, counted from the first image's first. */
TSC_SHARED uint64_t tsc_convert_from(const struct tsc_convert_shape *shape, const uint32_t *index, const uint8_t *flip,
                                     uint32_t image, uint32_t pixel)
{
    uint32_t source = index ? index[image] : image;

    if (flip && flip[image])
        pixel += shape->width - 1 - 2 * (pixel % shape->width);
    return (uint64_t)source * shape->pixels + pixel;
}

/* The element of the result for a channel of that pixel. */
TSC_SHARED uint64_t tsc_convert_to(const struct tsc_convert_shape *shape, uint32_t image, uint32_t pixel,
                                   uint32_t channel)
{
    uint64_t first = (uint64_t)image * shape->pixels * shape->channels;

    return shape->channels_first ? first + (uint64_t)channel * shape->pixels + pixel
                                 : first + (uint64_t)pixel * shape->channels + channel;
}

#endif
