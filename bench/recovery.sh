#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures how soon trainers read on when one of them or the daemon is killed (bench/recovery.py). BUILD names another
# build folder than build/.
#
#     bench/recovery.sh [--times N] [--json]
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$top/build}

"$top/scripts/build.sh" tsocketd tsocket
TSOCKET_LIBRARY=$build/libtsocket.so PYTHONPATH=$top/python exec /usr/bin/python3 "$top/bench/recovery.py" "$build" "$@"
