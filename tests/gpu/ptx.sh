#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compares each NAME.ptx with what clang makes of NAME.cu. Another clang than the one that made it (14) may well write
# other text: skipped then. Where ptxas is, it must take them.
#
#     tests/gpu/ptx.sh            compares
#     tests/gpu/ptx.sh --write    makes them anew
set -euo pipefail

cd "$(dirname "$0")/../.."
sources="tests/gpu/kernels src/consumer/convert bench/read examples/mlp_kernels"
compile() {
    clang -x cuda -std=c++14 -S -O2 -nocudalib -nocudainc --cuda-device-only --cuda-gpu-arch=sm_60 \
        -Wno-unknown-cuda-version "$1.cu" -o -
}

if [ "${1:-}" = --write ]; then
    for name in $sources; do
        compile "$name" >"$name.ptx"
    done
    exit
fi
version=$(clang -dumpversion 2>/dev/null | cut -d. -f1) || version=none
[ "$version" = 14 ] || {
    echo "ptx.sh: clang 14 is needed to compare, this is: $version"
    exit 77
}
ptxas=$(command -v ptxas || ls /usr/local/cuda/bin/ptxas 2>/dev/null || true)
for name in $sources; do
    compile "$name" | diff "$name.ptx" - || {
        echo "ptx.sh: $name.ptx is not of this $name.cu; run tests/gpu/ptx.sh --write" >&2
        exit 1
    }
    [ -z "$ptxas" ] || "$ptxas" -arch=sm_90 -o /dev/null "$name.ptx"
done
