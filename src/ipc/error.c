/* SPDX-License-Identifier: Apache-2.0 */
#include "error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define TEXT(x)          #x
#define VERSION(a, b, c) TEXT(a) "." TEXT(b) "." TEXT(c)

static _Thread_local char last_error[TSI_ERROR_TEXT_MAX];

int tsi_fail(int error, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(last_error, sizeof(last_error), format, args);
    va_end(args);
    return error;
}

int tsi_fail_errno(int error, const char *format, ...)
{
    int cause = errno;
    va_list args;
    int len;

    va_start(args, format);
    len = vsnprintf(last_error, sizeof(last_error), format, args);
    va_end(args);
    if (len >= 0 && (size_t)len < sizeof(last_error))
        snprintf(last_error + len, sizeof(last_error) - (size_t)len, ": %s", strerror(cause));
    return error;
}

const char *tsocket_last_error(void)
{
    return last_error;
}

const char *tsocket_strerror(int error)
{
    switch (error) {
#define TSI_ERROR_TEXT(name, value, text)                                                                              \
    case value:                                                                                                        \
        return text;
        TSOCKET_ERRORS(TSI_ERROR_TEXT)
#undef TSI_ERROR_TEXT
    default:
        return "unknown error code";
    }
}

const char *tsocket_errname(int error)
{
    switch (error) {
#define TSI_ERROR_NAME(name, value, text)                                                                              \
    case value:                                                                                                        \
        return &#name[sizeof("TSOCKET_") - 1];
        TSOCKET_ERRORS(TSI_ERROR_NAME)
#undef TSI_ERROR_NAME
    default:
        return "UNKNOWN";
    }
}

const char *tsocket_version(void)
{
    return VERSION(TSOCKET_VERSION_MAJOR, TSOCKET_VERSION_MINOR, TSOCKET_VERSION_PATCH);
}
