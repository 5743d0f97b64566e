/* SPDX-License-Identifier: Apache-2.0 */
#include "problem.h"

#include <stdarg.h>
#include <stdio.h>

#include "../ipc/text.h"

bool tsp_problem_set(struct tsp_problem *problem, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(problem->text, sizeof(problem->text), format, arguments);
    va_end(arguments);
    tsi_text_clean(problem->text);
    return false;
}
