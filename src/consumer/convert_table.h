/* SPDX-License-Identifier: Apache-2.0 */
/* What becomes of each byte in a conversion (include/tsocket/convert.h), in the bits of the result's type. */
#ifndef TSC_CONVERT_TABLE_H
#define TSC_CONVERT_TABLE_H

#include <tsocket/convert.h>

#include "convert_pixel.h"

struct tsc_convert_table {
    uint32_t bits[TSOCKET_CHANNELS_MAX][TSC_CONVERT_VALUES];
};

int tsc_convert_check(const struct tsocket_conversion *conversion); /* TSOCKET_OK, TSOCKET_EINVAL */

void tsc_convert_fill(const struct tsocket_conversion *conversion, struct tsc_convert_table *table_out);

/* The shape that pixels are counted in. TSOCKET_EINVAL: a number is too large, or a row's width does not divide. */
int tsc_convert_shape(const struct tsocket_conversion *conversion, const struct tsocket_pick *pick, uint64_t images,
                      uint64_t pixels, struct tsc_convert_shape *shape_out);

#endif
