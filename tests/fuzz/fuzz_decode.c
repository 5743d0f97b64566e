/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libFuzzer target: any bytes as an encoded picture, decoded by one decoder that lives as long as the process, so that
 * what one input leaves behind meets the next. Two views, of which one is a small part. A result may be any class but
 * TSP_STOP; a refusal says why; the same input has the same result and the same pixels twice.
 */
#include <stdlib.h>
#include <string.h>

#include "producer/decode.h"

enum {
    SIDE = 32,
    VIEWS = 2,
    BYTES = SIDE * SIDE * 3,
};

static enum tsp_bad decode(struct tsp_decoder *decoder, const struct tsp_encoded *encoded, uint8_t *out)
{
    struct tsp_recipe recipe;
    struct tsp_view views[VIEWS];
    uint32_t width, height;
    enum tsp_bad bad = tsp_decoder_header(decoder, encoded, true, &width, &height);
    if (bad != TSP_GOOD)
        return bad;
    tsp_recipe_init(&recipe);
    recipe.size = SIDE;
    for (uint32_t i = 0; i < VIEWS; i++) {
        recipe.augment = i == 0 && encoded->len % 2 ? TSP_AUGMENT_EVAL : TSP_AUGMENT_TRAIN;
        recipe.filter = i == 0 ? TSP_BILINEAR : TSP_BICUBIC;
        tsp_view_plan(&recipe, 0, encoded->len, i, width, height, &views[i]);
        views[i].out.data = out + i * BYTES;
    }
    return tsp_decoder_draw(decoder, views, encoded->len % 3 ? 1 : VIEWS);
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
    if (!lasting || !fresh)
        abort();

    struct tsp_encoded encoded = {.data = malloc(len), .len = len}; /* a copy of its exact length: overreads are seen */
    if (!encoded.data && len > 0)
        abort();
    if (len > 0)
        memcpy(encoded.data, data, len);
    enum tsp_bad bad = decode(lasting, &encoded, first);
    if (bad == TSP_STOP || bad != decode(fresh, &encoded, second))
        abort();
    if (bad == TSP_GOOD ? memcmp(first, second, sizeof first) != 0 : tsp_decoder_why(lasting)[0] == '\0')
        abort();
    tsp_encoded_fini(&encoded);
    tsp_decoder_destroy(fresh);
    return 0;
}
