/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A norm: how the bytes of pixels become what a network reads.
 *
 *     out = (byte / 255 - mean[c]) / std[c]      in float32, in this order: the bits of ToTensor and Normalize
 *           rounded to nearest, ties to even     where it shall be float16 or bfloat16
 *
 * The one definition behind the daemon's last pass (src/producer/output.h), tsocket_convert, and the kernels of
 * tsocket_convert_on, which are given the table: all have the same bits. A byte has 256 values, so that the table says
 * all there is to say; where the processor divides vectors faster than it looks bytes up, write does that instead.
 */
#ifndef TSI_NORM_H
#define TSI_NORM_H

#include <tsocket/convert.h>

enum {
    TSI_NORM_VALUES = 256, /* of a byte */
};

struct tsi_norm {
    enum tsocket_dtype dtype; /* of the result: TSOCKET_FLOAT32, TSOCKET_FLOAT16 or TSOCKET_BFLOAT16 */
    uint32_t channels;
    float mean[TSOCKET_CHANNELS_MAX];
    float std[TSOCKET_CHANNELS_MAX];                      /* as mean: finite; and not 0 */
    uint32_t bits[TSOCKET_CHANNELS_MAX][TSI_NORM_VALUES]; /* what becomes of each byte of a channel; 0 beyond them */
};

/* Where elements go, counted in elements: from a pixel to the next one, which may lie before it, and from a channel to
 * the next one. */
struct tsi_norm_steps {
    ptrdiff_t pixel;
    ptrdiff_t channel;
};

void tsi_norm_init(struct tsi_norm *norm, enum tsocket_dtype dtype, uint32_t channels, const float *mean,
                   const float *std);

/* Makes so many pixels, dense at `from`, elements from `to` on. */
void tsi_norm_write(const struct tsi_norm *norm, const uint8_t *from, size_t pixels, void *to,
                    struct tsi_norm_steps steps);

/* The same by the table alone, on any processor: the reference. */
void tsi_norm_look_up(const struct tsi_norm *norm, const uint8_t *from, size_t pixels, void *to,
                      struct tsi_norm_steps steps);

#endif
