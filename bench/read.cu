/* SPDX-License-Identifier: Apache-2.0 */
/* What a benchmark's consumer does with a batch: reads all of it once. tests/gpu/ptx.sh makes read.ptx of this. */
#include "read_kernel.h"

extern "C" __attribute__((global)) void bench_read(const uint32_t *data, uint64_t words, uint32_t *out)
{
    uint32_t threads = __nvvm_read_ptx_sreg_nctaid_x() * __nvvm_read_ptx_sreg_ntid_x();
    uint32_t thread = __nvvm_read_ptx_sreg_ctaid_x() * __nvvm_read_ptx_sreg_ntid_x() + __nvvm_read_ptx_sreg_tid_x();

    out[thread] = bench_read_part(data, words, thread, threads);
}
