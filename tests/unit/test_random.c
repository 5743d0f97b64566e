/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>

#include "producer/random.h"

/* Philox4x32-10 as published with Random123 (kat_vectors). */
static void philox_gives_the_published_numbers(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], block[4];
    } vectors[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++) {
        uint32_t block[4];
        tsp_random_philox(vectors[i].counter, vectors[i].key, block);
        assert_memory_equal(block, vectors[i].block, sizeof block);
    }
}

static void draws_are_a_function_of_their_purpose(void **state)
{
    (void)state;
    static const struct {
        uint64_t seed, epoch, sample;
        uint32_t view;
        enum tsp_random_op op;
    } purposes[] = {
        {1, 2, 3, 4, TSP_RANDOM_CROP}, {2, 2, 3, 4, TSP_RANDOM_CROP}, {UINT64_C(1) << 32 | 1, 2, 3, 4, TSP_RANDOM_CROP},
        {1, 3, 3, 4, TSP_RANDOM_CROP}, {1, 2, 4, 4, TSP_RANDOM_CROP}, {1, 2, UINT64_C(1) << 32 | 3, 4, TSP_RANDOM_CROP},
        {1, 2, 3, 5, TSP_RANDOM_CROP}, {1, 2, 3, 4, TSP_RANDOM_FLIP},
    };
    enum {
        N = sizeof purposes / sizeof purposes[0]
    };
    uint64_t first[N];
    for (size_t i = 0; i < N; i++) {
        struct tsp_random random, again;
        tsp_random_init(&random, purposes[i].seed, purposes[i].epoch, purposes[i].sample, purposes[i].view,
                        purposes[i].op);
        again = random;
        first[i] = tsp_random_u64(&random);
        assert_int_equal(first[i], tsp_random_u64(&again));
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(first[i], first[k]);
    }
}

static void draws_do_not_repeat(void **state)
{
    (void)state;
    struct tsp_random random;
    tsp_random_init(&random, 0, 0, 0, 0, TSP_RANDOM_CROP);
    uint64_t seen[64];
    for (size_t i = 0; i < 64; i++) {
        seen[i] = tsp_random_u64(&random);
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(seen[i], seen[k]);
    }
}

static void below_is_even(void **state)
{
    (void)state;
    enum {
        BOUND = 7,
        DRAWS = 70000
    };
    uint32_t counts[BOUND] = {0};
    struct tsp_random random;
    tsp_random_init(&random, 5, 0, 0, 0, TSP_RANDOM_CROP);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t value = tsp_random_below(&random, BOUND);
        assert_true(value < BOUND);
        counts[value]++;
    }
    for (int i = 0; i < BOUND; i++)
        assert_in_range(counts[i], DRAWS / BOUND - 400, DRAWS / BOUND + 400); /* 4 standard deviations */
    assert_int_equal(tsp_random_below(&random, 1), 0);
}

static void uniform_stays_inside_and_is_centred(void **state)
{
    (void)state;
    struct tsp_random random;
    tsp_random_init(&random, 6, 0, 0, 0, TSP_RANDOM_CROP);
    double sum = 0;
    for (int i = 0; i < 100000; i++) {
        double value = tsp_random_uniform(&random, -1, 3);
        assert_true(value >= -1 && value < 3);
        sum += value;
    }
    assert_true(sum / 100000 > 0.98 && sum / 100000 < 1.02);
    assert_true(tsp_random_uniform(&random, 2, 2) == 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(philox_gives_the_published_numbers),
        cmocka_unit_test(draws_are_a_function_of_their_purpose),
        cmocka_unit_test(draws_do_not_repeat),
        cmocka_unit_test(below_is_even),
        cmocka_unit_test(uniform_stays_inside_and_is_centred),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
