#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the targets that are named into build/, or into the folder that BUILD names; quiet unless it fails. The tests
# are left out: scripts/test.sh builds them, in folders of its own. With TSOCKET_NO_BUILD=1 nothing is built: for tests,
# which others run beside it, of programs that are there.
#
#     scripts/build.sh TARGET...
set -euo pipefail

[ "${TSOCKET_NO_BUILD:-0}" != 1 ] || exit 0
top=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$top/build}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

first=(-G Ninja -DBUILD_TESTING=OFF)
[ ! -e "$build/CMakeCache.txt" ] || first=() # as it was configured
if ! { cmake -S "$top" -B "$build" "${first[@]}" && cmake --build "$build" --target "$@"; } >"$log" 2>&1; then
    tail -n 60 "$log" >&2
    exit 1
fi
