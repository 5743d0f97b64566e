/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A folder with a folder per class, the list of its pictures made once at open:
 *
 *     root/cat/1.jpg  root/cat/old/2.JPG      class 0, "cat", samples 0 and 1
 *     root/dog/                               class 1, "dog", empty, keeps its number
 *     root/owl/x.png                          class 2, "owl", sample 2
 *
 * Classes are ordered by the bytes of their names, samples by the bytes of their path below the root, which is also
 * their key: the same list on every machine, file system and locale. Folders are walked to any depth, links followed
 * (the label is that of the folder that the link stands in), a link back to a folder above ends there. Left out and
 * counted: names that start with a dot, other extensions, folders with a picture's name, what is neither file nor
 * folder, files outside a class. A link that leads nowhere is warned about by name. Samples that the skip list names
 * are no samples; their classes keep their numbers. For source.c alone.
 */
#ifndef TSP_FOLDER_H
#define TSP_FOLDER_H

#include "source.h"

/* As tsp_source_open. */
struct tsp_source *tsp_folder_open(const char *root, const struct tsp_source_limits *limits, char *error, size_t len);

#endif
