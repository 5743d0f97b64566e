/* SPDX-License-Identifier: Apache-2.0 */
#include <tsocket/convert.h>

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "../ipc/error.h"
#include "convert_shared.h"

void tsocket_conversion_init(struct tsocket_conversion *conversion)
{
    *conversion = (struct tsocket_conversion){
        .size = sizeof(*conversion), .dtype = TSOCKET_FLOAT32, .channels = 3, .std = {1, 1, 1, 1}};
}

int tsc_convert_check(const struct tsocket_conversion *conversion)
{
    enum tsocket_dtype dtype = conversion->dtype;

    if (conversion->size != sizeof(*conversion))
        return tsi_fail(TSOCKET_EINVAL,
                        "conversion.size is %zu; call tsocket_conversion_init of this library (%s) first",
                        conversion->size, tsocket_version());
    if (dtype != TSOCKET_FLOAT32 && dtype != TSOCKET_FLOAT16 && dtype != TSOCKET_BFLOAT16)
        return tsi_fail(TSOCKET_EINVAL, "conversion.dtype is %d; float32, float16 and bfloat16 are possible",
                        (int)dtype);
    if (conversion->channels < 1 || conversion->channels > TSOCKET_CHANNELS_MAX)
        return tsi_fail(TSOCKET_EINVAL, "conversion.channels is %u; 1 to %d are possible", conversion->channels,
                        TSOCKET_CHANNELS_MAX);
    for (uint32_t c = 0; c < conversion->channels; c++) {
        if (!isfinite(conversion->mean[c]) || !isfinite(conversion->std[c]) ||
            !(conversion->std[c] < 0 || conversion->std[c] > 0))
            return tsi_fail(TSOCKET_EINVAL,
                            "conversion.mean[%u] is %g and std %g; finite numbers are needed, std not 0", c,
                            (double)conversion->mean[c], (double)conversion->std[c]);
    }
    return TSOCKET_OK;
}

void tsc_convert_norm(const struct tsocket_conversion *conversion, struct tsi_norm *norm_out)
{
    tsi_norm_init(norm_out, conversion->dtype, conversion->channels, conversion->mean, conversion->std);
}

int tsc_convert_shape(const struct tsocket_conversion *conversion, const struct tsocket_pick *pick, uint64_t images,
                      uint64_t pixels, struct tsc_convert_shape *shape_out)
{
    if (images > UINT32_MAX || pixels > UINT32_MAX)
        return tsi_fail(TSOCKET_EINVAL, "%" PRIu64 " pictures of %" PRIu64 " pixels; each must be below 2^32", images,
                        pixels);
    if (pick->flip != NULL && (pick->width == 0 || pixels % pick->width != 0))
        return tsi_fail(TSOCKET_EINVAL, "pick.width is %" PRIu32 ", which is no row of %" PRIu64 " pixels", pick->width,
                        pixels);
    *shape_out = (struct tsc_convert_shape){.images = (uint32_t)images,
                                            .pixels = (uint32_t)pixels,
                                            .width = pick->width,
                                            .channels = conversion->channels,
                                            .channels_first = conversion->channels_first};
    return TSOCKET_OK;
}

/* The same with each row from right to left. */
static void write_flipped(const struct tsi_norm *norm, const uint8_t *from, size_t pixels, size_t width,
                          unsigned char *to, struct tsi_norm_steps steps)
{
    size_t step_bytes = (size_t)steps.pixel * tsocket_dtype_bytes(norm->dtype);
    const struct tsi_norm_steps back = {.pixel = -steps.pixel, .channel = steps.channel};

    for (size_t row = 0; row < pixels; row += width)
        tsi_norm_write(norm, from + row * norm->channels, width, to + (row + width - 1) * step_bytes, back);
}

/* All pictures of the result. */
static void convert(const struct tsocket_conversion *conversion, const struct tsocket_pick *pick, const uint8_t *from,
                    uint64_t images, uint64_t pixels, unsigned char *to)
{
    size_t elements = pixels * conversion->channels, picture_bytes = elements * tsocket_dtype_bytes(conversion->dtype);
    struct tsi_norm_steps steps = {.pixel = (ptrdiff_t)conversion->channels, .channel = 1};
    struct tsi_norm norm;

    if (conversion->channels_first)
        steps = (struct tsi_norm_steps){.pixel = 1, .channel = (ptrdiff_t)pixels};
    tsc_convert_norm(conversion, &norm);
    for (uint64_t i = 0; i < images; i++, to += picture_bytes) {
        const uint8_t *source = from + (pick->index != NULL ? pick->index[i] : i) * elements;

        if (pick->flip != NULL && pick->flip[i] != 0)
            write_flipped(&norm, source, pixels, pick->width, to, steps);
        else
            tsi_norm_write(&norm, source, pixels, to, steps);
    }
}

int tsocket_convert(const struct tsocket_conversion *conversion, const uint8_t *from, uint64_t images, uint64_t pixels,
                    void *to)
{
    static const struct tsocket_pick all = {.index = NULL};
    int rc;

    if (conversion == NULL || from == NULL || to == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_convert: NULL");
    rc = tsc_convert_check(conversion);
    if (rc == TSOCKET_OK)
        convert(conversion, &all, from, images, pixels, to);
    return rc;
}

int tsocket_convert_picked(const struct tsocket_conversion *conversion, const struct tsocket_pick *pick,
                           const uint8_t *from, uint64_t images, uint64_t pixels, void *to)
{
    struct tsc_convert_shape shape;
    int rc;

    if (conversion == NULL || pick == NULL || from == NULL || to == NULL)
        return tsi_fail(TSOCKET_EINVAL, "tsocket_convert_picked: NULL");
    rc = tsc_convert_check(conversion);
    if (rc == TSOCKET_OK)
        rc = tsc_convert_shape(conversion, pick, images, pixels, &shape);
    if (rc == TSOCKET_OK)
        convert(conversion, pick, from, images, pixels, to);
    return rc;
}
