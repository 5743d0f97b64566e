/* SPDX-License-Identifier: Apache-2.0 */
#include "provenance.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>

#include "../ipc/text.h"
#include "table.h"

enum {
    TEXT = 4608, /* the longest is a recipe */
    ID = 17,
};

/* "DATASET.RECIPE.SEED", all hexadecimal. False: the stream has none, its tokens do not go anywhere. */
static bool split_origin(const cJSON *stream, char dataset[ID], char recipe[ID], uint64_t *seed_out)
{
    const cJSON *origin = cJSON_GetObjectItemCaseSensitive(stream, "origin");

    return cJSON_IsString(origin) &&
           sscanf(origin->valuestring, "%16[0-9a-f].%16[0-9a-f].%16" SCNx64, dataset, recipe, seed_out) == 3;
}

static void copy(cJSON *to, const cJSON *from, const char *key)
{
    cJSON *item = cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(from, key), true);

    if (item != NULL && !cJSON_AddItemToObject(to, key, item))
        cJSON_Delete(item);
}

static cJSON *stream_of(const cJSON *stream)
{
    cJSON *out = cJSON_CreateObject();
    char dataset[ID], recipe[ID], text[32];
    uint64_t seed;

    copy(out, stream, "name");
    copy(out, stream, "source");
    if (split_origin(stream, dataset, recipe, &seed)) {
        snprintf(text, sizeof(text), "%" PRIu64, seed);
        cJSON_AddStringToObject(out, "dataset", dataset);
        cJSON_AddStringToObject(out, "recipe_id", recipe);
        cJSON_AddRawToObject(out, "seed", text); /* has more digits than a double */
    }
    copy(out, stream, "recipe");
    copy(out, stream, "epoch_samples");
    copy(out, stream, "epoch");
    copy(out, stream, "bad");
    return out;
}

cJSON *tsc_provenance_of(const cJSON *status)
{
    cJSON *out = cJSON_CreateObject();
    cJSON *streams;
    const cJSON *stream;

    copy(out, status, "daemon");
    copy(out, status, "version");
    copy(out, status, "libraries");
    streams = cJSON_AddArrayToObject(out, "streams");
    cJSON_ArrayForEach(stream, cJSON_GetObjectItemCaseSensitive(status, "streams"))
    {
        cJSON *item = stream_of(stream);

        if (!cJSON_AddItemToArray(streams, item))
            cJSON_Delete(item);
    }
    return out;
}

static void print_bad(const cJSON *bad, FILE *out)
{
    const cJSON *kind;
    const char *before = " (";

    fprintf(out, "  left out  %.0f", tsc_table_number(bad, "total"));
    cJSON_ArrayForEach(kind, cJSON_GetObjectItemCaseSensitive(bad, "kinds"))
    {
        char word[64];

        snprintf(word, sizeof(word), "%s", kind->string != NULL ? kind->string : "-");
        tsi_text_clean(word);
        fprintf(out, "%s%s %.0f", before, word, cJSON_IsNumber(kind) ? kind->valuedouble : 0);
        before = ", ";
    }
    fputs(*before == ',' ? ")\n" : "\n", out);
}

static void print_stream(const cJSON *stream, FILE *out)
{
    const cJSON *seed = cJSON_GetObjectItemCaseSensitive(stream, "seed");
    char text[TEXT];

    fprintf(out, "\nstream %s\n", tsc_table_text(stream, "name", text, sizeof(text)));
    fprintf(out, "  source    %s\n", tsc_table_text(stream, "source", text, sizeof(text)));
    fprintf(out, "  dataset   %s", tsc_table_text(stream, "dataset", text, sizeof(text)));
    fprintf(out, " (%.0f samples)\n", tsc_table_number(stream, "epoch_samples"));
    fprintf(out, "  recipe    %s:", tsc_table_text(stream, "recipe_id", text, sizeof(text)));
    fprintf(out, " %s\n", tsc_table_text(stream, "recipe", text, sizeof(text)));
    fprintf(out, "  seed      %s\n", cJSON_IsRaw(seed) ? seed->valuestring : "-");
    fprintf(out, "  epochs    0 to %.0f, so far\n", tsc_table_number(stream, "epoch"));
    print_bad(cJSON_GetObjectItemCaseSensitive(stream, "bad"), out);
}

void tsc_provenance_print(const cJSON *provenance, FILE *out)
{
    const cJSON *stream;
    char text[TEXT];

    fprintf(out, "Served by tsocket %s", tsc_table_text(provenance, "version", text, sizeof(text)));
    fprintf(out, " (%s). The order of the samples and their augmentation\n",
            tsc_table_text(provenance, "libraries", text, sizeof(text)));
    fputs("are a function of the dataset, the recipe, the seed, the epoch and the sample alone.\n", out);
    cJSON_ArrayForEach(stream, cJSON_GetObjectItemCaseSensitive(provenance, "streams")) print_stream(stream, out);
}
