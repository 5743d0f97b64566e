/* SPDX-License-Identifier: Apache-2.0 */
#include "token.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "crc.h"
#include "error.h"

enum {
    PARTS = 9,     /* before the check, */
    CHECK_LEN = 9, /* which has 8 digits and a dot */
};

#define LIMIT (UINT64_C(1) << 53) /* of every number but the seed; it also travels in JSON */

static bool is_id(const char *text)
{
    return strlen(text) == TSI_ID_HEX && strspn(text, "0123456789abcdef") == TSI_ID_HEX;
}

int tsi_origin_make(const char *dataset, const char *recipe, uint64_t seed, char origin_out[TSI_ORIGIN_MAX])
{
    if (!is_id(dataset) || !is_id(recipe))
        return tsi_fail(TSOCKET_EINVAL, "ids of dataset and recipe are %d digits of 0-9 a-f each", TSI_ID_HEX);
    snprintf(origin_out, TSI_ORIGIN_MAX, "%s.%s.%016" PRIx64, dataset, recipe, seed);
    return TSOCKET_OK;
}

const char *tsi_origin_difference(const char *a, const char *b)
{
    static const char *const what[] = {"the dataset", "the recipe", "the seed"};

    for (size_t i = 0; i < 3; i++) {
        size_t at = i * (TSI_ID_HEX + 1);

        if (strncmp(a + at, b + at, TSI_ID_HEX) != 0)
            return what[i];
    }
    return NULL;
}

int tsi_token_pack(const struct tsi_token *token, char text_out[TSOCKET_TOKEN_MAX + 1])
{
    uint64_t lap = token->wrap > 0 ? token->wrap : token->until;
    const char *letter = token->wrap > 0 ? "w" : token->until > 0 ? "l" : "";
    char text[TSOCKET_TOKEN_MAX - CHECK_LEN + 1];
    int len;

    if (token->origin[0] == '\0' || token->from.epoch > LIMIT || token->from.index > LIMIT ||
        token->from.removed > LIMIT || token->ahead > LIMIT || lap > LIMIT)
        return tsi_fail(TSOCKET_EINVAL, "a place that no token can name");
    len = snprintf(text, sizeof(text), "ts2.%s.%" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%" PRIx64 ".%s%" PRIx64,
                   token->origin, token->from.epoch, token->from.index, token->from.removed, token->ahead, letter, lap);
    if (len > TSOCKET_TOKEN_MAX - CHECK_LEN)
        return tsi_fail(TSOCKET_EINVAL, "a place that no token can name");
    snprintf(text_out, TSOCKET_TOKEN_MAX + 1, "%s.%08" PRIx32, text, tsi_crc(0, text, (size_t)len));
    return TSOCKET_OK;
}

static int bad(const char *what)
{
    return tsi_fail(TSOCKET_EINVAL, "not a token of tsocket: %s", what);
}

/* One number of at most 14 digits, all of the text. */
static bool get_number(const char *text, uint64_t *out)
{
    size_t len = strlen(text);

    if (len < 1 || len > 14 || strspn(text, "0123456789abcdef") != len)
        return false;
    return sscanf(text, "%" SCNx64, out) == 1 && *out <= LIMIT;
}

/* Cuts `text` at its dots. Returns whether there are just as many parts as there have to be. */
static bool split(char *text, char *parts[PARTS])
{
    uint32_t n = 0;

    for (char *part = text; part != NULL; n++) {
        char *dot = strchr(part, '.');

        if (n == PARTS)
            return false;
        parts[n] = part;
        if (dot != NULL)
            *dot++ = '\0';
        part = dot;
    }
    return n == PARTS;
}

static bool get_lap(const char *text, struct tsi_token *token)
{
    uint64_t *where = text[0] == 'w' ? &token->wrap : text[0] == 'l' ? &token->until : NULL;

    return where != NULL ? get_number(text + 1, where) && *where > 0 : strcmp(text, "0") == 0;
}

/* Cuts the check off, which keeps a mistyped token from leading to another place. False: it is not that of the rest. */
static bool take_check(char *text)
{
    char *dot = strrchr(text, '.');
    char check[CHECK_LEN];

    if (dot == NULL)
        return false;
    snprintf(check, sizeof(check), "%08" PRIx32, tsi_crc(0, text, (size_t)(dot - text)));
    *dot = '\0';
    return strcmp(dot + 1, check) == 0;
}

int tsi_token_unpack(const char *text, struct tsi_token *token_out)
{
    struct tsi_token token = {.wrap = 0};
    char copy[TSOCKET_TOKEN_MAX + 1];
    char *parts[PARTS];

    if (strlen(text) > TSOCKET_TOKEN_MAX)
        return bad("it is too long");
    strcpy(copy, text);
    if (strncmp(copy, "ts2.", 4) != 0)
        return bad("it does not have the form ts2.DATASET.RECIPE.SEED.EPOCH.INDEX.REMOVED.AHEAD.LAP.CHECK");
    if (!take_check(copy))
        return bad("its check is wrong: it was cut or changed");
    if (!split(copy, parts))
        return bad("it does not have the form ts2.DATASET.RECIPE.SEED.EPOCH.INDEX.REMOVED.AHEAD.LAP.CHECK");
    if (!is_id(parts[1]) || !is_id(parts[2]) || !is_id(parts[3]))
        return bad("its ids are not 16 digits each");
    if (!get_number(parts[4], &token.from.epoch) || !get_number(parts[5], &token.from.index) ||
        !get_number(parts[6], &token.from.removed) || !get_number(parts[7], &token.ahead) || !get_lap(parts[8], &token))
        return bad("one of its numbers is none, or too large");
    snprintf(token.origin, sizeof(token.origin), "%s.%s.%s", parts[1], parts[2], parts[3]);
    *token_out = token;
    return TSOCKET_OK;
}
