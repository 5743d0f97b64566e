/* SPDX-License-Identifier: Apache-2.0 */
/* The conversion as kernels: a thread for each pixel of a block of images. tests/gpu/ptx.sh makes convert.ptx of this. */
#include "convert_pixel.h"

#define KERNEL extern "C" __attribute__((global))

template <typename Element>
static __attribute__((device)) void convert(const uint8_t *from, Element *to, const uint32_t *table,
                                            const uint32_t *index, const uint8_t *flip,
                                            const tsc_convert_shape &shape)
{
    uint32_t pixel = __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();

    if (pixel >= shape.pixels)
        return;
    for (uint32_t image = __nvvm_read_ptx_sreg_ctaid_y(); image < shape.images;
         image += __nvvm_read_ptx_sreg_nctaid_y()) {
        const uint8_t *bytes = from + tsc_convert_from(&shape, index, flip, image, pixel) * shape.channels;

        for (uint32_t c = 0; c < shape.channels; c++)
            to[tsc_convert_to(&shape, image, pixel, c)] = (Element)table[c * TSC_CONVERT_VALUES + bytes[c]];
    }
}

KERNEL void tsocket_convert_16(const uint8_t *from, uint16_t *to, const uint32_t *table, const uint32_t *index,
                               const uint8_t *flip, uint32_t images, uint32_t pixels, uint32_t width,
                               uint32_t channels, uint32_t channels_first)
{
    convert(from, to, table, index, flip, {images, pixels, width, channels, channels_first});
}

KERNEL void tsocket_convert_32(const uint8_t *from, uint32_t *to, const uint32_t *table, const uint32_t *index,
                               const uint8_t *flip, uint32_t images, uint32_t pixels, uint32_t width,
                               uint32_t channels, uint32_t channels_first)
{
    convert(from, to, table, index, flip, {images, pixels, width, channels, channels_first});
}
