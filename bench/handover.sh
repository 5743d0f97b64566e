#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures the hand-over alone, without decoding: batches per second and the latency from commit to next for 1 to 16
# consumers (bench/handover), and whether 8 consumers that do nothing each get what one gets (synthetic images from a
# tsocketd). BUILD names another build folder than build/.
#
#     bench/handover.sh [--json] [--seconds S] [--consumers 1,2,4,8,16] [--samples N] [--pace-ms X]
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$top/build}
source_of_images=synthetic:100000x224x224
daemon=

stop_daemon() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    wait
    rm -rf "$TSOCKET_DIR"
}

rate_of() { # K: batches per second of the slowest of K consumers of the daemon
    "$build/bench/handover" --attach handover --consumers "$1" --seconds 5 --json |
        sed -n 's/.*"least_batches_per_s":\([0-9]*\).*/\1/p'
}

# How much of one consumer's rate each of 8 gets: $one, $eight, $ratio.
compare_to_one() {
    "$build/tsocketd" -q --name handover --max-batch 32 --join-grace 0s "$source_of_images" &
    daemon=$!
    one=$(rate_of 1)
    eight=$(rate_of 8)
    ratio=$(awk -v one="$one" -v eight="$eight" 'BEGIN { printf "%.3f", eight / one }')
}

main() {
    local result
    "$top/scripts/build.sh" tsocketd handover
    TSOCKET_DIR=$(mktemp -d)
    export TSOCKET_DIR
    trap stop_daemon EXIT
    result=$("$build/bench/handover" "$@")
    compare_to_one
    if [ "${result:0:1}" = "{" ]; then
        printf '%s,"compare_to_one":{"source":"%s","one_batches_per_s":%s,"each_of_8_batches_per_s":%s,"ratio":%s}}\n' \
            "${result%\}}" "$source_of_images" "$one" "$eight" "$ratio"
    else
        printf '%s\n\n%s: one consumer gets %s batches/s, each of 8 at least %s: %s of it\n' \
            "$result" "$source_of_images" "$one" "$eight" "$ratio"
    fi
}

main "$@"
