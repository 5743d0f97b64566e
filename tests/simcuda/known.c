/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernels of this project as C functions, which run where a card would run their PTX. Those with arithmetic worth
 * speaking of share it with the device's compiler by a header.
 */
#include "sim.h"

#include <string.h>

#include "bench/read_kernel.h"
#include "consumer/convert_pixel.h"

static uint64_t address_of(const struct simcuda_launch *launch, unsigned param)
{
    return *(const uint64_t *)launch->params[param];
}

static uint32_t number_of(const struct simcuda_launch *launch, unsigned param)
{
    return *(const uint32_t *)launch->params[param];
}

/* --- tests/gpu/kernels.cu */

static void sum(struct simcuda_launch *launch)
{
    uint32_t n = number_of(launch, 1);
    const uint32_t *data = simcuda_at(launch, address_of(launch, 0), n * sizeof(*data), false);
    uint32_t *out = simcuda_at(launch, address_of(launch, 2), sizeof(*out), true);
    uint32_t total = 0;

    if (data == NULL || out == NULL)
        return;
    for (uint32_t i = 0; i < n; i++)
        total += data[i];
    *out = total;
}

static void store(struct simcuda_launch *launch)
{
    uint32_t *data = simcuda_at(launch, address_of(launch, 0), sizeof(*data), true);

    if (data != NULL)
        *data = number_of(launch, 1);
}

/* --- bench/read.cu */

static void read_all(struct simcuda_launch *launch)
{
    uint64_t words = *(const uint64_t *)launch->params[1];
    uint32_t threads = launch->grid[0] * launch->block[0];
    const uint32_t *data = simcuda_at(launch, address_of(launch, 0), words * sizeof(*data), false);
    uint32_t *out = simcuda_at(launch, address_of(launch, 2), threads * sizeof(*out), true);

    for (uint32_t thread = 0; data != NULL && out != NULL && thread < threads; thread++)
        out[thread] = bench_read_part(data, words, thread, threads);
}

/* --- src/consumer/convert.cu */

struct arguments {
    uint64_t address[5]; /* from, to, table, index, flip */
    struct tsc_convert_shape shape;
};

static struct arguments arguments_of(const struct simcuda_launch *launch)
{
    struct arguments arguments;

    for (int i = 0; i < 5; i++)
        arguments.address[i] = *(const uint64_t *)launch->params[i];
    arguments.shape = (struct tsc_convert_shape){.images = *(const uint32_t *)launch->params[5],
                                                 .pixels = *(const uint32_t *)launch->params[6],
                                                 .width = *(const uint32_t *)launch->params[7],
                                                 .channels = *(const uint32_t *)launch->params[8],
                                                 .channels_first = *(const uint32_t *)launch->params[9]};
    return arguments;
}

static void convert(struct simcuda_launch *launch, size_t element_bytes)
{
    struct arguments told = arguments_of(launch);
    const struct tsc_convert_shape *shape = &told.shape;
    size_t bytes = (size_t)shape->images * shape->pixels * shape->channels;
    const uint8_t *from = simcuda_at(launch, told.address[0], bytes, false);
    unsigned char *to = simcuda_at(launch, told.address[1], bytes * element_bytes, true);
    const uint32_t *table =
        simcuda_at(launch, told.address[2], shape->channels * TSC_CONVERT_VALUES * sizeof(*table), false);
    const uint32_t *index =
        told.address[3] != 0 ? simcuda_at(launch, told.address[3], shape->images * sizeof(*index), false) : NULL;
    const uint8_t *flip = told.address[4] != 0 ? simcuda_at(launch, told.address[4], shape->images, false) : NULL;

    if (from == NULL || to == NULL || table == NULL)
        return;
    for (uint32_t i = 0; i < shape->images * shape->pixels; i++) {
        uint32_t image = i / shape->pixels, pixel = i % shape->pixels;
        const uint8_t *at = from + tsc_convert_from(shape, index, flip, image, pixel) * shape->channels;

        for (uint32_t c = 0; c < shape->channels; c++)
            memcpy(to + tsc_convert_to(shape, image, pixel, c) * element_bytes, &table[c * TSC_CONVERT_VALUES + at[c]],
                   element_bytes); /* the low bytes come first */
    }
}

static void convert_16(struct simcuda_launch *launch)
{
    convert(launch, 2);
}

static void convert_32(struct simcuda_launch *launch)
{
    convert(launch, 4);
}

/* When the library is loaded: a test that wants another one registers it later. */
static __attribute__((constructor)) void register_all(void)
{
    static const size_t convert_bytes[] = {8, 8, 8, 8, 8, 4, 4, 4, 4, 4};

    simcuda_register("test_sum", sum, 3, (const size_t[]){8, 4, 8});
    simcuda_register("test_store", store, 2, (const size_t[]){8, 4});
    simcuda_register("bench_read", read_all, 3, (const size_t[]){8, 8, 8});
    simcuda_register("tsocket_convert_16", convert_16, 10, convert_bytes);
    simcuda_register("tsocket_convert_32", convert_32, 10, convert_bytes);
}
