/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for 64-bit ARM. For kernels.c alone. */
#ifndef TSP_KERNELS_NEON_H
#define TSP_KERNELS_NEON_H

#include "kernels.h"

/* NULL on other architectures; every processor of this one runs them. */
const struct tsp_kernels *tsp_kernels_neon(void);

#endif
