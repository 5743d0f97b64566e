#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compares k = 1, 2, 4 trainers that share one tsocketd with k trainers that each run a private loader of the same
# pipeline, and, where PyTorch is installed, with its DataLoader. Prints one table, writes JSON and a picture of it.
#
#     bench/compare.sh [--out DIR] [--seconds S] [--warm-up S] [--trainers 1,2,4] [--batch N] [--step-ms X] [FOLDER]
#
# FOLDER holds a folder of JPEG files per class; without it, a small set of photographs is made in build/photos.
# DIR is build/bench unless given. BUILD names another build folder than build/.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$top/build}

main() {
    local out=$build/bench args=() folder=
    while [ $# -gt 0 ]; do
        case $1 in
        --out) out=${2:?--out needs a folder} && shift 2 ;;
        -h | --help) exec /usr/bin/python3 "$top/bench/compare.py" --help ;;
        --*) args+=("$1" "${2:?$1 needs a value}") && shift 2 ;;
        *) folder=$1 && shift ;;
        esac
    done
    "$top/scripts/build.sh" tsocket tsocketd tsocketctl loader
    if [ -z "$folder" ]; then
        folder=$build/photos/train
        "$top/scripts/make_photos.sh" "$build/photos"
    fi
    exec /usr/bin/python3 "$top/bench/compare.py" --build "$build" --out "$out" "${args[@]}" "$folder"
}

main "$@"
