/* SPDX-License-Identifier: Apache-2.0 */
#include "cuda_api.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"

enum {
    OPTIONAL,
    REQUIRED,
};

static const struct {
    const char *symbol;
    size_t offset; /* of the member that it fills */
    int need;
} functions[] = {
#define FUNCTION(name, suffix, need, params) {#name #suffix, offsetof(struct tsi_cuda, name), need},
    TSI_CUDA_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

static const char *library_name(void)
{
    const char *other = getenv("TSOCKET_LIBCUDA");

    return other != NULL && other[0] != '\0' ? other : "libcuda.so.1";
}

/* POSIX guarantees that dlsym's pointer can be used as a function; ISO C has no cast for it. */
static int fill(struct tsi_cuda *cuda, void *library)
{
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *function = dlsym(library, functions[i].symbol);

        if (function == NULL && functions[i].need == REQUIRED)
            return tsi_fail(TSOCKET_ENOTFOUND, "the CUDA driver %s has no %s: it is too old", library_name(),
                            functions[i].symbol);
        memcpy((char *)cuda + functions[i].offset, &function, sizeof(function));
    }
    return TSOCKET_OK;
}

static int start(const struct tsi_cuda *cuda)
{
    int count = 0;
    int result = cuda->cuInit(0);

    if (result == TSI_CU_ERROR_NO_DEVICE)
        return tsi_fail(TSOCKET_ENOTFOUND, "the CUDA driver finds no device");
    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "the CUDA driver does not start: cuInit");
    result = cuda->cuDeviceGetCount(&count);
    if (result != TSI_CU_SUCCESS)
        return tsi_cuda_fail(cuda, result, "cuDeviceGetCount");
    return count > 0 ? TSOCKET_OK : tsi_fail(TSOCKET_ENOTFOUND, "the CUDA driver finds no device");
}

int tsi_cuda_load(struct tsi_cuda *cuda_out)
{
    struct tsi_cuda cuda;
    void *library = dlopen(library_name(), RTLD_NOW | RTLD_LOCAL);
    int rc;

    if (library == NULL)
        return tsi_fail(TSOCKET_ENOTFOUND, "there is no CUDA driver: %s", dlerror());
    rc = fill(&cuda, library);
    if (rc != TSOCKET_OK) {
        dlclose(library);
        return rc;
    }
    rc = start(&cuda);
    if (rc == TSOCKET_OK)
        *cuda_out = cuda;
    return rc;
}

bool tsi_cuda_has_vmm(const struct tsi_cuda *cuda)
{
#define PRESENT(name, suffix, need, params) &&cuda->name != NULL
    return true TSI_CUDA_FUNCTIONS(PRESENT);
#undef PRESENT
}

int tsi_cuda_fail(const struct tsi_cuda *cuda, int result, const char *format, ...)
{
    char what[TSI_ERROR_TEXT_MAX / 2];
    const char *name = NULL;
    va_list args;

    va_start(args, format);
    vsnprintf(what, sizeof(what), format, args);
    va_end(args);
    if (cuda->cuGetErrorName(result, &name) != TSI_CU_SUCCESS || name == NULL)
        name = "an unknown error";
    return tsi_fail(result == TSI_CU_ERROR_OUT_OF_MEMORY ? TSOCKET_ENOMEM : TSOCKET_EDEVICE, "%s: %s (%d)", what, name,
                    result);
}
