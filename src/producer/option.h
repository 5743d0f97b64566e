/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One option of tsocketd, and the table of all of them. Flags, environment, configuration file, the keys of --stream
 * and
 * --help are read off this table; nothing about an option is said anywhere else.
 */
#ifndef TSP_OPTION_H
#define TSP_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "problem.h"

/* What the text of a value is turned into, and the C type that it is stored as. */
enum tsp_option_type {
    TSP_OPTION_SWITCH,   /* bool; a flag of this type takes no value, and has a --no- form */
    TSP_OPTION_COUNT,    /* uint32_t */
    TSP_OPTION_LONG,     /* uint64_t */
    TSP_OPTION_SIZE,     /* uint64_t, with the units of bytes allowed */
    TSP_OPTION_AMOUNT,   /* struct tsp_amount */
    TSP_OPTION_DURATION, /* uint32_t, milliseconds */
    TSP_OPTION_REAL,     /* double */
    TSP_OPTION_RANGE,    /* double[2], not falling */
    TSP_OPTION_CHANNELS, /* float[3] */
    TSP_OPTION_WORD,     /* an enum, by the words in the row */
    TSP_OPTION_NAME,     /* char[TSOCKET_NAME_MAX + 1] */
    TSP_OPTION_DEVICES,  /* char[TSP_DEVICES_TEXT_MAX] */
    TSP_OPTION_PATH,     /* char *, allocated */
    TSP_OPTION_IDS,      /* struct tsp_ids; may be repeated */
    TSP_OPTION_VIEW,     /* struct tsp_view_texts; may be repeated */
    TSP_OPTION_STREAM,   /* not stored by tsp_option_set: layer.h; may be repeated */
};

/* Where an option stands in --help. */
enum tsp_option_section {
    TSP_SECTION_DATA,
    TSP_SECTION_IMAGES,
    TSP_SECTION_EPOCHS,
    TSP_SECTION_RING,
    TSP_SECTION_BAD,
    TSP_SECTION_DAEMON,
    TSP_SECTION_GENERAL,
};

struct tsp_word {
    const char *word;
    int value;
};

struct tsp_option {
    const char *name;
    char letter;          /* short form, or 0 */
    const char *argument; /* what --help calls the value; NULL for a switch */
    enum tsp_option_type type;
    uint64_t min, max;            /* whole numbers: both allowed */
    double low, high;             /* reals: both allowed */
    const struct tsp_word *words; /* ends with a NULL word */
    const char *initial;          /* the default, as text; NULL: zero, and `help` says what that means */
    const char *example;          /* a good value, for messages; NULL: `initial` */
    bool per_stream;              /* `offset` is within struct tsp_stream_options, else within struct tsp_options */
    bool per_view;                /* --view takes it as a key; per_stream, within the stream's recipe */
    bool flag_only;               /* makes no sense in the environment or a file */
    bool positional;              /* the argument without a name */
    bool in_recipe;               /* order or bytes depend on it: a part of the recipe's fingerprint */
    size_t offset;
    enum tsp_option_section section;
    const char *help;
};

extern const struct tsp_option tsp_option_table[];
extern const size_t tsp_option_count;

/* The option of this name, `len` bytes long; NULL: there is none. */
const struct tsp_option *tsp_option_find(const char *name, size_t len);
const struct tsp_option *tsp_option_find_letter(char letter);

/* The name that `name` may be a slip of; NULL: none is near. `per_stream`: only those that --stream takes as keys. */
const char *tsp_option_nearest(const char *name, bool per_stream);

/* Whether it may be repeated: a list of a stronger layer replaces that of a weaker one. */
bool tsp_option_is_list(const struct tsp_option *option);

/* Makes a list empty. */
void tsp_option_clear(const struct tsp_option *option, void *base);

/*
 * Turns `text` into a value of the option's type and stores it in `base`, the struct that option->offset is meant for.
 * False: nothing is stored and *problem_out is `label`, what is wrong, the limit and an example.
 */
bool tsp_option_set(const struct tsp_option *option, void *base, const char *text, const char *label,
                    struct tsp_problem *problem_out);

/* The value in `base` as text that tsp_option_set turns into the same value. Not for paths, lists and streams. */
void tsp_option_print(const struct tsp_option *option, const void *base, char *out, size_t len);

#endif
