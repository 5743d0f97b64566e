/* SPDX-License-Identifier: Apache-2.0 */
/* The copier as the simulated driver sees it: what it asks for, several devices, what fails, what a bug looks like. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tsocket/tsocket.h>

#include "peer.h"
#include "simcuda.h"
#include "stream.h"

enum {
    FIELDS = 3,
    CALLS_MAX = 400, /* more than a short life makes */
};

/* The linker puts these in the place of the allocations in our own code, the copier's threads included. */
static atomic_ulong allocations;
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t n, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t n, size_t bytes);

void *__wrap_malloc(size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_malloc(bytes);
}

void *__wrap_calloc(size_t n, size_t bytes)
{
    atomic_fetch_add(&allocations, 1);
    return __real_calloc(n, bytes);
}

static const struct shape two_devices = {.capacity = 37, .mirror = 9, .chunk = 5, .staging = 11, .n_devices = 2};

static void all_devices_have_the_same(void **state)
{
    struct stream stream;

    (void)state;
    assert_int_equal(stream_open(&stream, &two_devices), TSOCKET_OK);
    assert_int_equal(stream_run(&stream, 700), TSOCKET_OK);
    stream_close(&stream);
    assert_int_equal(simcuda_live(), 0);
    assert_int_equal(simcuda_violations(SIMCUDA_EARLY_REUSE), 0);
    assert_int_equal(simcuda_violations(SIMCUDA_BAD_ADDRESS), 0);
}

/* Driver calls of one kind for `n` more samples, which are one chunk. */
static unsigned long calls_of(struct stream *stream, const char *function, uint64_t n)
{
    unsigned long before = simcuda_calls(function);

    stream_fill(stream, stream->head + n, true);
    assert_int_equal(stream_wait(stream, stream->head), TSOCKET_OK);
    stream->floor = stream->head;
    return simcuda_calls(function) - before;
}

static void a_chunk_costs_a_copy_per_field_and_run_and_one_event(void **state)
{
    static const struct shape shape = {.capacity = 40, .mirror = 10, .chunk = 10, .staging = 20, .n_devices = 1};
    unsigned long pageable = simcuda_pageable_copies(), allocated;
    struct stream stream;

    (void)state;
    assert_int_equal(stream_open(&stream, &shape), TSOCKET_OK);
    allocated = atomic_load(&allocations);
    assert_true(allocated > 0);
    assert_int_equal(calls_of(&stream, "cuMemcpyHtoDAsync_v2", 10), FIELDS);
    assert_int_equal(calls_of(&stream, "cuMemcpyDtoDAsync_v2", 10), 0); /* nothing in the mirror */
    assert_int_equal(calls_of(&stream, "cuEventRecord", 10), 1);
    assert_int_equal(calls_of(&stream, "cuEventSynchronize", 10), 1);
    assert_int_equal(calls_of(&stream, "cuMemcpyDtoDAsync_v2", 10), FIELDS); /* slots 0 to 9 again */
    assert_int_equal(calls_of(&stream, "*", 10), FIELDS + 2);                /* and nothing else */
    assert_int_equal(calls_of(&stream, "cuMemcpyHtoDAsync_v2", 5), FIELDS);
    assert_int_equal(calls_of(&stream, "cuMemcpyHtoDAsync_v2", 10), FIELDS);
    assert_int_equal(calls_of(&stream, "cuMemcpyHtoDAsync_v2", 10), 2 * FIELDS); /* across staging's end */
    assert_int_equal(simcuda_pageable_copies(), pageable);
    assert_int_equal(atomic_load(&allocations), allocated);
    stream_close(&stream);
}

static void a_sample_is_done_when_the_slowest_device_has_it(void **state)
{
    struct stream stream;

    (void)state;
    assert_int_equal(stream_open(&stream, &two_devices), TSOCKET_OK);
    simcuda_hold(true);
    stream_fill(&stream, 11, true);
    assert_int_equal(tsp_copier_done(stream.copier), 0);
    assert_int_equal(tsp_copier_limit(stream.copier), 11);
    simcuda_hold(false);
    assert_int_equal(stream_wait(&stream, 11), TSOCKET_OK);
    assert_int_equal(tsp_copier_limit(stream.copier), 22);
    stream_close(&stream);
}

/* --- what fails */

