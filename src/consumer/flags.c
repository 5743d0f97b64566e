/* SPDX-License-Identifier: Apache-2.0 */
#include "flags.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "../ipc/text.h"

struct problem {
    char *text;
    size_t len;
};

static bool __attribute__((format(printf, 2, 3))) complain(const struct problem *problem, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(problem->text, problem->len, format, arguments);
    va_end(arguments);
    tsi_text_clean(problem->text);
    return false;
}

static bool number(const char *text, uint64_t *value_out)
{
    if (*text == '\0' || text[strspn(text, "0123456789")] != '\0')
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno != 0)
        return false;
    *value_out = value;
    return true;
}

static bool set_number(const struct tsc_flag *flag, const char *text, const struct problem *problem)
{
    uint64_t value;

    if (!number(text, &value) || value < flag->min || value > flag->max)
        return complain(problem, "--%s %.64s: must be a whole number from %llu to %llu", flag->name, text,
                        (unsigned long long)flag->min, (unsigned long long)flag->max);
    if (flag->type == TSC_FLAG_COUNT)
        *(uint32_t *)flag->value = (uint32_t)value;
    else
        *(uint64_t *)flag->value = value;
    return true;
}

static bool set_word(const struct tsc_flag *flag, const char *text, const struct problem *problem)
{
    for (int i = 0; flag->words[i] != NULL; i++) {
        if (strcmp(flag->words[i], text) == 0) {
            *(int *)flag->value = i;
            return true;
        }
    }
    return complain(problem, "--%s %.64s: must be one of %s", flag->name, text, flag->argument);
}

static bool set_share(const struct tsc_flag *flag, const char *text, const struct problem *problem)
{
    uint32_t *share = flag->value;
    uint64_t rank, world;
    char first[16];
    size_t slash = strcspn(text, "/");

    snprintf(first, sizeof(first), "%.*s", (int)(slash < sizeof(first) ? slash : 0), text);
    if (text[slash] != '/' || !number(first, &rank) || !number(text + slash + 1, &world) || rank >= world ||
        world > flag->max)
        return complain(problem, "--%s %.64s: must be RANK/WORLD, 0 <= RANK < WORLD <= %llu; for example 0/4",
                        flag->name, text, (unsigned long long)flag->max);
    share[0] = (uint32_t)rank;
    share[1] = (uint32_t)world;
    return true;
}

static bool set(const struct tsc_flag *flag, const char *text, const struct problem *problem)
{
    switch (flag->type) {
    case TSC_FLAG_ON:
        *(bool *)flag->value = true;
        return true;
    case TSC_FLAG_COUNT:
    case TSC_FLAG_LONG:
        return set_number(flag, text, problem);
    case TSC_FLAG_WORD:
        return set_word(flag, text, problem);
    case TSC_FLAG_TEXT:
        *(const char **)flag->value = text;
        return true;
    case TSC_FLAG_SHARE:
        return set_share(flag, text, problem);
    }
    return false;
}

static const struct tsc_flag *find(const struct tsc_flag *flags, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(flags[i].name) == len && memcmp(flags[i].name, name, len) == 0)
            return &flags[i];
    }
    return NULL;
}

/* Reads the flag at argv[*at] with its value, which may be the next argument. */
static bool parse_flag(const struct tsc_flag *flags, size_t n, int argc, char *const *argv, int *at,
                       const struct problem *problem)
{
    const char *name = argv[*at] + 2;
    size_t len = strcspn(name, "=");
    const char *value = name[len] == '=' ? name + len + 1 : NULL;
    const struct tsc_flag *flag = find(flags, n, name, len);

    if (flag == NULL)
        return complain(problem, "--%.64s: unknown option; tsocketctl help lists them", name);
    if (flag->type == TSC_FLAG_ON && value != NULL)
        return complain(problem, "--%.64s: takes no value", name);
    if (flag->type != TSC_FLAG_ON && value == NULL) {
        if (*at + 1 == argc)
            return complain(problem, "--%s: a value must follow: --%s %s", flag->name, flag->name, flag->argument);
        value = argv[++*at];
    }
    return set(flag, value, problem);
}

bool tsc_flags_parse(const struct tsc_flag *flags, size_t n, int argc, char *const *argv, const char **name_out,
                     char *error, size_t len)
{
    const struct problem problem = {error, len};
    bool named = false;

    for (int at = 1; at < argc; at++) {
        if (strncmp(argv[at], "--", 2) == 0) {
            if (!parse_flag(flags, n, argc, argv, &at, &problem))
                return false;
        } else if (argv[at][0] == '-') {
            return complain(&problem, "%.64s: unknown option; tsocketctl help lists them", argv[at]);
        } else if (name_out == NULL || named) {
            return complain(&problem, "%.64s: one argument too many", argv[at]);
        } else {
            *name_out = argv[at];
            named = true;
        }
    }
    return true;
}

void tsc_flags_help(const struct tsc_flag *flags, size_t n, FILE *out)
{
    for (size_t i = 0; i < n; i++) {
        int width = fprintf(out, "      --%s%s%s", flags[i].name, flags[i].argument != NULL ? " " : "",
                            flags[i].argument != NULL ? flags[i].argument : "");
        if (width >= 30) /* its help begins on a line of its own */
            width = fprintf(out, "\n") - 1;
        fprintf(out, "%*s%s\n", 30 - width, "", flags[i].help);
    }
}
