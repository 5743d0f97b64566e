/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "consumer/npy.h"

static const struct tsocket_field image = {
    .name = "image", .dtype = TSOCKET_UINT8, .ndim = 3, .shape = {8, 8, 3}, .sample_bytes = 192};
static const struct tsocket_field label = {.name = "label", .dtype = TSOCKET_INT64, .sample_bytes = 8};

static void assert_header(const struct tsocket_field *field, uint64_t count, const char *text)
{
    char header[TSC_NPY_HEADER_MAX];
    size_t len = tsc_npy_header(field, count, header);
    assert_int_equal(len % 64, 0);
    assert_memory_equal(header, "\x93NUMPY\x01\x00", 8);
    assert_int_equal((unsigned char)header[8] + 256 * (unsigned char)header[9], len - 10);
    assert_memory_equal(header + 10, text, strlen(text));
    for (size_t i = 10 + strlen(text); i < len - 1; i++)
        assert_int_equal(header[i], ' ');
    assert_int_equal(header[len - 1], '\n');
}

static void a_header_is_what_numpy_writes(void **state)
{
    (void)state;
    struct tsocket_field deep = {.dtype = TSOCKET_FLOAT32, .ndim = TSOCKET_NDIM_MAX};
    for (int i = 0; i < TSOCKET_NDIM_MAX; i++)
        deep.shape[i] = UINT64_MAX;
    assert_header(&image, 7, "{'descr': '|u1', 'fortran_order': False, 'shape': (7, 8, 8, 3), }");
    assert_header(&label, 7, "{'descr': '<i8', 'fortran_order': False, 'shape': (7,), }");
    assert_header(&deep, UINT64_MAX,
                  "{'descr': '<f4', 'fortran_order': False, 'shape': (18446744073709551615, "
                  "18446744073709551615, 18446744073709551615, 18446744073709551615, "
                  "18446744073709551615, 18446744073709551615, 18446744073709551615), }");
}

static void numpy_has_no_bfloat16_and_gets_its_bits(void **state)
{
    (void)state;
    struct tsocket_field field = {.dtype = TSOCKET_BFLOAT16, .ndim = 1, .shape = {4}, .sample_bytes = 8};
    assert_header(&field, 7, "{'descr': '<u2', 'fortran_order': False, 'shape': (7, 4), }");
}

static void a_type_that_is_not_known_is_refused(void **state)
{
    (void)state;
    char header[TSC_NPY_HEADER_MAX], error[256];
    struct tsocket_field field = {.name = "x", .dtype = (enum tsocket_dtype)99, .sample_bytes = 2};
    assert_int_equal(tsc_npy_header(&field, 1, header), 0);
    assert_int_equal(tsc_npy_write("/nowhere/x.npy", &field, 1, "ab", error, sizeof(error)), TSOCKET_EINVAL);
    assert_string_equal(error, "/nowhere/x.npy: dtype 99 of field x is not known");
}

static void a_file_is_header_and_data(void **state)
{
    (void)state;
    const int64_t labels[3] = {3, -1, 7};
    char path[] = "/tmp/test_npy_XXXXXX", error[256], header[TSC_NPY_HEADER_MAX], content[1024];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(tsc_npy_write(path, &label, 3, labels, error, sizeof(error)), TSOCKET_OK);
    size_t header_len = tsc_npy_header(&label, 3, header);
    ssize_t len = read(fd, content, sizeof(content));
    close(fd);
    unlink(path);
    assert_int_equal(len, header_len + sizeof(labels));
    assert_memory_equal(content, header, header_len);
    assert_memory_equal(content + header_len, labels, sizeof(labels));
}

static void a_full_disk_is_an_error(void **state)
{
    (void)state;
    char error[256];
    const int64_t labels[3] = {3, -1, 7};
    if (access("/dev/full", W_OK) != 0)
        skip();
    assert_int_equal(tsc_npy_write("/dev/full", &label, 3, labels, error, sizeof(error)), TSOCKET_ESYSTEM);
    assert_string_equal(error, "/dev/full: No space left on device");
    assert_int_equal(tsc_npy_write("/nowhere/x.npy", &label, 3, labels, error, sizeof(error)), TSOCKET_ESYSTEM);
    assert_string_equal(error, "/nowhere/x.npy: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_header_is_what_numpy_writes),
        cmocka_unit_test(numpy_has_no_bfloat16_and_gets_its_bits),
        cmocka_unit_test(a_type_that_is_not_known_is_refused),
        cmocka_unit_test(a_file_is_header_and_data),
        cmocka_unit_test(a_full_disk_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
