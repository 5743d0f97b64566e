/* SPDX-License-Identifier: Apache-2.0 */
/* Command lines of tsocketd, written as they are typed, and what is understood of them. */
#ifndef COMMAND_LINE_H
#define COMMAND_LINE_H

#include <stdbool.h>

#include "producer/options.h"

extern struct tsp_options options; /* of the last line that was understood; done() gives it back */
extern struct tsp_problem problem; /* of the last that was not */

/* The line's words are parted by spaces. parse: without any variable. */
bool parse_in(char *const *environment, const char *line);
bool parse(const char *line);

/* Merges flags over a file of this content. */
bool merge_config(const char *json, const char *line);

void assert_problem(const char *text);
void done(void);

#endif
