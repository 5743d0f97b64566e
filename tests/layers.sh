#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The layers, as the top CMakeLists.txt draws them, and what every file has in common.
#
#     tests/layers.sh            checks this tree
#     tests/layers.sh TREE       checks another
#
# Before it says that all is well, it proves on a copy that each rule notices its breach.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
clang_format=${CLANG_FORMAT:-clang-format}
# What libtsocket is built from is the engine; the rest of src/producer is the pipeline.
engine=$(sed -n '/^add_library(tsocket_objects/,/)/s|src/producer/\([a-z_]*\)\.c|\n\1\n|gp' "$here/CMakeLists.txt" |
    grep -xE '[a-z_]+' | xargs)
complaints=0

complain() {
    echo "layers: $*" >&2
    complaints=$((complaints + 1))
}

# Lines FILE:NUMBER:<HEADER or FILE:NUMBER:"HEADER of the includes in the given files.
includes_of() {
    grep -HnoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"][^>"]+' "$@" |
        sed -E 's/^([^:]+:[0-9]+):[^<"]*/\1:/' || true
}

# forbid WHY PATTERN FILE...: no file may include a header that PATTERN matches.
forbid() {
    local why=$1 pattern=$2 line
    shift 2
    [ $# -gt 0 ] || return 0
    while read -r line; do
        [[ ${line##*:} =~ $pattern ]] && complain "${line%:*} includes ${line##*:}: $why"
    done < <(includes_of "$@")
    return 0
}

# Files of the tree that are checked, by pattern; build folders and generated files are no part of it.
files() {
    find "$tree" -path "$tree/.git" -prune -o -path "$tree/build*" -prune -o -path "$tree/data" -prune -o \
        -type f \( "$@" \) -print
}

# All of `files` but those named behind it.
except() {
    local pattern=$1 file
    shift
    for file in "$@"; do
        [[ $file =~ $pattern ]] || echo "$file"
    done
}

check_libraries() {
    local source=("$tree"/src/*/*.[ch])
    # shellcheck disable=SC2046 # no path of the tree has a space
    forbid "only src/ipc/socket.c knows ZeroMQ" '^<zmq' $(except '/src/ipc/socket\.c$' "${source[@]}")
    # shellcheck disable=SC2046
    forbid "only src/producer/jpeg.c knows libjpeg" '^<(jpeglib|jerror|turbojpeg)' \
        $(except '/src/producer/jpeg\.c$' "${source[@]}")
    # shellcheck disable=SC2046
    forbid "only src/producer/png.c knows libpng" '^<png' $(except '/src/producer/png\.c$' "${source[@]}")
    forbid "src/ipc/cuda_abi.h is all that we know of CUDA" '^<(cuda|nccl|nvml)' "${source[@]}"
    forbid "examples see the public headers alone" '^<(zmq|jpeglib|png|cjson)' "$tree"/examples/*.[ch]
}

# A header is known by its file name: those of the layers differ, and check_names keeps it so.
pattern_of() {
    local file names=""
    for file in "$@"; do
        names="$names|$(basename "$file" | sed 's/\./\\./')"
    done
    echo "^\"(.*/)?(${names#|})\$"
}

check_layers() {
    local producer consumer word engine_files=() pipeline_headers=()
    producer=$(pattern_of "$tree"/src/producer/*.h)
    consumer=$(pattern_of "$tree"/src/consumer/*.h)
    forbid "the layer of both sides knows neither" "$producer|$consumer" "$tree"/src/ipc/*.[ch]
    forbid "the producer does not know the consumer" "$consumer" "$tree"/src/producer/*.[ch]
    forbid "the consumer does not know the producer" "$producer" "$tree"/src/consumer/*.[ch]
    forbid "public headers include public headers alone" '\.h$' \
        "$(strip_public "$tree"/include/tsocket/*.h)"
    for word in $engine; do
        engine_files+=("$tree/src/producer/$word".[ch])
    done
    mapfile -t pipeline_headers < <(except "/($(echo "$engine" | tr ' ' '|'))\\.h\$" "$tree"/src/producer/*.h)
    forbid "the engine does not know the pipeline" "$(pattern_of "${pipeline_headers[@]}")" "${engine_files[@]}"
}

# The public headers without the includes that they may have: C's own and each other.
strip_public() {
    local out=$scratch/public.h
    cat "$@" | grep -vE '^#include <(tsocket/[a-z]+|std[a-z]+)\.h>' >"$out"
    echo "$out"
}

check_names() {
    local twice
    twice=$(basename -a "$tree"/src/*/*.h "$tree"/include/tsocket/*.h | sort | uniq -d)
    [ -z "$twice" ] || complain "headers of one name in two layers: $twice"
}

check_outside() {
    local file
    # shellcheck disable=SC2046
    forbid "no file outside the tree is included" '^.(/|.*\.\./\.\./\.\./)' $(files -name '*.[ch]')
    while read -r file; do
        [[ $(readlink -f "$file") == "$tree"/* ]] || complain "$file leads out of the tree"
    done < <(find "$tree" -path "$tree/.git" -prune -o -path "$tree/build*" -prune -o -type l -print)
}

check_licence() {
    local file
    while read -r file; do
        head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || complain "$file has no SPDX line"
    done < <(files -name '*.[ch]' -o -name '*.py' -o -name '*.sh' -o -name 'CMakeLists.txt' -o -name '*.cmake' -o -name '*.in')
}

check_format() {
    # shellcheck disable=SC2046
    "$clang_format" --dry-run -Werror $(files -name '*.[ch]') || complain "clang-format would change something"
}

checks="libraries layers names outside licence format"

# check_tree TREE CHECK...
check_tree() {
    local check
    tree=$1
    complaints=0
    shift
    for check in "$@"; do
        "check_$check"
    done
    [ "$complaints" = 0 ]
}

# must_notice CHECK WHAT FILE LINE: the check must refuse the copy with LINE at FILE's end.
must_notice() {
    local file=$scratch/copy/$3 kept=$scratch/kept
    cp "$file" "$kept"
    printf '%s\n' "$4" >>"$file"
    if (check_tree "$scratch/copy" "$1") >/dev/null 2>&1; then
        echo "layers: the check of $1 no longer notices: $2" >&2
        exit 1
    fi
    cp "$kept" "$file"
}

check_the_check() {
    mkdir "$scratch/copy"
    (cd "$here" && tar cf - --exclude='./build*' --exclude=./.git --exclude=./data --exclude=./tests/fuzz/corpus .) |
        tar xf - -C "$scratch/copy"
    # shellcheck disable=SC2086 # words
    (check_tree "$scratch/copy" $checks) || {
        echo "layers: the untouched copy is refused already" >&2
        exit 1
    }
    must_notice libraries "ZeroMQ outside socket.c" src/ipc/wire.c '#include <zmq.h>'
    must_notice libraries "libjpeg outside jpeg.c" src/producer/resize.c '#include <jpeglib.h>'
    must_notice libraries "libpng outside png.c" src/producer/jpeg.c '#include <png.h>'
    must_notice libraries "the CUDA Toolkit" src/ipc/cuda_api.c '#include <cuda.h>'
    must_notice layers "ipc that knows the producer" src/ipc/wire.c '#include "../producer/engine.h"'
    must_notice layers "consumer that knows the producer" src/consumer/consumer.c '#include "../producer/engine.h"'
    must_notice layers "producer that knows the consumer" src/producer/loop.c '#include "../consumer/held.h"'
    must_notice layers "engine that knows the pipeline" src/producer/stream.c '#include "recipe.h"'
    must_notice layers "public header with a private one" include/tsocket/tsocket.h '#include "ipc/wire.h"'
    must_notice outside "file outside the tree" src/ipc/wire.c '#include "/etc/x.h"'
    must_notice format "layout" src/ipc/wire.c 'int   x;'
    cp "$scratch/copy/src/ipc/wire.c" "$scratch/copy/src/ipc/bare.c"
    must_notice licence "file without an SPDX line" src/ipc/bare.c "$(sed -i 1d "$scratch/copy/src/ipc/bare.c")"
    rm "$scratch/copy/src/ipc/bare.c"
    cp "$scratch/copy/src/ipc/wire.h" "$scratch/copy/src/producer/wire.h"
    must_notice names "one name in two layers" src/producer/wire.h ''
    rm "$scratch/copy/src/producer/wire.h"
}

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=
# shellcheck disable=SC2086 # words
if ! check_tree "${1:-$here}" $checks; then
    echo "layers: $complaints complaints" >&2
    exit 1
fi
[ $# -gt 0 ] || check_the_check
echo "layers: all is well"
