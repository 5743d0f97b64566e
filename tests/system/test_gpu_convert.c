/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conversions on a GPU have the bits of those on the host; for both drivers. On the simulated one a C function with the
 * same arithmetic runs in place of convert.ptx: what it shows is everything around the kernel.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <tsocket/convert.h>
#include <tsocket/producer.h>

#include "ipc/device.h"
#include "rig.h"

enum {
    ROWS = 5,
    WIDTH = 7,
    CHANNELS = 3,
    IMAGES = 4,
    PIXELS = ROWS * WIDTH,
    ELEMENTS = IMAGES * PIXELS * CHANNELS,
};

/* --- a producer of pictures, all in the ring before anybody reads */

static struct tsocket_producer *produce(void)
{
    static const struct tsocket_field field = {
        .name = "image", .dtype = TSOCKET_UINT8, .ndim = 3, .shape = {ROWS, WIDTH, CHANNELS}};
    struct tsocket_producer_options options;
    struct tsocket_stream_options stream;
    struct tsocket_producer *producer;
    struct tsocket_claim claim;

    tsocket_producer_options_init(&options);
    options.name = RIG_NAME;
    tsocket_stream_options_init(&stream);
    stream.fields = &field;
    stream.n_fields = 1;
    stream.epoch_samples = stream.capacity = stream.max_batch = IMAGES;
    stream.resident = true;
    stream.device = "cuda,host";
    assert_int_equal(tsocket_producer_open(&options, &producer), TSOCKET_OK);
    assert_int_equal(tsocket_producer_add_stream(producer, &stream, NULL), TSOCKET_OK);
    assert_int_equal(tsocket_producer_start(producer), TSOCKET_OK);
    for (int i = 0; i < IMAGES; i++) {
        assert_int_equal(tsocket_producer_claim(producer, -1, &claim), TSOCKET_OK);
        for (uint64_t k = 0; k < PIXELS * CHANNELS; k++)
            ((uint8_t *)claim.data[0])[k] = (uint8_t)(claim.ordinal * 101 + k * 37 + k / 11);
        tsocket_producer_commit(producer, &claim);
    }
    return producer;
}

static uint64_t put(const struct tsi_cuda *cuda, const void *data, size_t bytes)
{
    uint64_t address;

    assert_int_equal(cuda->cuMemAlloc(&address, bytes), TSI_CU_SUCCESS);
    assert_int_equal(cuda->cuMemcpyHtoDAsync(address, data, bytes, NULL), TSI_CU_SUCCESS);
    assert_int_equal(cuda->cuStreamSynchronize(NULL), TSI_CU_SUCCESS);
    return address;
}

struct fixture {
    struct tsocket_producer *producer;
    struct tsocket *ts;
    struct tsocket_batch batch;
    struct tsi_device device;
    uint8_t pixels[ELEMENTS];
};

static void open_all(struct fixture *fixture, const char *where)
{
    struct tsocket_options options;

    rig_need_device();
    rig_folder_make();
    fixture->producer = produce();
    tsocket_options_init(&options);
    options.device = where;
    options.hold = 1;
    assert_int_equal(tsocket_open(RIG_NAME, IMAGES, &options, &fixture->ts), TSOCKET_OK);
    assert_int_equal(tsocket_next(fixture->ts, 20000, &fixture->batch), TSOCKET_OK);
    assert_int_equal(tsocket_copy(fixture->ts, &fixture->batch, 0, fixture->pixels), TSOCKET_OK);
    assert_int_equal(tsi_device_open("cuda", &fixture->device), TSOCKET_OK);
    assert_int_equal(tsi_device_enter(&fixture->device), TSOCKET_OK);
}

static void close_all(struct fixture *fixture)
{
    tsi_device_leave(&fixture->device);
    tsi_device_close(&fixture->device);
    tsocket_close(fixture->ts);
    tsocket_producer_close(fixture->producer);
    rig_folder_check_and_remove();
}

