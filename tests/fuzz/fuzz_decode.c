/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes as an encoded picture, JPEG or PNG, decoded by one decoder that lives as long as the
 * process, so that what one input leaves behind meets the next. Its length chooses what is asked for: one to three
 * views, train and eval, both filters, dtypes and qualities, turned by EXIF or not. A result may be any class but
 * TSP_STOP; a refusal says why; the same input has the same result and the same pixels twice. In one of four an
 * allocation fails in between, which may stop that decode but not change the next.
 */
#include <stdlib.h>
#include <string.h>

#include "producer/decode.h"

enum {
    SIDE = 32,
    VIEWS = 3,
    BYTES = SIDE * SIDE * 3 * (int)sizeof(float),
};

/* Allocations of our own code and of libpng come here (CMakeLists.txt). */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);

static size_t until_failure; /* 0: none will fail */

static bool fails(void)
{
    return until_failure > 0 && --until_failure == 0;
}

void *__wrap_malloc(size_t bytes)
{
    return fails() ? NULL : __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    return fails() ? NULL : __real_calloc(n, bytes);
}

static void plan(size_t choice, uint32_t width, uint32_t height, uint32_t n, struct tsp_view *views, uint8_t *out)
{
    static const enum tsocket_dtype dtypes[] = {TSOCKET_UINT8, TSOCKET_FLOAT32, TSOCKET_FLOAT16, TSOCKET_BFLOAT16};
    struct tsp_recipe recipe;
    tsp_recipe_init(&recipe);
    recipe.size = SIDE;
    recipe.quality = choice & 1 ? TSP_FAST : TSP_EXACT;
    for (uint32_t i = 0; i < n; i++, choice /= 2) {
        recipe.augment = choice & 2 ? TSP_AUGMENT_EVAL : TSP_AUGMENT_TRAIN;
        recipe.filter = choice & 4 ? TSP_BICUBIC : TSP_BILINEAR;
        recipe.dtype = dtypes[choice >> 3 & 3];
        recipe.layout = choice & 32 ? TSP_NCHW : TSP_NHWC;
        tsp_view_plan(&recipe, 0, choice, i, width, height, &views[i]);
        views[i].out.data = out + (size_t)i * BYTES;
    }
}

static enum tsp_bad decode(struct tsp_decoder *decoder, const struct tsp_encoded *encoded, uint8_t *out)
{
    size_t choice = encoded->len;
    struct tsp_view views[VIEWS];
    uint32_t width, height, n = 1 + (uint32_t)(choice % VIEWS);
    enum tsp_bad bad = tsp_decoder_header(decoder, encoded, choice % 2, &width, &height);
    if (bad != TSP_GOOD)
        return bad;
    struct tsp_storage storage = tsp_decoder_storage(decoder);
    if (storage.format[0] == '\0' || storage.colours[0] == '\0')
        abort();
    plan(choice / 2, width, height, n, views, out);
    return tsp_decoder_draw(decoder, views, n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    static struct tsp_decoder *lasting;
    static uint8_t first[VIEWS * BYTES], second[VIEWS * BYTES];
    const struct tsp_limits limits = {.max_pixels = 1 << 20, .max_scans = 20};
    if (!lasting)
        lasting = tsp_decoder_create(&limits);
    struct tsp_decoder *fresh = tsp_decoder_create(&limits);
    struct tsp_encoded encoded = {.data = malloc(len), .len = len}; /* a copy of its exact length: overreads are seen */
    if (!lasting || !fresh || (!encoded.data && len > 0))
        abort();
    if (len > 0)
        memcpy(encoded.data, data, len);
    memset(first, 0, sizeof first);
    memset(second, 0, sizeof second);

    enum tsp_bad bad = decode(lasting, &encoded, first);
    if (bad == TSP_STOP || (bad != TSP_GOOD && tsp_decoder_why(lasting)[0] == '\0'))
        abort();
    if (len % 4 == 0) {
        until_failure = 1 + len / 4 % 16;
        decode(fresh, &encoded, second);
        until_failure = 0;
    }
    if (bad != decode(fresh, &encoded, second) || (bad == TSP_GOOD && memcmp(first, second, sizeof first) != 0))
        abort();
    tsp_encoded_fini(&encoded);
    tsp_decoder_destroy(fresh);
    return 0;
}
