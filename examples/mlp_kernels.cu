/* SPDX-License-Identifier: Apache-2.0 */
/* The perceptron's kernels: thread i computes result i. tests/gpu/ptx.sh makes mlp_kernels.ptx of this. */
#include "mlp_kernels.h"

#define KERNEL extern "C" __attribute__((global)) void

static __attribute__((device)) uint32_t thread()
{
    return __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();
}

KERNEL mlp_reduce(uint32_t count, const uint8_t *images, uint32_t width, uint32_t height, float *x)
{
    if (thread() < count)
        mlp_reduce_one(thread(), images, width, height, x);
}

KERNEL mlp_multiply(uint32_t count, const float *a, uint32_t a_transposed, const float *b, uint32_t b_transposed,
                    uint32_t rows, uint32_t inner, uint32_t columns, float *out)
{
    if (thread() < count)
        mlp_multiply_one(thread(), a, a_transposed, b, b_transposed, rows, inner, columns, out);
}

KERNEL mlp_bias(uint32_t count, float *rows, uint32_t columns, const float *bias, uint32_t rectify)
{
    if (thread() < count)
        mlp_bias_one(thread(), rows, columns, bias, rectify);
}

KERNEL mlp_score(uint32_t count, float *scores, const int64_t *labels, uint32_t classes, float *losses, uint32_t *hits)
{
    if (thread() < count)
        mlp_score_one(thread(), scores, labels, classes, losses, hits);
}

KERNEL mlp_tally(uint32_t count, const float *losses, const uint32_t *hits, uint32_t n, mlp_device_tally *tally)
{
    if (thread() < count)
        mlp_tally_all(losses, hits, n, tally);
}

KERNEL mlp_sum(uint32_t count, const float *rows, uint32_t n, uint32_t columns, float *out)
{
    if (thread() < count)
        mlp_sum_one(thread(), rows, n, columns, out);
}

KERNEL mlp_mask(uint32_t count, float *delta, const float *hidden)
{
    if (thread() < count)
        mlp_mask_one(thread(), delta, hidden);
}

KERNEL mlp_descend(uint32_t count, float *value, float *velocity, const float *gradient, float scale, float momentum,
                   float lr)
{
    if (thread() < count)
        mlp_descend_one(thread(), value, velocity, gradient, scale, momentum, lr);
}
