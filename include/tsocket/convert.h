/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From bytes to what a network reads, in one pass: uint8 pictures as the ring holds them become normalised floating
 * point in memory of the caller's, in either layout.
 *
 *     out = (pixel / 255 - mean[c]) / std[c]
 *
 * computed in float32, with the very bits of a tsocketd that serves float32 itself, and then rounded to nearest, ties
 * to even. A ring of bytes takes a quarter of the room and of the copying; this makes up for it in each trainer, at the
 * speed of memory. Any thread may call it; it needs no handle.
 */
#ifndef TSOCKET_CONVERT_H
#define TSOCKET_CONVERT_H

#include <tsocket/tsocket.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TSOCKET_CHANNELS_MAX 4

struct tsocket_conversion {
    size_t size;              /* set by tsocket_conversion_init */
    enum tsocket_dtype dtype; /* of the result: TSOCKET_FLOAT32 (default), TSOCKET_FLOAT16 or TSOCKET_BFLOAT16 */
    bool channels_first;      /* the result is [images, channels, pixels]; default false: [images, pixels, channels] */
    uint32_t channels;        /* 1 to TSOCKET_CHANNELS_MAX; default 3 */
    float mean[TSOCKET_CHANNELS_MAX]; /* default 0 */
    float std[TSOCKET_CHANNELS_MAX];  /* default 1; not 0 */
};

/* Fills *conversion with the defaults. Always call it first, then change what is to differ. */
TSOCKET_API void tsocket_conversion_init(struct tsocket_conversion *conversion);

/*
 * Converts `images` pictures of `pixels` pixels each, dense at `from` as [images, pixels, channels], and writes as many
 * elements, dense, at `to`, which is the caller's and does not overlap `from`. TSOCKET_OK or TSOCKET_EINVAL.
 */
TSOCKET_API int tsocket_convert(const struct tsocket_conversion *conversion, const uint8_t *from, uint64_t images,
                                uint64_t pixels, void *to);

#ifdef __cplusplus
}
#endif

#endif
