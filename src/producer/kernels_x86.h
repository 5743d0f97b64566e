/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels for x86-64: SSE4.1, AVX2. For kernels.c alone. */
#ifndef TSP_KERNELS_X86_H
#define TSP_KERNELS_X86_H

#include "kernels.h"

/* Those that this processor runs, the slowest first; NULL behind the last one, and always on other architectures. */
const struct tsp_kernels *tsp_kernels_x86_at(size_t number);

#endif
