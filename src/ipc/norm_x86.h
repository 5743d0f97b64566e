/* SPDX-License-Identifier: Apache-2.0 */
/* The write of a norm for x86-64 with AVX2. For norm.c alone. */
#ifndef TSI_NORM_X86_H
#define TSI_NORM_X86_H

#include "norm.h"

/*
 * Writes as many pixels from the first one on as it can, and says how many: all but less than 16 where pixels or
 * channels lie side by side; none otherwise, on older processors, and on other architectures.
 */
size_t tsi_norm_x86(const struct tsi_norm *norm, const uint8_t *from, size_t pixels, void *to,
                    struct tsi_norm_steps steps);

#endif
