/* SPDX-License-Identifier: Apache-2.0 */
#include "option.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../ipc/device.h"
#include "../ipc/runtime.h"
#include "options.h"
#include "quantity.h"

const struct tsp_option *tsp_option_find(const char *name, size_t len)
{
    for (size_t i = 0; i < tsp_option_count; i++) {
        const char *known = tsp_option_table[i].name;
        if (strlen(known) == len && memcmp(known, name, len) == 0)
            return &tsp_option_table[i];
    }
    return NULL;
}

const struct tsp_option *tsp_option_find_letter(char letter)
{
    for (size_t i = 0; i < tsp_option_count; i++) {
        if (tsp_option_table[i].letter != 0 && tsp_option_table[i].letter == letter)
            return &tsp_option_table[i];
    }
    return NULL;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Letters to insert, drop or replace to make `b` of `a` (Levenshtein, one row of the table at a time). */
static size_t distance(const char *a, const char *b)
{
    size_t row[33];
    size_t len = strlen(b);

    assert(len < sizeof(row) / sizeof(row[0])); /* b is one of our names */
    for (size_t j = 0; j <= len; j++)
        row[j] = j;
    for (size_t i = 1; a[i - 1] != '\0'; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= len; j++) {
            size_t above = row[j];
            size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
            row[j] = least(replaced, least(above, row[j - 1]) + 1);
            diagonal = above;
        }
    }
    return row[len];
}

const char *tsp_option_nearest(const char *name, bool per_stream)
{
    const char *nearest = NULL;
    size_t best = strlen(name) / 3 + 1; /* more slips than that, and it is another word */

    for (size_t i = 0; i < tsp_option_count; i++) {
        size_t d = distance(name, tsp_option_table[i].name);
        if ((tsp_option_table[i].per_stream || !per_stream) && d <= best && (nearest == NULL || d < best)) {
            nearest = tsp_option_table[i].name;
            best = d;
        }
    }
    return nearest;
}

/* ---- what a value must be, in words ---- */

static void describe_words(const struct tsp_word *words, char *text, size_t len)
{
    size_t used = (size_t)snprintf(text, len, "one of");

    for (; words->word != NULL && used < len; words++)
        used += (size_t)snprintf(text + used, len - used, " %s%s", words->word, words[1].word != NULL ? "," : "");
}

static void describe_whole(const char *what, const struct tsp_option *option, char *text, size_t len)
{
    if (option->max == UINT64_MAX)
        snprintf(text, len, "%s, %llu or more", what, (unsigned long long)option->min);
    else
        snprintf(text, len, "%s from %llu to %llu", what, (unsigned long long)option->min,
                 (unsigned long long)option->max);
}

static void describe_real(const char *what, const struct tsp_option *option, char *text, size_t len)
{
    snprintf(text, len, "%s from %g to %g", what, option->low, option->high);
}

/* The limit of an option: "a whole number from 1 to 1024". */
static void describe(const struct tsp_option *option, char *text, size_t len)
{
    switch (option->type) {
    case TSP_OPTION_SWITCH:
        snprintf(text, len, "on or off");
        break;
    case TSP_OPTION_COUNT:
    case TSP_OPTION_LONG:
        describe_whole("a whole number", option, text, len);
        break;
    case TSP_OPTION_SIZE:
    case TSP_OPTION_AMOUNT:
        describe_whole("a whole number, or one with the unit k, M, G, KiB, MiB or GiB,", option, text, len);
        break;
    case TSP_OPTION_DURATION:
        snprintf(text, len, "a time in seconds, or with the unit ms, s, m or h, up to %llus",
                 (unsigned long long)option->max / 1000);
        break;
    case TSP_OPTION_REAL:
        describe_real("a number", option, text, len);
        break;
    case TSP_OPTION_RANGE:
        describe_real("two numbers, the smaller first, with a comma between,", option, text, len);
        break;
    case TSP_OPTION_CHANNELS:
        describe_real("three numbers (red, green, blue) with commas between,", option, text, len);
        break;
    case TSP_OPTION_WORD:
        describe_words(option->words, text, len);
        break;
    case TSP_OPTION_NAME:
        snprintf(text, len, "1 to %d of the characters A-Z a-z 0-9 . _ -, not starting with a dot", TSOCKET_NAME_MAX);
        break;
    case TSP_OPTION_DEVICES:
        snprintf(text, len, "auto, or some of host, cuda, cuda:N and cuda:UUID, with commas between");
        break;
    case TSP_OPTION_PATH:
        snprintf(text, len, "a path that is not empty");
        break;
    case TSP_OPTION_VIEW:
        snprintf(text, len, "a name, then keys: %s, of less than %d bytes, and at most %d of them", option->argument,
                 TSP_VIEW_TEXT_MAX, TSP_VIEWS_MAX);
        break;
    case TSP_OPTION_STREAM:
        snprintf(text, len, "%s", option->argument);
        break;
    case TSP_OPTION_IDS:
        snprintf(text, len, "up to %d numbers, with commas between", TSP_IDS_MAX);
        break;
    }
}

