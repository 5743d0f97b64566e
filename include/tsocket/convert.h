/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From bytes to what a network reads, in one pass: uint8 pictures as the ring holds them become normalised floating
 * point in memory of the caller's, in either layout.
 *
 *     out = (pixel / 255 - mean[c]) / std[c]
 *
 * computed in float32 and then rounded to nearest, ties to even, with the very bits of a tsocketd that serves the
 * result's dtype itself. A ring of bytes takes a quarter of the room and of the copying that float32 takes, or half of
 * float16's; this makes up for it in each trainer, at nearly the speed of memory. Any thread may call what needs no
 * handle.
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
    float mean[TSOCKET_CHANNELS_MAX]; /* default 0; finite */
    float std[TSOCKET_CHANNELS_MAX];  /* default 1; finite, not 0 */
};

/* Fills *conversion with the defaults. Always call it first, then change what is to differ. */
TSOCKET_API void tsocket_conversion_init(struct tsocket_conversion *conversion);

/*
 * Converts `images` pictures of `pixels` pixels each, dense at `from` as [images, pixels, channels], and writes as many
 * elements, dense, at `to`, which is the caller's and does not overlap `from`. TSOCKET_OK or TSOCKET_EINVAL.
 */
TSOCKET_API int tsocket_convert(const struct tsocket_conversion *conversion, const uint8_t *from, uint64_t images,
                                uint64_t pixels, void *to);

/* Which pictures the result is made of, and which of it are mirrored left to right. All zero: all, in order, none. */
struct tsocket_pick {
    const uint32_t *index; /* picture i of the result is made of picture index[i] at `from`; NULL: i */
    const uint8_t *flip;   /* picture i of the result is mirrored where flip[i] is not 0; NULL: none */
    uint32_t width;        /* pixels in a row; only needed with flip */
};

/* The same with a pick. `images` and `to` are the result's. TSOCKET_EINVAL: the width does not divide `pixels`. */
TSOCKET_API int tsocket_convert_picked(const struct tsocket_conversion *conversion, const struct tsocket_pick *pick,
                                       const uint8_t *from, uint64_t images, uint64_t pixels, void *to);

/*
 * The same on the GPU that the handle's data is on, with the same bits: `from` (such as batch.data), `to`, pick->index
 * and pick->flip are addresses there. `pick` may be NULL. Queued on `stream` (a CUstream or cudaStream_t, NULL: the
 * default one); release what it reads by tsocket_release_after on the same one. The first call of a conversion waits
 * for the device; up to 16 different ones are kept.
 *
 * TSOCKET_OK: it is queued. TSOCKET_EINVAL, also where the data is in host memory; TSOCKET_EFORK; TSOCKET_EDEVICE,
 * TSOCKET_ENOMEM with the driver's reason.
 */
TSOCKET_API int tsocket_convert_on(struct tsocket *ts, const struct tsocket_conversion *conversion,
                                   const struct tsocket_pick *pick, const uint8_t *from, uint64_t images,
                                   uint64_t pixels, void *to, void *stream);

#ifdef __cplusplus
}
#endif

#endif
