/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantities as people write them. Every function takes the whole text or nothing: it returns false, and leaves its
 * output alone, where the text is not exactly one such quantity. No locale, no white space, no sign on counts.
 */
#ifndef TSP_QUANTITY_H
#define TSP_QUANTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Decimal digits: "224". */
bool tsp_quantity_count(const char *text, uint64_t *count_out);

/* A finite number, or a fraction of two: "0.5", "1e-3", "3/4". */
bool tsp_quantity_real(const char *text, double *real_out);

/* Exactly `n` such numbers with commas between: "3/4,4/3". */
bool tsp_quantity_reals(const char *text, size_t n, double *reals_out);

/* A count, or bytes with a unit: "1024", "512MiB", "1.5G" (k, M, G, T count in 1000, KiB .. TiB in 1024; or B). */
bool tsp_quantity_size(const char *text, uint64_t *amount_out, bool *bytes_out);

/* Milliseconds from "5s", "500ms", "1.5m", "2h", or a number of seconds: "5". Not less than one, unless it is 0. */
bool tsp_quantity_duration(const char *text, uint64_t *ms_out);

#endif
