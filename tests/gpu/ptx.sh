#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compares kernels.ptx with what clang makes of kernels.cu. Another clang than the one that made it (14) may well write
# other text: skipped then.
#
#     tests/gpu/ptx.sh            compares
#     tests/gpu/ptx.sh --write    makes it anew
set -euo pipefail

cd "$(dirname "$0")"
compile() {
    clang -x cuda -S -O2 -nocudalib -nocudainc --cuda-device-only --cuda-gpu-arch=sm_60 -Wno-unknown-cuda-version \
        kernels.cu -o -
}

if [ "${1:-}" = --write ]; then
    compile >kernels.ptx
    exit
fi
version=$(clang -dumpversion 2>/dev/null | cut -d. -f1) || version=none
[ "$version" = 14 ] || {
    echo "ptx.sh: clang 14 is needed to compare, this is: $version"
    exit 77
}
compile | diff kernels.ptx - || {
    echo "ptx.sh: kernels.ptx is not of this kernels.cu; run tests/gpu/ptx.sh --write" >&2
    exit 1
}
