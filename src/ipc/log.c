/* SPDX-License-Identifier: Apache-2.0 */
#include "log.h"

#include <tsocket/tsocket.h>

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cjson/cJSON.h>

enum {
    TEXT_MAX = 1536,
};

static struct {
    tsocket_log_sink *sink;
    void *context;
    const char *program;
    const char *erase;
    _Atomic char most;
    enum tsi_log_format format;
} logger = {.program = "libtsocket", .erase = "", .most = 'W'};

static const char *const words[] = {"error", "warning", "info", "debug"};

/* 0 for 'E' .. 3 for 'D'. */
static int rank_of(char level)
{
    static const char levels[] = "EWID";
    const char *at = strchr(levels, level);

    return at != NULL && level != '\0' ? (int)(at - levels) : 3;
}

static void write_text(const char *line, size_t len)
{
    ssize_t ignored = write(STDERR_FILENO, line, len); /* there is nobody left to tell about a failure */

    (void)ignored;
}

static void write_plain(int rank, const char *text)
{
    char line[TEXT_MAX + 128];
    int len = rank == 2
                  ? snprintf(line, sizeof(line), "%s%s: %s\n", logger.erase, logger.program, text)
                  : snprintf(line, sizeof(line), "%s%s: %s: %s\n", logger.erase, logger.program, words[rank], text);

    if (len > 0)
        write_text(line, (size_t)len < sizeof(line) ? (size_t)len : sizeof(line) - 1);
}

static void write_json(int rank, const char *text)
{
    cJSON *line = cJSON_CreateObject();
    struct timespec now;
    char *printed;
    char out[2 * TEXT_MAX];
    int len;

    clock_gettime(CLOCK_REALTIME, &now);
    cJSON_AddNumberToObject(line, "time", (double)now.tv_sec + (double)(now.tv_nsec / 1000000) / 1000);
    cJSON_AddStringToObject(line, "level", words[rank]);
    cJSON_AddStringToObject(line, "program", logger.program);
    cJSON_AddStringToObject(line, "message", text);
    printed = cJSON_PrintUnformatted(line);
    cJSON_Delete(line);
    if (printed == NULL)
        return;
    len = snprintf(out, sizeof(out), "%s\n", printed);
    cJSON_free(printed);
    if (len > 0 && (size_t)len < sizeof(out))
        write_text(out, (size_t)len);
}

/* The number is syslog's priority, and counts for one line. */
static void write_journald(int rank, const char *text)
{
    static const int priorities[] = {3, 4, 6, 7};
    char line[TEXT_MAX + 8];
    int len = snprintf(line, sizeof(line), "<%d>%s\n", priorities[rank], text);

    for (int i = 0; i + 1 < len; i++)
        line[i] = line[i] == '\n' ? ' ' : line[i];
    write_text(line, (size_t)len);
}

void tsi_log(char level, const char *format, ...)
{
    char text[TEXT_MAX];
    int rank = rank_of(level);
    va_list args;

    if (rank > rank_of(logger.most))
        return;
    va_start(args, format);
    vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    if (logger.sink != NULL)
        logger.sink(logger.context, level, text);
    else if (logger.format == TSI_LOG_JSON)
        write_json(rank, text);
    else if (logger.format == TSI_LOG_JOURNALD)
        write_journald(rank, text);
    else
        write_plain(rank, text);
}

void tsi_log_level(char most)
{
    logger.most = most;
}

void tsi_log_format(enum tsi_log_format format)
{
    logger.format = format;
}

void tsi_log_erase(const char *escape)
{
    logger.erase = escape;
}

void tsi_log_program(const char *name)
{
    logger.program = name;
}

const char *tsi_log_quote(const char *text, char *out, unsigned long len)
{
    unsigned long used = 0;

    for (const unsigned char *c = (const unsigned char *)text; *c != '\0' && used + 5 < len; c++) {
        if (*c < 0x20 || *c >= 0x7f || *c == '"' || *c == '\\')
            used += (unsigned long)snprintf(out + used, len - used, "\\x%02x", *c);
        else
            out[used++] = (char)*c;
    }
    if (len > 0)
        out[used] = '\0';
    return out;
}

void tsocket_set_log_sink(tsocket_log_sink *sink, void *context)
{
    logger.sink = sink;
    logger.context = context;
}