static int short_life(char *why, size_t why_len)
{
    struct stream stream;
    int rc = stream_open(&stream, &two_devices);

    if (rc != TSOCKET_OK) {
        snprintf(why, why_len, "%s", tsocket_last_error());
        return rc;
    }
    stream_fill(&stream, 11, true);
    rc = stream_wait(&stream, 11);
    assert_int_equal(stream.failures, rc != TSOCKET_OK);
    snprintf(why, why_len, "%s", stream.why);
    stream_close(&stream);
    return rc;
}

/*
 * The k-th call fails, for every k. A context that cannot be made current keeps what needs it to be given back; all
 * else is gone.
 */
static void every_failing_call_is_told_and_undone(void **state)
{
    char why[256];
    unsigned long told = 0, left = 0, calls = simcuda_calls("*");

    (void)state;
    assert_int_equal(short_life(why, sizeof(why)), TSOCKET_OK);
    calls = simcuda_calls("*") - calls;
    assert_in_range(calls, 50, CALLS_MAX);
    for (unsigned long k = 1; k <= calls; k++) {
        memset(why, 0, sizeof(why));
        simcuda_fail("*", k, TSI_CU_ERROR_LAUNCH_FAILED);
        if (short_life(why, sizeof(why)) != TSOCKET_OK) {
            if (strstr(why, "CUDA_ERROR_LAUNCH_FAILED (719)") == NULL)
                fail_msg("%s, call %lu: \"%s\" does not name the error", simcuda_failed(), k, why);
            told++;
        }
        if (simcuda_live() > left + (strcmp(simcuda_failed(), "cuCtxPushCurrent_v2") == 0))
            fail_msg("%s, call %lu of %lu: %lu things are left", simcuda_failed(), k, calls, simcuda_live() - left);
        left = simcuda_live();
    }
    simcuda_fail("*", 0, TSI_CU_SUCCESS);
    assert_true(told > calls / 2);
}

/* --- in processes of their own, whose context breaks */

static int card_breaks(int socket)
{
    struct stream stream;

    (void)socket;
    if (stream_open(&stream, &two_devices) != TSOCKET_OK)
        return 2;
    simcuda_hold(true);
    stream_fill(&stream, 11, true);
    simcuda_break(1, TSI_CU_ERROR_ECC_UNCORRECTABLE); /* while the copies run */
    if (stream_wait(&stream, 11) != TSOCKET_EDEVICE || stream.failures != 1)
        return 3;
    if (strstr(stream.why, "CUDA_ERROR_ECC_UNCORRECTABLE (214)") == NULL)
        return 4;
    simcuda_hold(false);
    stream_close(&stream);
    return 0;
}

static void a_card_that_breaks_ends_the_stream_with_the_reason(void **state)
{
    struct peer peer;

    (void)state;
    peer_start(&peer, "card_breaks");
    assert_int_equal(peer_wait(&peer), 0);
}

/* A producer that fills beyond the limit: the bytes on their way are others then. */
static void filling_beyond_the_limit_is_noticed(void **state)
{
    static const struct shape shape = {.capacity = 40, .mirror = 10, .chunk = 5, .staging = 10, .n_devices = 1};
    unsigned long before = simcuda_violations(SIMCUDA_EARLY_REUSE);
    struct stream stream;

    (void)state;
    assert_int_equal(stream_open(&stream, &shape), TSOCKET_OK);
    simcuda_hold(true);
    stream_fill(&stream, 10, true);
    while (simcuda_pending() < 2 * (2 * FIELDS + 1)) /* two chunks, with mirror and event */
        ;
    memset(tsp_copier_at(stream.copier, 0, 10), 0xee, 8);
    simcuda_hold(false);
    assert_int_equal(stream_wait(&stream, 10), TSOCKET_OK);
    assert_int_equal(simcuda_violations(SIMCUDA_EARLY_REUSE), before + 1);
    assert_false(stream_window_is_right(&stream, 0, 10));
    stream_close(&stream);
}

int main(int argc, char **argv)
{
    static const struct peer_role roles[] = {{"card_breaks", card_breaks}};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_devices_have_the_same),
        cmocka_unit_test(a_chunk_costs_a_copy_per_field_and_run_and_one_event),
        cmocka_unit_test(a_sample_is_done_when_the_slowest_device_has_it),
        cmocka_unit_test(a_card_that_breaks_ends_the_stream_with_the_reason),
        cmocka_unit_test(filling_beyond_the_limit_is_noticed),
        cmocka_unit_test(every_failing_call_is_told_and_undone),
    };

    setenv("SIMCUDA_DEVICES", "2", 1);
    peer_main(argc, argv, roles, 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
