/* SPDX-License-Identifier: Apache-2.0 */
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../ipc/log.h"
#include "skip_list.h"

enum {
    DEPTH_MAX = 100, /* folders below each other; each costs a descriptor while it is walked */
    TEXT_BLOCK_BYTES = 1 << 18,
};

/* torchvision's list, so that samples have the numbers they have there. Which of them can be decoded, the decoder says.
 */
static const char *const extensions[] = {".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp"};
#define EXTENSIONS_TEXT ".jpg .jpeg .png .ppm .bmp .pgm .tif .tiff .webp"

struct sample {
    const char *path; /* below the root */
    uint32_t label;
};

/* Names live in blocks that never move and are freed together: a list of millions costs few allocations. */
struct text_block {
    struct text_block *next;
    size_t used;
    char bytes[TEXT_BLOCK_BYTES];
};

struct folder {
    struct tsp_source base; /* first: a tsp_source of this kind is a folder */
    uint64_t max_bytes;
    int root_fd;
    struct sample *samples; /* base.count of them */
    size_t samples_room;
    size_t classes_room;
    struct text_block *texts;
};

/* The walk that makes the list. */
struct walk {
    struct folder *folder;
    const char *root;
    bool hidden;
    uint32_t label;
    char path[PATH_MAX]; /* below the root, of the entry being looked at */
    char *error;
    size_t error_len;
};

/* A folder that the walk is inside of, and those above it. */
struct level {
    const struct level *up;
    uint32_t depth;
    dev_t dev;
    ino_t ino;
};

static bool fail(struct walk *walk, const char *format, ...) __attribute__((format(printf, 2, 3)));

static bool fail(struct walk *walk, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(walk->error, walk->error_len, format, args);
    va_end(args);
    return false;
}

static const char *keep_text(struct folder *folder, const char *text)
{
    size_t bytes = strlen(text) + 1; /* at most PATH_MAX: fits a block */
    struct text_block *block = folder->texts;
    if (!block || TEXT_BLOCK_BYTES - block->used < bytes) {
        block = malloc(sizeof *block);
        if (!block)
            return NULL;
        block->next = folder->texts;
        block->used = 0;
        folder->texts = block;
    }
    char *copy = memcpy(block->bytes + block->used, text, bytes);
    block->used += bytes;
    return copy;
}

/* Room for one more element behind `count`; NULL: no memory, the array is as before. */
static void *grow(void *array, size_t element_bytes, size_t count, size_t *room)
{
    if (count < *room)
        return array;
    size_t more = *room ? *room * 2 : 1024;
    void *grown = reallocarray(array, more, element_bytes);
    if (grown)
        *room = more;
    return grown;
}

static bool add_sample(struct walk *walk)
{
    struct folder *folder = walk->folder;
    struct sample *samples = grow(folder->samples, sizeof *samples, folder->base.count, &folder->samples_room);
    if (!samples)
        return fail(walk, "%s: no memory for a list of more than %" PRIu64 " samples", walk->root, folder->base.count);
    folder->samples = samples;
    const char *path = keep_text(folder, walk->path);
    if (!path)
        return fail(walk, "%s: no memory for the names of more than %" PRIu64 " samples", walk->root,
                    folder->base.count);
    samples[folder->base.count++] = (struct sample){.path = path, .label = walk->label};
    return true;
}

static bool add_class(struct walk *walk)
{
    struct folder *folder = walk->folder;
    const char **classes = grow(folder->base.classes, sizeof *classes, folder->base.n_classes, &folder->classes_room);
    if (!classes)
        return fail(walk, "%s: no memory for more than %" PRIu32 " classes", walk->root, folder->base.n_classes);
    folder->base.classes = classes;
    const char *name = keep_text(folder, walk->path);
    if (!name)
        return fail(walk, "%s: no memory for more than %" PRIu32 " classes", walk->root, folder->base.n_classes);
    classes[folder->base.n_classes++] = name;
    return true;
}

static bool is_picture_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    for (size_t i = 0; dot && i < sizeof extensions / sizeof extensions[0]; i++)
        if (strcasecmp(dot, extensions[i]) == 0)
            return true;
    return false;
}

