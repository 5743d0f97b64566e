/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Log lines: to stderr, or to the sink that tsocket_set_log_sink put in place. The only global state of the project.
 * Any thread. A line is written by one write, so that lines of several threads and processes do not mix.
 */
#ifndef TSI_LOG_H
#define TSI_LOG_H

/* `level` is 'E', 'W', 'I' or 'D'. No newline at the end of the text. */
void tsi_log(char level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The most talkative level that is written; 'W' at first. Any thread, at any time. */
void tsi_log_level(char most);

enum tsi_log_format {
    TSI_LOG_PLAIN,    /* for people: "program: error: text" */
    TSI_LOG_JSON,     /* one object per line */
    TSI_LOG_JOURNALD, /* "<3>text": the level as systemd's journal takes it, which knows program and time */
};

/* Set these three before there are threads. */
void tsi_log_format(enum tsi_log_format format);
void tsi_log_erase(const char *escape); /* goes before each plain line: takes a live line away; not copied */
void tsi_log_program(const char *name); /* stands before each line; "libtsocket" at first; not copied */

/*
 * `text` with what a terminal or a line of JSON could choke on (control characters, quotes, backslashes, bytes that are
 * not ASCII) written as \xNN, into `out`, cut to fit. Names of files and peers go through it on their way to a log.
 */
const char *tsi_log_quote(const char *text, char *out, unsigned long len);

#endif
