/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The calling thread's last error text, as tsocket_last_error() shows it. Whoever first knows the cause says it, once:
 *
 *     return tsi_fail_errno(TSOCKET_ESYSTEM, "mmap of the ring, %zu bytes", bytes);
 */
#ifndef TSI_ERROR_H
#define TSI_ERROR_H

#include <tsocket/tsocket.h>

#define TSI_ERROR_TEXT_MAX 1024

/* Keeps the text (printf's format; cut at TSI_ERROR_TEXT_MAX) and returns `error`. */
int tsi_fail(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The same with ": " and errno's text behind it. */
int tsi_fail_errno(int error, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