/* Whether the walk passes over a name whatever it is; the two that every folder has do not count as left out. */
static bool is_hidden(struct walk *walk, const char *name)
{
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return true;
    if (name[0] != '.' || walk->hidden)
        return false;
    walk->folder->base.skipped++;
    return true;
}

/* DT_REG, DT_DIR or another; DT_UNKNOWN with errno where a link leads nowhere. Most entries need no stat. */
static unsigned char entry_type(int dir_fd, const struct dirent *entry)
{
    struct stat st;
    if (entry->d_type != DT_LNK && entry->d_type != DT_UNKNOWN)
        return entry->d_type;
    if (fstatat(dir_fd, entry->d_name, &st, 0) < 0)
        return DT_UNKNOWN;
    return (unsigned char)IFTODT(st.st_mode);
}

/* Appends `name` to the path of its folder, which is `dir_len` long. Returns the new length, 0: failed. */
static size_t path_append(struct walk *walk, size_t dir_len, const char *name)
{
    size_t name_len = strlen(name);
    size_t len = dir_len + (dir_len > 0) + name_len;
    if (len >= sizeof walk->path) {
        walk->path[dir_len] = '\0';
        fail(walk, "%s/%s: holds names longer than %zu bytes below the dataset's folder", walk->root, walk->path,
             sizeof walk->path - 1);
        return 0;
    }
    if (dir_len > 0)
        walk->path[dir_len] = '/';
    memcpy(walk->path + len - name_len, name, name_len + 1);
    return len;
}

static void warn_dangling(const struct walk *walk, const char *reason)
{
    char path[PATH_MAX];
    tsi_log_quote(walk->path, path, sizeof path);
    tsi_log('W', "%s/%s: %s (%s); left out", walk->root, path, tsp_bad_word(TSP_NOT_FOUND), reason);
}

static bool walk_folder(struct walk *walk, int parent_fd, const char *name, const struct level *up, size_t len);

static bool visit(struct walk *walk, int dir_fd, const struct dirent *entry, const struct level *level, size_t dir_len)
{
    if (is_hidden(walk, entry->d_name))
        return true;
    size_t len = path_append(walk, dir_len, entry->d_name);
    if (len == 0)
        return false;
    bool picture = is_picture_name(entry->d_name);
    unsigned char type = entry_type(dir_fd, entry);
    if (type == DT_DIR && !picture)
        return walk_folder(walk, dir_fd, entry->d_name, level, len);
    if (type == DT_REG && picture)
        return add_sample(walk);
    if (type == DT_UNKNOWN && picture)
        warn_dangling(walk, strerror(errno));
    walk->folder->base.skipped++;
    return true;
}

/* Calls visit for the entries of an open folder; the path at return is that of the last one. */
static bool visit_all(struct walk *walk, DIR *dir, const struct level *level, size_t len)
{
    for (;;) {
        errno = 0;
        const struct dirent *entry = readdir(dir);
        if (!entry && errno) {
            walk->path[len] = '\0';
            return fail(walk, "%s/%s: cannot be listed: %s", walk->root, walk->path, strerror(errno));
        }
        if (!entry)
            return true;
        if (!visit(walk, dirfd(dir), entry, level, len))
            return false;
    }
}

static bool is_above(const struct level *level, const struct stat *st)
{
    for (; level; level = level->up)
        if (level->dev == st->st_dev && level->ino == st->st_ino)
            return true;
    return false;
}

/* Walks the folder `name` of `parent_fd`, whose path is walk->path, `len` long. */
static bool walk_folder(struct walk *walk, int parent_fd, const char *name, const struct level *up, size_t len)
{
    if (up->depth == DEPTH_MAX)
        return fail(walk, "%s/%s: more than %d folders deep", walk->root, walk->path, DEPTH_MAX);
    struct stat st;
    int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir || fstat(fd, &st) < 0) {
        fail(walk, "%s/%s: cannot be opened: %s", walk->root, walk->path, strerror(errno));
        if (dir)
            closedir(dir);
        else if (fd >= 0)
            close(fd);
        return false;
    }
    bool ok = true;
    if (is_above(up, &st))
        walk->folder->base.skipped++;
    else
        ok = visit_all(walk, dir, &(struct level){up, up->depth + 1, st.st_dev, st.st_ino}, len);
    closedir(dir);
    return ok;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int compare_samples(const void *a, const void *b)
{
    return strcmp(((const struct sample *)a)->path, ((const struct sample *)b)->path);
}

