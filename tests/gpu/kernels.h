/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels that the tests launch (kernels.cu), on a real driver and on the simulated one. */
#ifndef TEST_GPU_KERNELS_H
#define TEST_GPU_KERNELS_H

extern const char kernels_ptx[];

#endif
