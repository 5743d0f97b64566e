/* SPDX-License-Identifier: Apache-2.0 */
#include "fingerprint.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <xxhash.h>

/* Each piece is hashed with what comes before it as the seed: so pieces have their places and their borders. */
static uint64_t add_text(uint64_t before, const char *text)
{
    return XXH3_64bits_withSeed(text, strlen(text), before);
}

static uint64_t add_number(uint64_t before, uint64_t number)
{
    unsigned char bytes[8];

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(number >> (8 * i));
    return XXH3_64bits_withSeed(bytes, sizeof(bytes), before);
}

static void print(uint64_t hash, char out[TSP_FINGERPRINT])
{
    snprintf(out, TSP_FINGERPRINT, "%016" PRIx64, hash);
}

void tsp_fingerprint_dataset(const struct tsp_source *source, char out[TSP_FINGERPRINT])
{
    uint64_t hash = add_number(0, source->count);

    hash = add_number(add_number(hash, source->raw_width), source->raw_height);
    for (uint64_t i = 0; i < source->count; i++) {
        hash = add_text(hash, source->ops->key(source, i));
        hash = add_number(hash, (uint64_t)source->ops->label(source, i));
    }
    print(hash, out);
}

void tsp_fingerprint_text(const char *text, char out[TSP_FINGERPRINT])
{
    print(add_text(0, text), out);
}
