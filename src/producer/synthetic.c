/* SPDX-License-Identifier: Apache-2.0 */
#include "synthetic.h"

#include <ctype.h>
#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "random.h"

#define SYNTHETIC_PREFIX "synthetic:"
#define NULL_PREFIX      "null:"

/* As many samples as random.h can tell apart; sides as in a JPEG. */
#define COUNT_MAX ((UINT64_C(1) << 48) - 1)
#define SIDE_MAX  65500

enum {
    LABELS = 10,
};

static const char *synthetic_key(const struct tsp_source *source, uint64_t index)
{
    static _Thread_local char key[32];
    (void)source;
    snprintf(key, sizeof key, "synthetic/%06" PRIu64, index);
    return key;
}

static int64_t synthetic_label(const struct tsp_source *source, uint64_t index)
{
    (void)source;
    return (int64_t)(index % LABELS);
}

static enum tsp_bad synthetic_read(const struct tsp_source *source, uint64_t index, struct tsp_encoded *out)
{
    size_t bytes = (size_t)source->raw_width * source->raw_height * 3;
    enum tsp_bad bad = tsp_encoded_reserve(out, bytes);
    if (bad != TSP_GOOD)
        return bad;
    struct tsp_random random;
    tsp_random_init(&random, 0, 0, index, 0, TSP_RANDOM_SYNTHETIC);
    uint64_t key = tsp_random_u64(&random);
    uint64_t word = index;
    for (size_t at = 0; at < bytes; at += sizeof word) {
        uint64_t stored = htole64(word);
        memcpy(out->data + at, &stored, bytes - at < sizeof stored ? bytes - at : sizeof stored);
        word = tsp_random_mix(key + at);
    }
    out->len = bytes;
    out->raw_width = source->raw_width;
    out->raw_height = source->raw_height;
    return TSP_GOOD;
}

static void synthetic_close(struct tsp_source *source)
{
    free(source);
}

static const struct tsp_source_ops synthetic_ops = {
    .key = synthetic_key,
    .label = synthetic_label,
    .read = synthetic_read,
    .close = synthetic_close,
};

/* Reads one number of 1 .. max that is followed by `end`, and moves behind that. */
static bool parse_number(const char **text, char end, uint64_t max, uint64_t *number_out)
{
    char *stop;
    if (!isdigit((unsigned char)**text))
        return false; /* strtoull would take blanks and signs */
    errno = 0;
    uint64_t number = strtoull(*text, &stop, 10);
    if (errno || *stop != end || number < 1 || number > max)
        return false;
    *text = stop + 1;
    *number_out = number;
    return true;
}

static bool has_prefix(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

bool tsp_synthetic_is(const char *spec)
{
    return has_prefix(spec, SYNTHETIC_PREFIX) || has_prefix(spec, NULL_PREFIX);
}

struct tsp_source *tsp_synthetic_open(const char *spec, const struct tsp_source_limits *limits, char *error, size_t len)
{
    const char *at = strchr(spec, ':') + 1;
    uint64_t count, height, width;
    if (!parse_number(&at, 'x', COUNT_MAX, &count) || !parse_number(&at, 'x', SIDE_MAX, &height) ||
        !parse_number(&at, '\0', SIDE_MAX, &width) || height * width * 3 > limits->max_bytes) {
        snprintf(error, len,
                 "%s: after the colon come COUNTxHEIGHTxWIDTH, as in 1009x224x224: COUNT 1 to %" PRIu64
                 ", HEIGHT and WIDTH 1 to %d, a picture (HEIGHT x WIDTH x 3) at most %" PRIu64 " bytes",
                 spec, COUNT_MAX, SIDE_MAX, limits->max_bytes);
        return NULL;
    }
    struct tsp_source *source = malloc(sizeof *source);
    if (!source) {
        snprintf(error, len, "%s: no memory", spec);
        return NULL;
    }
    *source = (struct tsp_source){
        .ops = &synthetic_ops,
        .count = count,
        .raw_width = (uint32_t)width,
        .raw_height = (uint32_t)height,
        .null = has_prefix(spec, NULL_PREFIX),
    };
    return source;
}
