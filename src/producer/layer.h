/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A layer: all that one place (flags, environment, file) says, still as text.
 *
 *     argv ------> tsp_layer_flags --------+
 *     environ ---> tsp_layer_environment --+--> layers --> tsp_options_merge --> struct tsp_options
 *     FILE.json -> tsp_config_read --------+
 *
 * Each setting keeps a label, the words by which a message can name it: "--size 0", "TSOCKETD_SIZE=0",
 * "conf.json: size = 0". A layer starts as {0} and owns its texts until tsp_layer_fini, also after an error.
 */
#ifndef TSP_LAYER_H
#define TSP_LAYER_H

#include <tsocket/producer.h>

#include "option.h"

#define TSP_LABEL_MAX          200
#define TSP_ENVIRONMENT_PREFIX "TSOCKETD_"

struct tsp_setting {
    const struct tsp_option *option;
    char *text;
    char label[TSP_LABEL_MAX];
};

struct tsp_settings {
    struct tsp_setting *items;
    size_t count;
};

/* A stream as it was named; its settings are those of its keys. */
struct tsp_stream_spec {
    char *name;
    char *source;
    char label[TSP_LABEL_MAX];
    struct tsp_settings settings;
};

struct tsp_layer {
    bool is_file;
    struct tsp_settings settings;
    struct tsp_stream_spec streams[TSOCKET_STREAMS_MAX];
    uint32_t n_streams;
};

bool tsp_layer_flags(struct tsp_layer *layer, int argc, char *const *argv, struct tsp_problem *problem_out);
bool tsp_layer_environment(struct tsp_layer *layer, char *const *environment, struct tsp_problem *problem_out);
void tsp_layer_fini(struct tsp_layer *layer);

/* The text of the last setting of this option, or NULL. */
const char *tsp_layer_text(const struct tsp_layer *layer, const char *name);

/* ---- for those that fill a layer ---- */

bool tsp_settings_add(struct tsp_settings *settings, const struct tsp_option *option, const char *text,
                      const char *label, struct tsp_problem *problem_out);

/* A new stream without settings, which the layer keeps; NULL: *problem_out says why. */
struct tsp_stream_spec *tsp_layer_add_stream(struct tsp_layer *layer, const char *name, size_t name_len,
                                             const char *source, size_t source_len, const char *label,
                                             struct tsp_problem *problem_out);

/* NAME=FOLDER[,KEY=VALUE...] */
bool tsp_layer_add_stream_text(struct tsp_layer *layer, const char *text, const char *label,
                               struct tsp_problem *problem_out);

/* The option that the key of a stream names; NULL: *problem_out says what is wrong with it. */
const struct tsp_option *tsp_layer_stream_key(const char *key, size_t len, const char *label,
                                              struct tsp_problem *problem_out);

#endif
