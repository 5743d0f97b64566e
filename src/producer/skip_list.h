/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A list of samples to leave out: --check --write-skip FILE makes one, a later run takes it with --skip FILE.
 *
 *     # of /data/train       a line that begins with # says nothing
 *     cat/1.jpg              a path below the dataset's folder, as --list has it; in any order
 *     \#cat/odd\nname.jpg    \\ is a backslash, \n a line break, \# a # where the line begins
 *
 * Any name that a file can have is written and read back byte for byte.
 */
#ifndef TSP_SKIP_LIST_H
#define TSP_SKIP_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct tsp_skip_list {
    char **names; /* in the order of their bytes, each once */
    size_t count;
};

/* True: *list_out is the caller's until fini. False: one line in `error`. */
bool tsp_skip_list_read(const char *path, struct tsp_skip_list *list_out, char *error, size_t len);
void tsp_skip_list_fini(struct tsp_skip_list *list);

/* A list being written, beside its final name, so that a run which breaks off leaves an earlier list as it was. */
struct tsp_skip_file {
    FILE *file;
    char *beside;
    const char *path; /* borrowed */
};

/* True: *file_out is open until finish or discard. False: one line in `error`. */
bool tsp_skip_file_create(const char *path, struct tsp_skip_file *file_out, char *error, size_t len);
void tsp_skip_file_add(struct tsp_skip_file *file, const char *name);
bool tsp_skip_file_finish(struct tsp_skip_file *file, char *error, size_t len); /* closes it in any case */
void tsp_skip_file_discard(struct tsp_skip_file *file);

#endif
