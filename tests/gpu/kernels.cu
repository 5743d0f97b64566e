/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests launch. ptx.sh makes kernels.ptx of this; tests/simcuda/known.c has the same functions.
 */
#define GLOBAL extern "C" __attribute__((global))

GLOBAL void test_sum(const unsigned *data, unsigned n, unsigned *out)
{
    unsigned sum = 0;

    for (unsigned i = 0; i < n; i++)
        sum += data[i];
    *out = sum;
}

GLOBAL void test_store(unsigned *data, unsigned value)
{
    *data = value;
}