static const char *example(const struct tsp_option *option)
{
    if (option->example != NULL)
        return option->example;
    return option->initial != NULL ? option->initial : "on";
}

/* ---- text to value; each stores nothing where it returns false ---- */

static bool within(const struct tsp_option *option, uint64_t value)
{
    return value >= option->min && value <= option->max;
}

static bool set_switch(bool *out, const char *text)
{
    static const struct tsp_word words[] = {{"on", 1},  {"off", 0}, {"true", 1}, {"false", 0},
                                            {"yes", 1}, {"no", 0},  {"1", 1},    {"0", 0}};

    for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
        if (strcmp(text, words[i].word) == 0) {
            *out = words[i].value == 1;
            return true;
        }
    }
    return false;
}

static bool set_count(const struct tsp_option *option, uint32_t *out, const char *text)
{
    uint64_t value;

    if (!tsp_quantity_count(text, &value) || !within(option, value))
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool set_long(const struct tsp_option *option, uint64_t *out, const char *text)
{
    uint64_t value;

    if (!tsp_quantity_count(text, &value) || !within(option, value))
        return false;
    *out = value;
    return true;
}

static bool set_amount(const struct tsp_option *option, struct tsp_amount *out, const char *text)
{
    struct tsp_amount value;

    if (!tsp_quantity_size(text, &value.amount, &value.bytes) || !within(option, value.amount))
        return false;
    *out = value;
    return true;
}

static bool set_size(const struct tsp_option *option, uint64_t *out, const char *text)
{
    struct tsp_amount value;

    if (!set_amount(option, &value, text))
        return false;
    *out = value.amount;
    return true;
}

static bool set_duration(const struct tsp_option *option, uint32_t *out, const char *text)
{
    uint64_t ms;

    if (!tsp_quantity_duration(text, &ms) || !within(option, ms))
        return false;
    *out = (uint32_t)ms;
    return true;
}

static bool read_reals(const struct tsp_option *option, const char *text, size_t n, double *values_out)
{
    if (!tsp_quantity_reals(text, n, values_out))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!(values_out[i] >= option->low && values_out[i] <= option->high))
            return false;
    }
    return true;
}

static bool set_reals(const struct tsp_option *option, double *out, size_t n, const char *text)
{
    double values[2];

    if (!read_reals(option, text, n, values) || values[0] > values[n - 1])
        return false;
    memcpy(out, values, n * sizeof(values[0]));
    return true;
}

static bool set_channels(const struct tsp_option *option, float *out, const char *text)
{
    double values[3];

    if (!read_reals(option, text, 3, values))
        return false;
    for (size_t i = 0; i < 3; i++)
        out[i] = (float)values[i];
    return true;
}

/* All our enums have the size of an int, which a value is copied into as bytes: the compiler may give them any sign. */
static_assert(sizeof(enum tsp_augment) == sizeof(int) && sizeof(enum tsocket_dtype) == sizeof(int) &&
                  sizeof(enum tsp_filter) == sizeof(int) && sizeof(enum tsp_quality) == sizeof(int) &&
                  sizeof(enum tsp_layout) == sizeof(int) && sizeof(enum tsocket_on_bad) == sizeof(int) &&
                  sizeof(enum tsp_log_format) == sizeof(int) && sizeof(enum tsocket_share) == sizeof(int),
              "a word's value is stored as an int");

static bool set_word(const struct tsp_option *option, void *out, const char *text)
{
    for (const struct tsp_word *word = option->words; word->word != NULL; word++) {
        if (strcmp(text, word->word) == 0) {
            memcpy(out, &word->value, sizeof(word->value));
            return true;
        }
    }
    return false;
}

static bool set_name(char *out, const char *text)
{
    if (!tsi_name_ok(text))
        return false;
    strcpy(out, text); /* its length has just been checked */
    return true;
}

static bool set_devices(char *out, const char *text)
{
    if (strlen(text) >= TSP_DEVICES_TEXT_MAX || !tsi_devices_ok(text))
        return false;
    strcpy(out, text);
    return true;
}

static bool set_path(char **out, const char *text)
{
    char *copy = *text != '\0' ? strdup(text) : NULL;

    if (copy == NULL)
        return false;
    free(*out);
    *out = copy;
    return true;
}

/* Adds to what is there: the option may be repeated. */
static bool set_ids(const struct tsp_option *option, struct tsp_ids *out, const char *text)
{
    struct tsp_ids ids = *out;

    for (;;) {
        char digits[16];
        size_t len = strcspn(text, ",");
        if (len >= sizeof(digits) || ids.count == TSP_IDS_MAX)
            return false;
        memcpy(digits, text, len);
        digits[len] = '\0';
        if (!set_count(option, &ids.values[ids.count++], digits))
            return false;
        if (text[len] == '\0')
            break;
        text += len + 1;
    }
    *out = ids;
    return true;
}

