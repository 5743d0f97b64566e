/* SPDX-License-Identifier: Apache-2.0 */
#include "state.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../ipc/runtime.h"
#include "../ipc/step.h"

#define FIRST_LINE "tsocket-state 1\n"

enum {
    TEXT_MAX = 8192, /* more than TSOCKET_STREAMS_MAX lines need */
    LINE_MAX_BYTES = 256,
    PATH_MAX_BYTES = 4096,
};

/* ---- text ---- */

static void print_state(const struct tsp_state *state, char text[TEXT_MAX])
{
    size_t used = (size_t)snprintf(text, TEXT_MAX, FIRST_LINE);
    char check[TSP_FINGERPRINT];

    for (uint32_t i = 0; i < state->n; i++) {
        const struct tsp_state_stream *stream = &state->streams[i];

        used += (size_t)snprintf(text + used, TEXT_MAX - used,
                                 "stream %s epoch %" PRIu64 " seed %" PRIu64 " dataset %s recipe %s\n", stream->name,
                                 stream->epoch, stream->seed, stream->dataset, stream->recipe);
    }
    tsp_fingerprint_text(text, check);
    snprintf(text + used, TEXT_MAX - used, "check %s\n", check);
}

static bool is_fingerprint(const char *text)
{
    return strlen(text) == TSP_FINGERPRINT - 1 && strspn(text, "0123456789abcdef") == TSP_FINGERPRINT - 1;
}

/* What the line says must be what is printed of it: so there is one form, and nothing behind it. */
static bool parse_stream(const char *line, size_t len, struct tsp_state_stream *stream_out)
{
    struct tsp_state state = {.n = 1};
    struct tsp_state_stream *stream = &state.streams[0];
    char copy[LINE_MAX_BYTES], again[TEXT_MAX];

    if (len >= sizeof(copy))
        return false;
    memcpy(copy, line, len);
    copy[len] = '\0';
    if (sscanf(copy, "stream %64s epoch %" SCNu64 " seed %" SCNu64 " dataset %16s recipe %16s", stream->name,
               &stream->epoch, &stream->seed, stream->dataset, stream->recipe) != 5)
        return false;
    if (!tsi_name_ok(stream->name) || !is_fingerprint(stream->dataset) || !is_fingerprint(stream->recipe))
        return false;
    print_state(&state, again);
    if (strncmp(again + strlen(FIRST_LINE), copy, len) != 0)
        return false;
    *stream_out = *stream;
    return true;
}

/* The last line is a hash of those before it. */
static bool check_ok(const char *text)
{
    const char *check = strstr(text, "\ncheck ");
    char before[TEXT_MAX], expected[TSP_FINGERPRINT];
    size_t len;

    if (check == NULL)
        return false;
    len = (size_t)(check + 1 - text);
    memcpy(before, text, len);
    before[len] = '\0';
    tsp_fingerprint_text(before, expected);
    return strncmp(check + 7, expected, TSP_FINGERPRINT - 1) == 0 && strcmp(check + 6 + TSP_FINGERPRINT, "\n") == 0;
}

static bool parse_state(const char *text, struct tsp_state *state_out)
{
    const char *line = text + strlen(FIRST_LINE);

    state_out->n = 0;
    while (strncmp(line, "check ", 6) != 0) {
        size_t len = strcspn(line, "\n") + 1;

        if (state_out->n == TSOCKET_STREAMS_MAX || !parse_stream(line, len, &state_out->streams[state_out->n]))
            return false;
        state_out->n++;
        line += len;
    }
    return true;
}

/* ---- the file ---- */

static bool system_problem(struct tsp_problem *problem_out, const char *path, const char *what)
{
    return tsp_problem_set(problem_out, "--state %s: %s: %s", path, what, strerror(errno));
}

/* The whole file and a final 0. *len_out is -1 where there is none. */
static bool read_file(const char *path, char text[TEXT_MAX], ssize_t *len_out, struct tsp_problem *problem_out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    struct stat status;
    bool good;

    *len_out = -1;
    if (fd < 0)
        return errno == ENOENT || system_problem(problem_out, path, "cannot be opened");
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return tsp_problem_set(problem_out, "--state %s: is not a regular file", path);
    }
    *len_out = read(fd, text, TEXT_MAX - 1);
    good = *len_out >= 0 || system_problem(problem_out, path, "cannot be read");
    text[*len_out >= 0 ? *len_out : 0] = '\0';
    close(fd);
    return good;
}

bool tsp_state_read(const char *path, struct tsp_state *state_out, struct tsp_problem *problem_out)
{
    char text[TEXT_MAX];
    ssize_t len;

    if (!read_file(path, text, &len, problem_out))
        return false;
    state_out->n = 0;
    if (len < 0)
        return true;
    if (strncmp(text, "tsocket-state ", 14) != 0)
        return tsp_problem_set(problem_out, "--state %s: is there and is no state of tsocketd; give another file",
                               path);
    if (strncmp(text, FIRST_LINE, strlen(FIRST_LINE)) != 0)
        return tsp_problem_set(problem_out, "--state %s: was written by another version of tsocketd; give another file",
                               path);
    if (strlen(text) != (size_t)len || !check_ok(text) || !parse_state(text, state_out))
        return tsp_problem_set(problem_out,
                               "--state %s: is torn or was changed by hand; remove it to begin with epoch 0", path);
    return true;
}

static bool write_all(int fd, const char *text, size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, text, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        text += n;
        len -= (size_t)n;
    }
    return true;
}

/* That the file is there under its name survives a power failure only once its folder is on the disk as well. */
static bool sync_folder(const char *path)
{
    char folder[PATH_MAX_BYTES];
    char *slash;
    int fd, rc;

    snprintf(folder, sizeof(folder), "%s", path);
    slash = strrchr(folder, '/');
    if (slash == NULL)
        strcpy(folder, ".");
    else
        slash[slash == folder ? 1 : 0] = '\0';
    fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return false;
    rc = fsync(fd);
    close(fd);
    return rc == 0 || errno == EINVAL; /* some file systems cannot */
}

bool tsp_state_write(const char *path, const struct tsp_state *state, struct tsp_problem *problem_out)
{
    char text[TEXT_MAX], temporary[PATH_MAX_BYTES];
    int fd;
    bool good;

    print_state(state, text);
    if ((size_t)snprintf(temporary, sizeof(temporary), "%s.new", path) >= sizeof(temporary))
        return tsp_problem_set(problem_out, "--state %.64s...: the path is too long", path);
    fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd < 0)
        return system_problem(problem_out, temporary, "cannot be written");
    good = (write_all(fd, text, strlen(text)) && fsync(fd) == 0) ||
           system_problem(problem_out, temporary, "cannot be written");
    TSI_STEP(STATE_WRITTEN);
    good = good && (rename(temporary, path) == 0 || system_problem(problem_out, path, "cannot be replaced"));
    int error = errno;
    close(fd);
    if (!good)
        unlink(temporary);
    errno = error;
    return good && (sync_folder(path) || system_problem(problem_out, path, "its folder cannot be written to disk"));
}

struct tsp_state_stream *tsp_state_find(struct tsp_state *state, const char *name)
{
    for (uint32_t i = 0; i < state->n; i++) {
        if (strcmp(state->streams[i].name, name) == 0)
            return &state->streams[i];
    }
    return NULL;
}