/* The folders of the root are the classes, whatever is in them. */
static bool list_classes(struct walk *walk)
{
    struct folder *folder = walk->folder;
    int fd = openat(folder->root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        fail(walk, "%s: cannot be opened: %s", walk->root, strerror(errno));
        if (fd >= 0)
            close(fd);
        return false;
    }
    bool ok = true;
    const struct dirent *entry;
    while (ok && (errno = 0, entry = readdir(dir)) != NULL) {
        if (is_hidden(walk, entry->d_name))
            continue;
        if (entry_type(fd, entry) == DT_DIR)
            ok = path_append(walk, 0, entry->d_name) > 0 && add_class(walk);
        else
            folder->base.skipped++;
    }
    if (ok && errno)
        ok = fail(walk, "%s: cannot be listed: %s", walk->root, strerror(errno));
    closedir(dir);
    if (ok && folder->base.n_classes == 0)
        ok = fail(walk, "%s: is empty: it must hold a folder per class, with the pictures inside", walk->root);
    if (ok)
        qsort(folder->base.classes, folder->base.n_classes, sizeof *folder->base.classes, compare_names);
    return ok;
}

static bool list_samples(struct walk *walk)
{
    struct folder *folder = walk->folder;
    struct stat st;
    if (fstat(folder->root_fd, &st) < 0)
        return fail(walk, "%s: %s", walk->root, strerror(errno));
    struct level root = {.dev = st.st_dev, .ino = st.st_ino};
    for (uint32_t i = 0; i < folder->base.n_classes; i++) {
        const char *name = folder->base.classes[i];
        walk->label = i;
        size_t len = path_append(walk, 0, name);
        if (len == 0 || !walk_folder(walk, folder->root_fd, name, &root, len))
            return false;
    }
    if (folder->base.count == 0)
        return fail(walk, "%s: no pictures in the folders of its %" PRIu32 " classes (wanted: %s)", walk->root,
                    folder->base.n_classes, EXTENSIONS_TEXT);
    qsort(folder->samples, folder->base.count, sizeof *folder->samples, compare_samples);
    return true;
}

/* Names of a skip list that are none of the samples. */
struct unknown {
    size_t count;
    const char *first;
};

static void add_unknown(struct unknown *unknown, const char *name)
{
    if (unknown->count++ == 0)
        unknown->first = name;
}

static void warn_unknown(const struct walk *walk, const char *path, const struct unknown *unknown)
{
    char first[PATH_MAX];
    if (unknown->count == 0)
        return;
    tsi_log_quote(unknown->first, first, sizeof first);
    tsi_log('W', "--skip %s: %zu of its names are no pictures of %s, the first: %s", path, unknown->count, walk->root,
            first);
}

/* Both lists are in the order of their bytes: one walk along them finds who is in both. */
static struct unknown leave_out(struct folder *folder, const struct tsp_skip_list *list)
{
    struct unknown unknown = {0};
    uint64_t kept = 0;
    size_t at = 0;
    for (uint64_t i = 0; i < folder->base.count; i++) {
        while (at < list->count && strcmp(list->names[at], folder->samples[i].path) < 0)
            add_unknown(&unknown, list->names[at++]);
        if (at < list->count && strcmp(list->names[at], folder->samples[i].path) == 0)
            at++;
        else
            folder->samples[kept++] = folder->samples[i];
    }
    while (at < list->count)
        add_unknown(&unknown, list->names[at++]);
    folder->base.left_out = folder->base.count - kept;
    folder->base.count = kept;
    return unknown;
}

static bool skip_samples(struct walk *walk, const char *path)
{
    struct tsp_skip_list list;
    char error[512];
    if (!tsp_skip_list_read(path, &list, error, sizeof error))
        return fail(walk, "--skip %s", error);
    struct unknown unknown = leave_out(walk->folder, &list);
    warn_unknown(walk, path, &unknown);
    tsp_skip_list_fini(&list);
    if (walk->folder->base.count == 0)
        return fail(walk, "%s: --skip %s names every one of its %" PRIu64 " pictures; shorten the list", walk->root,
                    path, walk->folder->base.left_out);
    return true;
}

static const struct folder *folder_of(const struct tsp_source *source)
{
    return (const struct folder *)source;
}

