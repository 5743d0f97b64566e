/* SPDX-License-Identifier: Apache-2.0 */
/* What `tsocketd --help` prints: the table of options, and around it what one has to know to use them. */
#ifndef TSP_USAGE_H
#define TSP_USAGE_H

#include <stdio.h>

void tsp_usage_print(FILE *out);

#endif