static bool set_view(struct tsp_view_texts *out, const char *text)
{
    if (out->count == TSP_VIEWS_MAX || *text == '\0' || strlen(text) >= TSP_VIEW_TEXT_MAX)
        return false;
    strcpy(out->texts[out->count++], text); /* its length has just been checked */
    return true;
}

bool tsp_option_is_list(const struct tsp_option *option)
{
    return option->type == TSP_OPTION_IDS || option->type == TSP_OPTION_VIEW;
}

void tsp_option_clear(const struct tsp_option *option, void *base)
{
    size_t bytes = option->type == TSP_OPTION_IDS ? sizeof(struct tsp_ids) : sizeof(struct tsp_view_texts);

    memset((char *)base + option->offset, 0, bytes);
}

static bool set(const struct tsp_option *option, void *out, const char *text)
{
    switch (option->type) {
    case TSP_OPTION_SWITCH:
        return set_switch(out, text);
    case TSP_OPTION_COUNT:
        return set_count(option, out, text);
    case TSP_OPTION_LONG:
        return set_long(option, out, text);
    case TSP_OPTION_SIZE:
        return set_size(option, out, text);
    case TSP_OPTION_AMOUNT:
        return set_amount(option, out, text);
    case TSP_OPTION_DURATION:
        return set_duration(option, out, text);
    case TSP_OPTION_REAL:
        return set_reals(option, out, 1, text);
    case TSP_OPTION_RANGE:
        return set_reals(option, out, 2, text);
    case TSP_OPTION_CHANNELS:
        return set_channels(option, out, text);
    case TSP_OPTION_WORD:
        return set_word(option, out, text);
    case TSP_OPTION_NAME:
        return set_name(out, text);
    case TSP_OPTION_DEVICES:
        return set_devices(out, text);
    case TSP_OPTION_PATH:
        return set_path(out, text);
    case TSP_OPTION_VIEW:
        return set_view(out, text);
    case TSP_OPTION_IDS:
        return set_ids(option, out, text);
    case TSP_OPTION_STREAM:
        break;
    }
    return false;
}

/* ---- value to text ---- */

static const char *word_of(const struct tsp_option *option, const void *value)
{
    int number;

    memcpy(&number, value, sizeof(number));
    for (const struct tsp_word *word = option->words; word->word != NULL; word++) {
        if (word->value == number)
            return word->word;
    }
    return "?";
}

void tsp_option_print(const struct tsp_option *option, const void *base, char *out, size_t len)
{
    const void *value = (const char *)base + option->offset;
    const double *reals = value;
    const float *channels = value;

    switch (option->type) {
    case TSP_OPTION_SWITCH:
        snprintf(out, len, "%s", *(const bool *)value ? "on" : "off");
        break;
    case TSP_OPTION_COUNT:
        snprintf(out, len, "%" PRIu32, *(const uint32_t *)value);
        break;
    case TSP_OPTION_DURATION:
        snprintf(out, len, "%" PRIu32 "ms", *(const uint32_t *)value);
        break;
    case TSP_OPTION_LONG:
    case TSP_OPTION_SIZE:
        snprintf(out, len, "%" PRIu64, *(const uint64_t *)value);
        break;
    case TSP_OPTION_REAL:
        snprintf(out, len, "%.17g", reals[0]);
        break;
    case TSP_OPTION_RANGE:
        snprintf(out, len, "%.17g,%.17g", reals[0], reals[1]);
        break;
    case TSP_OPTION_CHANNELS:
        snprintf(out, len, "%.9g,%.9g,%.9g", (double)channels[0], (double)channels[1], (double)channels[2]);
        break;
    case TSP_OPTION_WORD:
        snprintf(out, len, "%s", word_of(option, value));
        break;
    case TSP_OPTION_NAME:
    case TSP_OPTION_DEVICES:
        snprintf(out, len, "%s", (const char *)value);
        break;
    case TSP_OPTION_AMOUNT:
    case TSP_OPTION_PATH:
    case TSP_OPTION_IDS:
    case TSP_OPTION_VIEW:
    case TSP_OPTION_STREAM:
        assert(false && "an option that is not printed");
    }
}

bool tsp_option_set(const struct tsp_option *option, void *base, const char *text, const char *label,
                    struct tsp_problem *problem_out)
{
    char limit[256];

    if (set(option, (char *)base + option->offset, text))
        return true;
    describe(option, limit, sizeof(limit));
    return tsp_problem_set(problem_out, "%s: must be %s; for example %s", label, limit, example(option));
}
