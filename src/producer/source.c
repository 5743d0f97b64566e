/* SPDX-License-Identifier: Apache-2.0 */
#include "source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder.h"
#include "synthetic.h"

const char *tsp_bad_word(enum tsp_bad bad)
{
    static const char *const words[] = {
#define BAD_WORD(name, word) [name] = word,
        TSP_BAD_KINDS(BAD_WORD)
#undef BAD_WORD
    };
    return words[bad];
}

enum tsp_bad tsp_encoded_reserve(struct tsp_encoded *encoded, size_t len)
{
    if (len <= encoded->room)
        return TSP_GOOD;
    size_t room = len > SIZE_MAX / 2 ? len : len + len / 2; /* sizes vary: few samples shall need a new buffer */
    uint8_t *data = malloc(room);
    if (!data) {
        snprintf(encoded->why, sizeof encoded->why, "no memory for its %zu bytes", len);
        return TSP_STOP;
    }
    free(encoded->data);
    encoded->data = data;
    encoded->room = room;
    encoded->len = 0;
    return TSP_GOOD;
}

void tsp_encoded_fini(struct tsp_encoded *encoded)
{
    free(encoded->data);
    *encoded = (struct tsp_encoded){0};
}

struct tsp_source *tsp_source_open(const char *spec, const struct tsp_source_limits *limits, char *error, size_t len)
{
    if (tsp_synthetic_is(spec) && limits->skip) {
        snprintf(error, len, "%s: has no files that --skip %s could name; leave out --skip", spec, limits->skip);
        return NULL;
    }
    if (tsp_synthetic_is(spec))
        return tsp_synthetic_open(spec, limits, error, len);
    return tsp_folder_open(spec, limits, error, len);
}

void tsp_source_close(struct tsp_source *source)
{
    if (source)
        source->ops->close(source);
}
