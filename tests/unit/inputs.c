/* SPDX-License-Identifier: Apache-2.0 */
#include "inputs.h"

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PYTHON "/usr/bin/python3"

struct path {
    struct path *next;
    char text[];
};

static char folder[PATH_MAX];
static struct path *paths;

static void require(int condition, const char *what)
{
    if (condition)
        return;
    perror(what);
    exit(EXIT_FAILURE);
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void clean_up(void)
{
    nftw(folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
    while (paths) {
        struct path *path = paths;
        paths = path->next;
        free(path);
    }
}

const char *inputs_folder(void)
{
    require(folder[0] == '\0' && atexit(clean_up) == 0, "only one folder");
    const char *tmp = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%s/tsocket-test-XXXXXX", tmp ? tmp : "/tmp");
    require(mkdtemp(folder) != NULL, folder);
    return folder;
}

void inputs_python(const char *script_and_arguments)
{
    char command[2 * PATH_MAX];
    if (system(PYTHON " -c 'import numpy, PIL' 2>/dev/null") != 0) {
        fprintf(stderr, "skipped: needs " PYTHON " with NumPy and Pillow\n");
        exit(77);
    }
    snprintf(command, sizeof command, PYTHON " '" TSOCKET_TESTS_DIR "'/%s >/dev/null", script_and_arguments);
    require(system(command) == 0, command);
}

const char *inputs_path(const char *parent, const char *name)
{
    struct path *path = malloc(sizeof *path + strlen(parent) + strlen(name) + 2);
    require(path != NULL, name);
    sprintf(path->text, "%s/%s", parent, name);
    path->next = paths;
    paths = path;
    return path->text;
}

uint8_t *inputs_read(const char *path, size_t *len_out)
{
    FILE *file = fopen(path, "rb");
    require(file != NULL, path);
    struct stat st;
    require(fstat(fileno(file), &st) == 0, path);
    uint8_t *data = calloc(1, (size_t)st.st_size + 1);
    require(data && fread(data, 1, (size_t)st.st_size, file) == (size_t)st.st_size, path);
    fclose(file);
    *len_out = (size_t)st.st_size;
    return data;
}

void inputs_write(const char *path, const void *data, size_t len)
{
    FILE *file = fopen(path, "wb");
    require(file != NULL, path);
    require(fwrite(data, 1, len, file) == len, path);
    require(fclose(file) == 0, path);
}
