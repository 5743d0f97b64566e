/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The configuration file: a JSON object with the names of the flags.
 *
 *     {"dataset": "/data/train", "scale": [0.3, 1], "workers": 8, "shuffle": false, "ring": "2GiB",
 *      "streams": [{"name": "val", "source": "/data/val", "augment": "eval"}]}
 *
 * A value is a string as after the flag, or a number, true, false, or a list of numbers. Instead of "streams" there may
 * be "stream", a string or a list of strings in the form of --stream.
 */
#ifndef TSP_CONFIG_H
#define TSP_CONFIG_H

#include "layer.h"

#define TSP_CONFIG_BYTES_MAX (1 << 20)

bool tsp_config_read(struct tsp_layer *layer, const char *path, struct tsp_problem *problem_out);

/* The same for the file's content, which ends with a 0; `path` is for messages. */
bool tsp_config_parse(struct tsp_layer *layer, const char *text, const char *path, struct tsp_problem *problem_out);

#endif
