/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"

__asm__(".section .rodata\n"
        ".globl kernels_ptx\n"
        "kernels_ptx:\n"
        ".incbin \"" TEST_KERNELS_PTX "\"\n"
        ".byte 0\n"
        ".previous\n");
