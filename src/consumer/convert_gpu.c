/* SPDX-License-Identifier: Apache-2.0 */
#include "convert_gpu.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "../ipc/error.h"

enum {
    KEPT_MAX = 16,   /* conversions of one handle: a trainer has a few */
    THREADS = 256,   /* in a block */
    ROWS_MAX = 32768 /* of blocks; more images share them */
};

static_assert((int)TSC_CONVERT_VALUES == (int)TSI_NORM_VALUES, "kernels read a norm's table");

/* Text for the driver's compiler, which takes it for every GPU from compute capability 6.0 on. */
extern const char tsc_convert_ptx[];
__asm__(".section .rodata\n"
        ".globl tsc_convert_ptx\n"
        ".hidden tsc_convert_ptx\n"
        "tsc_convert_ptx:\n"
        ".incbin \"" TSC_CONVERT_PTX "\"\n"
        ".byte 0\n"
        ".previous\n");

struct kept {
    struct tsocket_conversion conversion;
    uint64_t table; /* on the device */
};

struct tsc_convert_gpu {
    struct tsc_gpu *gpu;
    struct tsi_cu_module *module;
    struct tsi_cu_function *to_16;
    struct tsi_cu_function *to_32;
    struct kept kept[KEPT_MAX];
    unsigned n_kept;
};

/* --- life; the device's context is current in the static ones */

static int load(struct tsc_convert_gpu *convert)
{
    const struct tsi_cuda *cuda = &tsc_gpu_device(convert->gpu)->cuda;
    int result = cuda->cuModuleLoadData(&convert->module, tsc_convert_ptx);

    if (result == TSI_CU_SUCCESS)
        result = cuda->cuModuleGetFunction(&convert->to_16, convert->module, "tsocket_convert_16");
    if (result == TSI_CU_SUCCESS)
        result = cuda->cuModuleGetFunction(&convert->to_32, convert->module, "tsocket_convert_32");
    return result == TSI_CU_SUCCESS ? TSOCKET_OK : tsi_cuda_fail(cuda, result, "the kernels cannot be loaded");
}

int tsc_convert_gpu_open(struct tsc_gpu *gpu, struct tsc_convert_gpu **convert_out)
{
    const struct tsi_device *device = tsc_gpu_device(gpu);
    struct tsc_convert_gpu *convert = calloc(1, sizeof(*convert));
    int rc;

    if (convert == NULL)
        return tsi_fail(TSOCKET_ENOMEM, "no memory for a conversion");
    convert->gpu = gpu;
    rc = tsi_device_enter(device);
    if (rc == TSOCKET_OK) {
        rc = load(convert);
        tsi_device_leave(device);
    }
    if (rc == TSOCKET_OK)
        *convert_out = convert;
    else
        tsc_convert_gpu_close(convert);
    return rc;
}

void tsc_convert_gpu_close(struct tsc_convert_gpu *convert)
{
    const struct tsi_device *device;

    if (convert == NULL)
        return;
    for (unsigned i = 0; i < convert->n_kept; i++)
        tsc_gpu_free(convert->gpu, convert->kept[i].table);
    device = tsc_gpu_device(convert->gpu);
    if (convert->module != NULL && tsi_device_enter(device) == TSOCKET_OK) {
        device->cuda.cuModuleUnload(convert->module);
        tsi_device_leave(device);
    }
    free(convert);
}

/* --- tables */

static bool is_same(const struct tsocket_conversion *a, const struct tsocket_conversion *b)
{
    size_t bytes = a->channels * sizeof(a->mean[0]);

    return a->dtype == b->dtype && a->channels == b->channels && memcmp(a->mean, b->mean, bytes) == 0 &&
           memcmp(a->std, b->std, bytes) == 0;
}

static int upload(struct tsc_convert_gpu *convert, const struct tsocket_conversion *conversion, uint64_t *address_out)
{
    struct tsi_norm norm;
    uint64_t address = 0;
    int rc = tsc_gpu_alloc(convert->gpu, sizeof(norm.bits), &address);

    if (rc != TSOCKET_OK)
        return rc;
    tsc_convert_norm(conversion, &norm);
    rc = tsc_gpu_copy_in(convert->gpu, address, norm.bits, sizeof(norm.bits));
    if (rc == TSOCKET_OK)
        rc = tsc_gpu_finish(convert->gpu);
    if (rc == TSOCKET_OK)
        *address_out = address;
    else
        tsc_gpu_free(convert->gpu, address);
    return rc;
}

static int find_table(struct tsc_convert_gpu *convert, const struct tsocket_conversion *conversion,
                      uint64_t *address_out)
{
    struct kept *kept = convert->kept;
    int rc;

    while (kept < convert->kept + convert->n_kept && !is_same(&kept->conversion, conversion))
        kept++;
    if (kept == convert->kept + KEPT_MAX)
        return tsi_fail(TSOCKET_EINVAL, "more than %d different conversions on one handle", KEPT_MAX);
    if (kept == convert->kept + convert->n_kept) {
        rc = upload(convert, conversion, &kept->table);
        if (rc != TSOCKET_OK)
            return rc;
        kept->conversion = *conversion;
        convert->n_kept++;
    }
    *address_out = kept->table;
    return TSOCKET_OK;
}

/* --- one conversion */

int tsc_convert_gpu_run(struct tsc_convert_gpu *convert, const struct tsocket_conversion *conversion,
                        const struct tsocket_pick *pick, const struct tsc_convert_shape *shape, uint64_t from,
                        uint64_t to, void *stream)
{
    const struct tsi_device *device = tsc_gpu_device(convert->gpu);
    struct tsc_convert_shape told = *shape;
    uint64_t index = (uintptr_t)pick->index, flip = (uintptr_t)pick->flip, table;
    void *params[] = {&from,        &to,          &table,      &index,         &flip,
                      &told.images, &told.pixels, &told.width, &told.channels, &told.channels_first};
    int result, rc = find_table(convert, conversion, &table);

    if (rc == TSOCKET_OK)
        rc = tsi_device_enter(device);
    if (rc != TSOCKET_OK)
        return rc;
    result = device->cuda.cuLaunchKernel(
        conversion->dtype == TSOCKET_FLOAT32 ? convert->to_32 : convert->to_16, (told.pixels + THREADS - 1) / THREADS,
        told.images < ROWS_MAX ? told.images : ROWS_MAX, 1, THREADS, 1, 1, 0, stream, params, NULL);
    tsi_device_leave(device);
    return result == TSI_CU_SUCCESS ? TSOCKET_OK : tsi_cuda_fail(&device->cuda, result, "a conversion: cuLaunchKernel");
}
