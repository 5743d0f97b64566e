/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Generated pictures, "synthetic:COUNTxHEIGHTxWIDTH": raw RGB noise that is a pure function of the sample's index,
 * which stands in the first bytes, so that no two samples are equal. Labels are index modulo 10. "null:..." has the
 * same shape, but no sample of it is ever made. For source.c alone.
 */
#ifndef TSP_SYNTHETIC_H
#define TSP_SYNTHETIC_H

#include <stdbool.h>

#include "source.h"

/* Whether `spec` is of this kind. */
bool tsp_synthetic_is(const char *spec);

/* As tsp_source_open. */
struct tsp_source *tsp_synthetic_open(const char *spec, const struct tsp_source_limits *limits, char *error,
                                      size_t len);

#endif
