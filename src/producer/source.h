/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A source: a numbered list of samples, each with a key, a label and bytes.
 *
 * After open a source is constant: every call but close may come from any number of threads at once.
 */
#ifndef TSP_SOURCE_H
#define TSP_SOURCE_H

#include <stddef.h>
#include <stdint.h>

/* Why a sample cannot be used. The words are what the counts in the status are kept by. */
#define TSP_BAD_KINDS(X)                                                                                               \
    X(TSP_GOOD, "good")                                                                                                \
    X(TSP_EMPTY, "empty")                                                                                              \
    X(TSP_NOT_IMAGE, "not_image")                                                                                      \
    X(TSP_UNSUPPORTED, "unsupported")                                                                                  \
    X(TSP_TRUNCATED, "truncated")                                                                                      \
    X(TSP_CORRUPT, "corrupt")                                                                                          \
    X(TSP_TOO_LARGE, "too_large")                                                                                      \
    X(TSP_TOO_MANY_SCANS, "too_many_scans")                                                                            \
    X(TSP_NOT_FOUND, "not_found")                                                                                      \
    X(TSP_PERMISSION, "permission")                                                                                    \
    X(TSP_STOP, "stop") /* not the sample's fault (EMFILE, ENOMEM, EIO, ESTALE, ...): the run must end */

enum tsp_bad {
#define TSP_BAD_ENUM(name, word) name,
    TSP_BAD_KINDS(TSP_BAD_ENUM)
#undef TSP_BAD_ENUM
    TSP_BAD_COUNT, /* no kind */
};

const char *tsp_bad_word(enum tsp_bad bad);

/* One sample's bytes, in a buffer that a worker reuses. Init with {0}, free with tsp_encoded_fini. */
struct tsp_encoded {
    uint8_t *data;
    size_t len;
    size_t room;
    uint32_t raw_width; /* > 0: data is not a file but width x height x 3 bytes of RGB */
    uint32_t raw_height;
    uint32_t raw_orientation; /* as in EXIF, 1 to 8; 0: upright */
    char why[256];            /* one line, when the read did not succeed */
};

void tsp_encoded_fini(struct tsp_encoded *encoded);

/* For sources: makes room for `len` bytes; the content is lost. TSP_GOOD or, with `why` set, TSP_STOP. */
enum tsp_bad tsp_encoded_reserve(struct tsp_encoded *encoded, size_t len);

struct tsp_source;

struct tsp_source_ops {
    /* Owned by the source; generated ones stay until the thread's next call. */
    const char *(*key)(const struct tsp_source *source, uint64_t index);
    int64_t (*label)(const struct tsp_source *source, uint64_t index);
    enum tsp_bad (*read)(const struct tsp_source *source, uint64_t index, struct tsp_encoded *out);
    void (*close)(struct tsp_source *source);
};

struct tsp_source {
    const struct tsp_source_ops *ops;
    uint64_t count;     /* samples, at least 1 */
    uint32_t raw_width; /* > 0: every read gives raw RGB of this size, the recipe does not crop */
    uint32_t raw_height;
    int null;             /* nothing can be read: positions only */
    uint32_t n_classes;   /* 0: labels are plain numbers */
    const char **classes; /* names by label, owned by the source */
    uint64_t skipped;     /* entries that the walk left out (hidden, other extension, outside a class, ...) */
    uint64_t left_out;    /* samples that the skip list names: they are not in count, and have no number */
};

struct tsp_source_limits {
    uint64_t max_bytes; /* of one file */
    int hidden;         /* take names that start with a dot as well (torchvision's rule) */
    const char *skip;   /* a list of samples to leave out (skip_list.h); NULL: none */
};

/*
 * `spec` is a folder, "synthetic:COUNTxHEIGHTxWIDTH" or "null:COUNTxHEIGHTxWIDTH". Returns the source, the caller's
 * until tsp_source_close, or NULL with one line in `error` that names the path or value, the limit and the way out.
 */
struct tsp_source *tsp_source_open(const char *spec, const struct tsp_source_limits *limits, char *error, size_t len);

void tsp_source_close(struct tsp_source *source); /* NULL is allowed */

#endif
