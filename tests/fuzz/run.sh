#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs every fuzz target of a build made with -DTSOCKET_FUZZ=ON.
#
#     tests/fuzz/run.sh BUILD SECONDS
#
# Each target starts from its corpus in the source tree; what it finds goes to BUILD/fuzz/NAME, crashes as crash-*.
set -euo pipefail

[ $# = 2 ] || {
    echo "usage: run.sh BUILD SECONDS" >&2
    exit 2
}
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd)
seconds=$2
ran=0
failed=0

for source in "$here"/fuzz_*.c; do
    name=$(basename "$source" .c)
    program=$build/tests/fuzz/$name
    [ -x "$program" ] || {
        echo "run.sh: $program is not built; configure with -DTSOCKET_FUZZ=ON and clang" >&2
        exit 1
    }
    mkdir -p "$build/fuzz/$name" "$here/corpus/$name"
    echo "== $name for $seconds s"
    "$program" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 -verbosity=0 \
        -artifact_prefix="$build/fuzz/$name/" "$build/fuzz/$name" "$here/corpus/$name" || failed=$((failed + 1))
    ran=$((ran + 1))
done
echo "fuzz: $ran targets, $failed failed"
[ "$failed" = 0 ]
