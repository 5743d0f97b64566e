/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A daemon's status as a table for people. The document comes from another process: nothing in it is believed to be
 * there, to have a certain type or to be fit for a terminal.
 */
#ifndef TSC_TABLE_H
#define TSC_TABLE_H

#include <cjson/cJSON.h>
#include <stdio.h>

void tsc_table_print(const cJSON *status, FILE *out);

/* Member `key` of `object`: as a number (0 where it is none), or as text that is fit for a terminal (else "-"). */
double tsc_table_number(const cJSON *object, const char *key);
const char *tsc_table_text(const cJSON *object, const char *key, char *out, size_t len);

#endif
