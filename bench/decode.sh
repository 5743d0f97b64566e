#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Measures the decode alone: images per second of one core for the parts and variants of the pipeline's decode, on the
# files of FOLDER (bench/decode.c says how). BUILD names another build folder than build/.
#
#     bench/decode.sh [--rounds N] [--files N] [--size PIXELS] [--only NAME[,NAME...]] [--json] FOLDER
#     bench/decode.sh --scaling [--threads N] [--rounds N] FOLDER            several threads beside one, and tsocketd
#     bench/decode.sh --plot FILE.svg [--rounds N] [--files N] FOLDER...     the main ones as a picture
#     bench/decode.sh --pillow [--rounds N] [--files N] FOLDER               the rate beside Pillow's and torchvision's
#     bench/decode.sh --fidelity [--images N] [--quality exact|fast] FOLDER  the pixels of it beside Pillow's
#
# scripts/make_photos.sh DIR full makes the folders that docs/performance.md measures.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$top/build}

"$top/scripts/build.sh" decode loader tsocketd tsocketctl
case ${1:-} in
--plot) shift && exec /usr/bin/python3 "$top/bench/plot_decode.py" "$build/bench/decode" "$@" ;;
--pillow) shift && exec /usr/bin/python3 "$top/bench/pillow.py" "$build/bench/decode" "$@" ;;
--scaling) shift && exec /usr/bin/python3 "$top/bench/scaling.py" "$build" "$@" ;;
--fidelity) shift && exec /usr/bin/python3 "$top/bench/fidelity.py" "$build" "$@" ;;
*) exec "$build/bench/decode" "$@" ;;
esac