static void expect_same(struct fixture *fixture, const struct tsocket_conversion *conversion,
                        const struct tsocket_pick *host, const struct tsocket_pick *there, uint64_t to)
{
    size_t bytes = ELEMENTS * tsocket_dtype_bytes(conversion->dtype);
    unsigned char expected[ELEMENTS * 4], got[ELEMENTS * 4];

    assert_int_equal(tsocket_convert_picked(conversion, host, fixture->pixels, IMAGES, PIXELS, expected), TSOCKET_OK);
    assert_int_equal(tsocket_convert_on(fixture->ts, conversion, there, fixture->batch.data[0], IMAGES, PIXELS,
                                        (void *)(uintptr_t)to, NULL),
                     TSOCKET_OK);
    assert_int_equal(fixture->device.cuda.cuMemcpyDtoHAsync(got, to, bytes, NULL), TSI_CU_SUCCESS);
    assert_int_equal(fixture->device.cuda.cuStreamSynchronize(NULL), TSI_CU_SUCCESS);
    assert_memory_equal(got, expected, bytes);
}

/* --- tests */

static void a_conversion_on_the_gpu_has_the_bits_of_the_hosts(void **state)
{
    static const enum tsocket_dtype dtypes[] = {TSOCKET_FLOAT32, TSOCKET_FLOAT16, TSOCKET_BFLOAT16};
    static const uint32_t index[IMAGES] = {2, 0, 0, 3};
    static const uint8_t flip[IMAGES] = {0, 1, 0, 1};
    static const unsigned char nothing[ELEMENTS * 4];
    struct tsocket_conversion conversion;
    struct tsocket_pick host[] = {{.index = NULL}, {.index = index, .flip = flip, .width = WIDTH}};
    struct tsocket_pick there[2] = {{.index = NULL}, {.width = WIDTH}};
    struct fixture fixture;
    uint64_t to;

    (void)state;
    open_all(&fixture, "cuda");
    there[1].index = (const uint32_t *)(uintptr_t)put(&fixture.device.cuda, index, sizeof(index));
    there[1].flip = (const uint8_t *)(uintptr_t)put(&fixture.device.cuda, flip, sizeof(flip));
    to = put(&fixture.device.cuda, nothing, sizeof(nothing));
    tsocket_conversion_init(&conversion);
    memcpy(conversion.mean, (float[]){0.485f, 0.456f, 0.406f}, 3 * sizeof(float));
    memcpy(conversion.std, (float[]){0.229f, 0.224f, 0.225f}, 3 * sizeof(float));
    for (int i = 0; i < 3 * 2 * 2; i++) {
        conversion.dtype = dtypes[i / 4];
        conversion.channels_first = i / 2 % 2 == 1;
        expect_same(&fixture, &conversion, &host[i % 2], &there[i % 2], to);
    }
    fixture.device.cuda.cuMemFree((uintptr_t)there[1].index);
    fixture.device.cuda.cuMemFree((uintptr_t)there[1].flip);
    fixture.device.cuda.cuMemFree(to);
    close_all(&fixture);
}

static void what_cannot_be_converted_is_said(void **state)
{
    struct tsocket_pick pick = {.flip = (const uint8_t[IMAGES]){1}, .width = WIDTH + 1};
    struct tsocket_conversion conversion;
    struct fixture fixture;
    float out[ELEMENTS];

    (void)state;
    tsocket_conversion_init(&conversion);
    open_all(&fixture, "host");
    assert_int_equal(tsocket_convert_picked(&conversion, &pick, fixture.pixels, IMAGES, PIXELS, out), TSOCKET_EINVAL);
    assert_int_equal(
        tsocket_convert_on(fixture.ts, &conversion, NULL, fixture.batch.data[0], IMAGES, PIXELS, out, NULL),
        TSOCKET_EINVAL);
    assert_non_null(strstr(tsocket_last_error(), "host memory"));
    close_all(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_conversion_on_the_gpu_has_the_bits_of_the_hosts),
        cmocka_unit_test(what_cannot_be_converted_is_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