static const char *folder_key(const struct tsp_source *source, uint64_t index)
{
    return folder_of(source)->samples[index].path;
}

static int64_t folder_label(const struct tsp_source *source, uint64_t index)
{
    return folder_of(source)->samples[index].label;
}

/* What a failed system call says about the sample: missing or forbidden is its own fault, the rest is the machine's. */
static enum tsp_bad failed(struct tsp_encoded *out, const char *what)
{
    int error = errno;
    snprintf(out->why, sizeof out->why, "%s: %s", what, strerror(error));
    switch (error) {
    case ENOENT:
    case ENOTDIR:
    case ELOOP:
        return TSP_NOT_FOUND;
    case EACCES:
    case EPERM:
        return TSP_PERMISSION;
    default:
        return TSP_STOP;
    }
}

/* Reads until `out` holds `bytes` or the file ends, which may have become shorter. */
static enum tsp_bad read_bytes(int fd, size_t bytes, struct tsp_encoded *out)
{
    while (out->len < bytes) {
        ssize_t got = read(fd, out->data + out->len, bytes - out->len);
        if (got == 0)
            break;
        if (got < 0 && errno != EINTR)
            return failed(out, "read");
        if (got > 0)
            out->len += (size_t)got;
    }
    return TSP_GOOD;
}

static enum tsp_bad read_file(int fd, uint64_t max_bytes, struct tsp_encoded *out)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return failed(out, "stat");
    if (!S_ISREG(st.st_mode)) {
        snprintf(out->why, sizeof out->why, "not a file");
        return TSP_NOT_IMAGE;
    }
    if (st.st_size == 0) {
        snprintf(out->why, sizeof out->why, "the file is empty");
        return TSP_EMPTY;
    }
    if ((uint64_t)st.st_size > max_bytes) {
        snprintf(out->why, sizeof out->why, "%jd bytes, more than the limit of %" PRIu64, (intmax_t)st.st_size,
                 max_bytes);
        return TSP_TOO_LARGE;
    }
    enum tsp_bad bad = tsp_encoded_reserve(out, (size_t)st.st_size);
    return bad == TSP_GOOD ? read_bytes(fd, (size_t)st.st_size, out) : bad;
}

static enum tsp_bad folder_read(const struct tsp_source *source, uint64_t index, struct tsp_encoded *out)
{
    const struct folder *folder = folder_of(source);
    out->len = 0;
    out->raw_width = out->raw_height = 0;
    /* Should a pipe or device have taken the file's name, O_NONBLOCK keeps the open from waiting. */
    int fd = openat(folder->root_fd, folder->samples[index].path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return failed(out, "open");
    enum tsp_bad bad = read_file(fd, folder->max_bytes, out);
    close(fd);
    return bad;
}

static void folder_close(struct tsp_source *source)
{
    struct folder *folder = (struct folder *)source;
    while (folder->texts) {
        struct text_block *block = folder->texts;
        folder->texts = block->next;
        free(block);
    }
    close(folder->root_fd);
    free(folder->samples);
    free(folder->base.classes);
    free(folder);
}

static const struct tsp_source_ops folder_ops = {
    .key = folder_key,
    .label = folder_label,
    .read = folder_read,
    .close = folder_close,
};

struct tsp_source *tsp_folder_open(const char *root, const struct tsp_source_limits *limits, char *error, size_t len)
{
    int root_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (root_fd < 0) {
        snprintf(error, len, "%s: %s; the dataset is a folder with a folder per class, or synthetic:COUNTxHEIGHTxWIDTH",
                 root, strerror(errno));
        return NULL;
    }
    struct folder *folder = malloc(sizeof *folder);
    if (!folder) {
        snprintf(error, len, "%s: no memory", root);
        close(root_fd);
        return NULL;
    }
    *folder = (struct folder){
        .base.ops = &folder_ops,
        .max_bytes = limits->max_bytes,
        .root_fd = root_fd,
    };
    struct walk walk = {.folder = folder, .root = root, .hidden = limits->hidden, .error = error, .error_len = len};
    if (!list_classes(&walk) || !list_samples(&walk) || (limits->skip && !skip_samples(&walk, limits->skip))) {
        folder_close(&folder->base);
        return NULL;
    }
    return &folder->base;
}
