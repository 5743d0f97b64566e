/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels of each kind of processor, bit for bit against the scalar ones, on random sizes and weights. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "producer/axis.h"
#include "producer/random.h"

enum {
    ROUNDS = 400,
};

static struct tsp_random random_numbers;

static uint32_t below(uint32_t bound)
{
    return (uint32_t)tsp_random_below(&random_numbers, bound);
}

/* A block of exactly `len` random bytes, at an odd address in one case of two: reads beyond it are found. */
static uint8_t *random_bytes(size_t len)
{
    uint8_t *bytes = malloc(len);
    assert_non_null(bytes);
    bool hard = below(2);
    for (size_t i = 0; i < len; i++)
        bytes[i] = hard ? (uint8_t)(below(2) * 255) : (uint8_t)below(256);
    return bytes;
}

/* A random box of a random picture. */
static void random_axis(struct tsp_axis *axis)
{
    uint32_t source = 1 + below(700), destination = 1 + below(300);
    double from = tsp_random_uniform(&random_numbers, 0, source * 0.9);
    double length = tsp_random_uniform(&random_numbers, 0.01, source - from);
    tsp_axis_set(axis, from, length, source, destination, below(2) ? TSP_BICUBIC : TSP_BILINEAR, below(2));
    assert_true(tsp_axis_prepare(axis, below(2)));
}

static void compare_squeeze(const struct tsp_kernels *kernels, const struct tsp_axis *axis)
{
    uint32_t n = (axis->destination + TSP_SQUEEZE_PIXELS - 1) / TSP_SQUEEZE_PIXELS * TSP_SQUEEZE_PIXELS;
    size_t room = (size_t)n * 3 + TSP_BEYOND, bytes = (size_t)axis->destination * 3;
    uint8_t *rows[TSP_SQUEEZE_ROWS], *made[TSP_SQUEEZE_ROWS], *expected[TSP_SQUEEZE_ROWS];
    const uint8_t *from[TSP_SQUEEZE_ROWS];
    for (int r = 0; r < TSP_SQUEEZE_ROWS; r++) {
        from[r] = rows[r] = random_bytes((size_t)axis->needed * 3 + TSP_BEYOND);
        made[r] = malloc(room);
        expected[r] = malloc(room);
    }
    tsp_kernels_at(0)->squeeze(&axis->weights, n, from, expected);
    kernels->squeeze(&axis->weights, n, from, made);
    for (int r = 0; r < TSP_SQUEEZE_ROWS; r++) {
        assert_memory_equal(made[r], expected[r], bytes);
        free(rows[r]);
        free(made[r]);
        free(expected[r]);
    }
}

static void compare_blend(const struct tsp_kernels *kernels, const struct tsp_axis *axis)
{
    enum {
        MARK = 0xa5
    };
    uint32_t i = below(axis->destination), count = axis->weights.taps[i].count;
    size_t n = 1 + below(800);
    const uint8_t **rows = malloc(count * sizeof *rows);
    for (uint32_t k = 0; k < count; k++)
        rows[k] = random_bytes(n + TSP_BEYOND);
    uint8_t *made = malloc(n + 1), *expected = malloc(n);
    made[n] = MARK;
    tsp_kernels_at(0)->blend(&axis->weights, i, rows, expected, n);
    kernels->blend(&axis->weights, i, rows, made, n);
    assert_memory_equal(made, expected, n);
    assert_int_equal(made[n], MARK);
    for (uint32_t k = 0; k < count; k++)
        free((void *)(uintptr_t)rows[k]);
    free(rows);
    free(made);
    free(expected);
}

static void all_kernels_have_the_bits_of_the_scalar_ones(void **state)
{
    (void)state;
    for (size_t number = 1; tsp_kernels_at(number); number++) {
        struct tsp_axis axis = {0};
        print_message("%s\n", tsp_kernels_at(number)->name);
        tsp_random_init(&random_numbers, 1, 0, 0, 0, TSP_RANDOM_CROP);
        for (int i = 0; i < ROUNDS; i++) {
            random_axis(&axis);
            compare_squeeze(tsp_kernels_at(number), &axis);
            compare_blend(tsp_kernels_at(number), &axis);
        }
        tsp_axis_fini(&axis);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_kernels_have_the_bits_of_the_scalar_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
