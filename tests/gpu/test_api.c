/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's table: how it is filled, and what is said where it cannot be. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include <tsocket/tsocket.h>

#include "ipc/cuda_api.h"
#include "simcuda.h"

static const char *simulated;

static void says(const char *text)
{
    if (strstr(tsocket_last_error(), text) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", tsocket_last_error(), text);
}

static int restore(void **state)
{
    (void)state;
    return setenv("TSOCKET_LIBCUDA", simulated, 1);
}

static void a_machine_without_a_driver_is_told_so(void **state)
{
    struct tsi_cuda cuda;

    (void)state;
    setenv("TSOCKET_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    assert_int_equal(tsi_cuda_load(&cuda), TSOCKET_ENOTFOUND);
    says("there is no CUDA driver: /nonexistent/libcuda.so.1");
}

static void a_library_that_is_no_driver_is_told_so(void **state)
{
    struct tsi_cuda cuda;

    (void)state;
    setenv("TSOCKET_LIBCUDA", "libm.so.6", 1);
    assert_int_equal(tsi_cuda_load(&cuda), TSOCKET_ENOTFOUND);
    says("libm.so.6 has no cuInit");
}

static void a_driver_that_does_not_start_is_told_with_the_reason(void **state)
{
    struct tsi_cuda cuda;

    (void)state;
    simcuda_fail("cuInit", 1, TSI_CU_ERROR_OPERATING_SYSTEM);
    assert_int_equal(tsi_cuda_load(&cuda), TSOCKET_EDEVICE);
    says("cuInit: CUDA_ERROR_OPERATING_SYSTEM (304)");
    simcuda_fail("cuInit", 1, TSI_CU_ERROR_NO_DEVICE);
    assert_int_equal(tsi_cuda_load(&cuda), TSOCKET_ENOTFOUND);
    says("finds no device");
    simcuda_fail("cuDeviceGetCount", 1, TSI_CU_ERROR_UNKNOWN);
    assert_int_equal(tsi_cuda_load(&cuda), TSOCKET_EDEVICE);
    says("cuDeviceGetCount: CUDA_ERROR_UNKNOWN (999)");
}

static void the_table_is_whole(void **state)
{
    struct tsi_cuda cuda;

    (void)state;
    assert_int_equal(tsi_cuda_load(&cuda), TSOCKET_OK);
    assert_true(tsi_cuda_has_vmm(&cuda));
    cuda.cuMemMap = NULL;
    assert_false(tsi_cuda_has_vmm(&cuda));
}

static void an_error_has_the_drivers_name(void **state)
{
    struct tsi_cuda cuda;

    (void)state;
    assert_int_equal(tsi_cuda_load(&cuda), TSOCKET_OK);
    assert_int_equal(tsi_cuda_fail(&cuda, TSI_CU_ERROR_OUT_OF_MEMORY, "a ring of %d bytes", 7), TSOCKET_ENOMEM);
    assert_string_equal(tsocket_last_error(), "a ring of 7 bytes: CUDA_ERROR_OUT_OF_MEMORY (2)");
    assert_int_equal(tsi_cuda_fail(&cuda, 12345, "x"), TSOCKET_EDEVICE);
    assert_string_equal(tsocket_last_error(), "x: an unknown error (12345)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_machine_without_a_driver_is_told_so, restore),
        cmocka_unit_test_teardown(a_library_that_is_no_driver_is_told_so, restore),
        cmocka_unit_test(a_driver_that_does_not_start_is_told_with_the_reason),
        cmocka_unit_test(the_table_is_whole),
        cmocka_unit_test(an_error_has_the_drivers_name),
    };

    simulated = getenv("TSOCKET_LIBCUDA");
    assert_non_null(simulated);
    simulated = strdup(simulated); /* setenv lets the old one go */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
