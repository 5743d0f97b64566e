/* SPDX-License-Identifier: Apache-2.0 */
#include "skip_list.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

/* ---- reading ---- */

/* Undoes the escapes, in place. False: a backslash stands before what it does not belong to. */
static bool unescape(char *line)
{
    char *to = line;
    for (const char *from = line; *from; from++) {
        char c = *from;
        if (c == '\\') {
            c = *++from;
            if (c != '\\' && c != 'n' && c != '#')
                return false;
            c = c == 'n' ? '\n' : c;
        }
        *to++ = c;
    }
    *to = '\0';
    return true;
}

static bool add_name(struct tsp_skip_list *list, size_t *room, const char *name)
{
    if (list->count == *room) {
        size_t more = *room ? *room * 2 : 64;
        char **grown = reallocarray(list->names, more, sizeof *grown);
        if (!grown)
            return false;
        list->names = grown;
        *room = more;
    }
    char *copy = strdup(name);
    if (copy)
        list->names[list->count++] = copy;
    return copy != NULL;
}

static bool read_lines(FILE *file, const char *path, struct tsp_skip_list *list, char *error, size_t len)
{
    char *line = NULL;
    size_t line_room = 0, names_room = 0, number = 0;
    ssize_t got;
    bool good = true;
    while (good && (got = getline(&line, &line_room, file)) >= 0) {
        number++;
        line[strcspn(line, "\n")] = '\0';
        if (line[0] == '#' || line[0] == '\0')
            continue;
        if (!unescape(line)) {
            snprintf(error, len, "%s: line %zu: write \\\\ for a backslash, \\n for a line break", path, number);
            good = false;
        } else if (!add_name(list, &names_room, line)) {
            snprintf(error, len, "%s: no memory for more than %zu names", path, list->count);
            good = false;
        }
    }
    if (good && ferror(file)) {
        snprintf(error, len, "%s: cannot be read: %s", path, strerror(errno));
        good = false;
    }
    free(line);
    return good;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void sort_names(struct tsp_skip_list *list)
{
    size_t kept = 0;
    if (list->count > 0)
        qsort(list->names, list->count, sizeof *list->names, compare_names);
    for (size_t i = 0; i < list->count; i++) {
        if (kept > 0 && strcmp(list->names[kept - 1], list->names[i]) == 0)
            free(list->names[i]);
        else
            list->names[kept++] = list->names[i];
    }
    list->count = kept;
}

bool tsp_skip_list_read(const char *path, struct tsp_skip_list *list_out, char *error, size_t len)
{
    struct tsp_skip_list list = {0};
    FILE *file = fopen(path, "re");
    if (!file) {
        snprintf(error, len, "%s: cannot be opened: %s", path, strerror(errno));
        return false;
    }
    bool good = read_lines(file, path, &list, error, len);
    fclose(file);
    if (!good) {
        tsp_skip_list_fini(&list);
        return false;
    }
    sort_names(&list);
    *list_out = list;
    return true;
}

void tsp_skip_list_fini(struct tsp_skip_list *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->names[i]);
    free(list->names);
    *list = (struct tsp_skip_list){0};
}

/* ---- writing ---- */

bool tsp_skip_file_create(const char *path, struct tsp_skip_file *file_out, char *error, size_t len)
{
    struct tsp_skip_file file = {.path = path};
    if (asprintf(&file.beside, "%s.%ld", path, (long)getpid()) < 0) {
        snprintf(error, len, "%s: no memory for its name", path);
        return false;
    }
    file.file = fopen(file.beside, "wxe"); /* x: nobody has put a link there */
    if (!file.file) {
        snprintf(error, len, "%s: cannot be written: %s", file.beside, strerror(errno));
        free(file.beside);
        return false;
    }
    *file_out = file;
    return true;
}

void tsp_skip_file_add(struct tsp_skip_file *file, const char *name)
{
    if (name[0] == '#')
        putc('\\', file->file);
    for (; *name; name++) {
        if (*name == '\\' || *name == '\n')
            putc('\\', file->file);
        putc(*name == '\n' ? 'n' : *name, file->file);
    }
    putc('\n', file->file);
}

bool tsp_skip_file_finish(struct tsp_skip_file *file, char *error, size_t len)
{
    bool written = !ferror(file->file);
    written = fclose(file->file) == 0 && written && rename(file->beside, file->path) == 0;
    if (!written) {
        snprintf(error, len, "%s: cannot be written: %s", file->path, strerror(errno));
        unlink(file->beside);
    }
    free(file->beside);
    return written;
}

void tsp_skip_file_discard(struct tsp_skip_file *file)
{
    fclose(file->file);
    unlink(file->beside);
    free(file->beside);
}
