/* SPDX-License-Identifier: Apache-2.0 */
#include "quantity.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Exact as doubles, and far above anything that makes sense. */
static const double largest = 9007199254740992.0; /* 2^53 */

struct unit {
    const char *name;
    double factor;
};

static const struct unit bytes_units[] = {
    {"B", 1},
    {"k", 1e3},
    {"kB", 1e3},
    {"M", 1e6},
    {"MB", 1e6},
    {"G", 1e9},
    {"GB", 1e9},
    {"T", 1e12},
    {"TB", 1e12},
    {"KiB", 1024},
    {"MiB", 1024.0 * 1024},
    {"GiB", 1024.0 * 1024 * 1024},
    {"TiB", 1024.0 * 1024 * 1024 * 1024},
    {NULL, 0},
};

static const struct unit time_units[] = {
    {"", 1e3}, {"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}, {NULL, 0},
};

bool tsp_quantity_count(const char *text, uint64_t *count_out)
{
    if (*text == '\0' || text[strspn(text, "0123456789")] != '\0')
        return false;
    errno = 0;
    unsigned long long count = strtoull(text, NULL, 10);
    if (errno != 0)
        return false;
    *count_out = count;
    return true;
}

/* One decimal number at the start of `text`. strtod alone would also take "inf", "nan", "0x1p3" and leading spaces. */
static bool decimal(const char *text, const char **rest_out, double *value_out)
{
    char digits[64], *end;
    size_t len = strspn(text, "0123456789.eE+-");

    if (len == 0 || len >= sizeof(digits))
        return false;
    memcpy(digits, text, len);
    digits[len] = '\0';
    double value = strtod(digits, &end);
    if (*end != '\0' || !isfinite(value))
        return false;
    *rest_out = text + len;
    *value_out = value;
    return true;
}

/* One number or fraction at the start of `text`. */
static bool real(const char *text, const char **rest_out, double *value_out)
{
    double above, below = 1;
    const char *rest;

    if (!decimal(text, &rest, &above))
        return false;
    if (*rest == '/' && (!decimal(rest + 1, &rest, &below) || below == 0))
        return false;
    *rest_out = rest;
    *value_out = above / below;
    return true;
}

bool tsp_quantity_real(const char *text, double *real_out)
{
    return tsp_quantity_reals(text, 1, real_out);
}

bool tsp_quantity_reals(const char *text, size_t n, double *reals_out)
{
    double values[4];

    if (n > sizeof(values) / sizeof(values[0]))
        return false;
    for (size_t i = 0; i < n; i++) {
        if (!real(text, &text, &values[i]))
            return false;
        if (*text++ != (i + 1 < n ? ',' : '\0'))
            return false;
    }
    memcpy(reals_out, values, n * sizeof(values[0]));
    return true;
}

/* A number without a sign, with one of the units behind it: 0, or at least one of what is counted. */
static bool with_unit(const char *text, const struct unit *units, uint64_t *amount_out)
{
    const char *rest;
    double value;

    if (*text == '+' || *text == '-' || !decimal(text, &rest, &value))
        return false;
    for (; units->name != NULL; units++) {
        if (strcasecmp(rest, units->name) != 0)
            continue;
        double amount = value * units->factor;
        if (amount > largest || (value > 0 && amount < 1)) /* 0 often means: no limit */
            return false;
        *amount_out = (uint64_t)amount;
        return true;
    }
    return false;
}

bool tsp_quantity_size(const char *text, uint64_t *amount_out, bool *bytes_out)
{
    bool bytes = !tsp_quantity_count(text, amount_out);

    if (bytes && !with_unit(text, bytes_units, amount_out))
        return false;
    *bytes_out = bytes;
    return true;
}

bool tsp_quantity_duration(const char *text, uint64_t *ms_out)
{
    return with_unit(text, time_units, ms_out);
}
