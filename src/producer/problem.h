/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is wrong with an argument, said once, where it is known: which flag (variable, key of the file), its value, the
 * limit and the way out. The layers above pass it on untouched.
 */
#ifndef TSP_PROBLEM_H
#define TSP_PROBLEM_H

#include <stdbool.h>

struct tsp_problem {
    bool in_file; /* the configuration file is what is wrong; only options.h says so */
    char text[1024];
};

/* Writes the text, made safe for a terminal. Returns false, so that a check can say `return tsp_problem_set(...)`. */
bool tsp_problem_set(struct tsp_problem *problem, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
