/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "../simcuda/simcuda.h"

__asm__(".section .rodata\n"
        ".globl kernels_ptx\n"
        "kernels_ptx:\n"
        ".incbin \"" TEST_KERNELS_PTX "\"\n"
        ".byte 0\n"
        ".previous\n");

static void *(*at)(struct simcuda_launch *launch, uint64_t address, size_t bytes, bool write);

static uint64_t address_of(const struct simcuda_launch *launch, unsigned param)
{
    return *(const uint64_t *)launch->params[param];
}

static uint32_t number_of(const struct simcuda_launch *launch, unsigned param)
{
    return *(const uint32_t *)launch->params[param];
}

static void sum(struct simcuda_launch *launch)
{
    uint32_t n = number_of(launch, 1);
    const uint32_t *data = at(launch, address_of(launch, 0), n * sizeof(*data), false);
    uint32_t *out = at(launch, address_of(launch, 2), sizeof(*out), true);
    uint32_t total = 0;

    if (data == NULL || out == NULL)
        return;
    for (uint32_t i = 0; i < n; i++)
        total += data[i];
    *out = total;
}

static void store(struct simcuda_launch *launch)
{
    uint32_t *data = at(launch, address_of(launch, 0), sizeof(*data), true);

    if (data != NULL)
        *data = number_of(launch, 1);
}

/* By name: a test for both drivers is not linked with one of them. */
static void *find(void *library, const char *name)
{
    return library != NULL ? dlsym(library, name) : NULL;
}

void kernels_register(void)
{
    const char *path = getenv("TSOCKET_LIBCUDA");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbols[] = {find(library, "simcuda_at"), find(library, "simcuda_register")};
    void (*add)(const char *name, simcuda_kernel *kernel, unsigned n_params, const size_t param_bytes[]);

    if (symbols[0] == NULL || symbols[1] == NULL)
        return;
    memcpy(&at, &symbols[0], sizeof(at));
    memcpy(&add, &symbols[1], sizeof(add));
    add("test_sum", sum, 3, (const size_t[]){8, 4, 8});
    add("test_store", store, 2, (const size_t[]){8, 4});
}
