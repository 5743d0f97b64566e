/* SPDX-License-Identifier: Apache-2.0 */
/* The copier puts the right bytes into rings of every shape; for both drivers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <tsocket/tsocket.h>

#include "stream.h"

enum {
    SAMPLES = 700, /* many times around each of the rings below */
};

static int run_shape(struct shape shape)
{
    struct stream stream;
    int rc = stream_open(&stream, &shape);

    if (rc == TSOCKET_OK) {
        rc = stream_run(&stream, SAMPLES);
        if (rc == TSOCKET_OK)
            assert_int_equal(tsp_copier_done(stream.copier), SAMPLES);
        stream_close(&stream);
    }
    if (rc != TSOCKET_OK)
        print_error("%s\n", rc == TSOCKET_EBAD_SAMPLE ? "a window has wrong bytes" : tsocket_last_error());
    return rc;
}

static void rings_of_every_shape_are_filled(void **state)
{
    static const struct shape shapes[] = {
        {.capacity = 64, .mirror = 16, .chunk = 8, .staging = 32, .n_devices = 1}, /* everything divides */
        {.capacity = 37, .mirror = 9, .chunk = 5, .staging = 11, .n_devices = 1},  /* nothing does */
        {.capacity = 37, .mirror = 37, .chunk = 11, .staging = 11, .n_devices = 1},
        {.capacity = 37, .mirror = 1, .chunk = 1, .staging = 1, .n_devices = 1},
        {.capacity = 1, .mirror = 1, .chunk = 1, .staging = 1, .n_devices = 1},
        {.capacity = 13, .mirror = 13, .chunk = 13, .staging = 13, .n_devices = 1},
        {.capacity = 37, .mirror = 9, .chunk = 5, .staging = 37, .host = true, .n_devices = 1},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        assert_int_equal(run_shape(shapes[i]), TSOCKET_OK);
}

static void a_chunk_that_is_not_full_waits_for_a_push_that_asks(void **state)
{
    static const struct shape shape = {.capacity = 40, .mirror = 8, .chunk = 10, .staging = 30, .n_devices = 1};
    struct stream stream;

    (void)state;
    assert_int_equal(stream_open(&stream, &shape), TSOCKET_OK);
    stream_fill(&stream, 13, false);
    assert_int_equal(stream_wait(&stream, 10), TSOCKET_OK);
    assert_int_equal(tsp_copier_done(stream.copier), 10);
    assert_int_equal(tsp_copier_limit(stream.copier), 40);
    tsp_copier_push(stream.copier, 13, true);
    assert_int_equal(stream_wait(&stream, 13), TSOCKET_OK);
    assert_true(stream_window_is_right(&stream, 5, 8));
    stream_close(&stream);
}

static void it_can_go_on_elsewhere(void **state)
{
    static const struct shape shape = {.capacity = 37, .mirror = 9, .chunk = 5, .staging = 11, .n_devices = 1};
    static const uint64_t places[] = {UINT64_C(1) << 53, 12, UINT64_MAX / 2 - 3};
    struct stream stream;

    (void)state;
    assert_int_equal(stream_open(&stream, &shape), TSOCKET_OK);
    assert_int_equal(stream_run(&stream, 100), TSOCKET_OK);
    for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
        tsp_copier_restart(stream.copier, places[i]);
        stream.head = stream.floor = places[i];
        assert_int_equal(stream_run(&stream, 100), TSOCKET_OK);
        assert_int_equal(tsp_copier_done(stream.copier), places[i] + 100);
    }
    stream_close(&stream);
}

static void numbers_that_do_not_fit_are_refused(void **state)
{
    static const struct shape shapes[] = {
        {.capacity = 10, .mirror = 2, .chunk = 0, .staging = 5, .n_devices = 1},
        {.capacity = 10, .mirror = 2, .chunk = 6, .staging = 5, .n_devices = 1},
        {.capacity = 10, .mirror = 2, .chunk = 5, .staging = 11, .n_devices = 1},
        {.capacity = 10, .mirror = 2, .chunk = 5, .staging = 5, .n_devices = 0},
    };
    struct stream stream;

    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++)
        assert_int_equal(stream_open(&stream, &shapes[i]), TSOCKET_EINVAL);
}

static void a_chunk_is_large_but_a_small_part_of_the_ring(void **state)
{
    struct tsi_layout layout = {.sample_bytes = 150528, .capacity = 1024};

    (void)state;
    assert_int_equal(tsp_copier_chunk(&layout), 28); /* 4 MiB */
    layout.capacity = 100;
    assert_int_equal(tsp_copier_chunk(&layout), 12);
    layout.capacity = 3;
    assert_int_equal(tsp_copier_chunk(&layout), 1);
    layout = (struct tsi_layout){.sample_bytes = 1 << 30, .capacity = 64};
    assert_int_equal(tsp_copier_chunk(&layout), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rings_of_every_shape_are_filled),
        cmocka_unit_test(a_chunk_that_is_not_full_waits_for_a_push_that_asks),
        cmocka_unit_test(it_can_go_on_elsewhere),
        cmocka_unit_test(numbers_that_do_not_fit_are_refused),
        cmocka_unit_test(a_chunk_is_large_but_a_small_part_of_the_ring),
    };
    struct tsi_device device;
    int rc = tsi_device_open("cuda", &device);

    if (rc != TSOCKET_OK) {
        print_error("%s\n", tsocket_last_error());
        return rc == TSOCKET_ENOTFOUND ? 77 : 1;
    }
    tsi_device_close(&device);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
