/* SPDX-License-Identifier: Apache-2.0 */
/* A thread's part of reading `words` words: every `threads`-th. For both compilers, the device's and the host's. */
#ifndef READ_KERNEL_H
#define READ_KERNEL_H

#ifdef __CUDA__ /* compiled without any header of the toolkit */
typedef unsigned uint32_t;
typedef unsigned long uint64_t;
#define READ_FUNCTION static inline __attribute__((device))
#else
#include <stdint.h>
#define READ_FUNCTION static inline
#endif

READ_FUNCTION uint32_t bench_read_part(const uint32_t *data, uint64_t words, uint32_t thread, uint32_t threads)
{
    uint32_t sum = 0;

    for (uint64_t i = thread; i < words; i += threads)
        sum += data[i];
    return sum;
}

#endif
