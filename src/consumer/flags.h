/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The flags of a subcommand of tsocketctl: one table that reads them and prints them in the help.
 *
 *     uint32_t batch = 0;
 *     const struct tsc_flag flags[] = {
 *         {.name = "batch", .argument = "B", .type = TSC_FLAG_COUNT, .min = 1, .max = 65536, .value = &batch, ...},
 *     };
 */
#ifndef TSC_FLAGS_H
#define TSC_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum tsc_flag_type {
    TSC_FLAG_ON,    /* bool; takes no value */
    TSC_FLAG_COUNT, /* uint32_t */
    TSC_FLAG_LONG,  /* uint64_t */
    TSC_FLAG_WORD,  /* int: the place of the word in `words` */
    TSC_FLAG_TEXT,  /* const char *, into argv */
    TSC_FLAG_SHARE, /* uint32_t[2]: "R/W", R < W */
};

struct tsc_flag {
    const char *name;
    const char *argument; /* how the help calls the value; NULL for TSC_FLAG_ON */
    enum tsc_flag_type type;
    uint64_t min, max;        /* both allowed */
    const char *const *words; /* ends with NULL */
    void *value;              /* holds the default before */
    const char *help;
};

/*
 * Reads argv[1 ..]. `name_out`: receives the one argument without a dash, or stays as it is; NULL: none is allowed.
 * False: `error` has one line that names the flag, the value and the limit.
 */
bool tsc_flags_parse(const struct tsc_flag *flags, size_t n, int argc, char *const *argv, const char **name_out,
                     char *error, size_t len);

void tsc_flags_help(const struct tsc_flag *flags, size_t n, FILE *out);

#endif
