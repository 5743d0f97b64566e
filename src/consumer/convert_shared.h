/* SPDX-License-Identifier: Apache-2.0 */
/* What conversions on the host and on a GPU (include/tsocket/convert.h) share: their checks, their norm, their shape.
 */
#ifndef TSC_CONVERT_SHARED_H
#define TSC_CONVERT_SHARED_H

#include <tsocket/convert.h>

#include "../ipc/norm.h"
#include "convert_pixel.h"

int tsc_convert_check(const struct tsocket_conversion *conversion); /* TSOCKET_OK, TSOCKET_EINVAL */

void tsc_convert_norm(const struct tsocket_conversion *conversion, struct tsi_norm *norm_out);

/* The shape that pixels are counted in. TSOCKET_EINVAL: a number is too large, or a row's width does not divide. */
int tsc_convert_shape(const struct tsocket_conversion *conversion, const struct tsocket_pick *pick, uint64_t images,
                      uint64_t pixels, struct tsc_convert_shape *shape_out);

#endif
