#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs a build into a folder of its own, moves it, builds a trainer outside the tree against it, once by pkg-config
# and once by find_package, and runs both against the installed tsocketd.
#
#     tests/install_test.sh BUILD
set -euo pipefail

build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
daemon=
trap '[ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true; rm -rf "$work"' EXIT
export TSOCKET_DIR=$work/run

die() {
    echo "install test: $*" >&2
    exit 1
}

cmake --install "$build" --prefix "$work/first" >"$work/log" || die "$(cat "$work/log")"
mv "$work/first" "$work/moved" # nothing may remember where it was installed first
root=$work/moved
lib=$(dirname "$(find "$root" -name 'libtsocket.so')")

check_library() {
    local soname strange
    soname=$(readelf -d "$lib/libtsocket.so" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p')
    [ "$soname" = libtsocket.so.0 ] || die "the SONAME is '$soname'"
    [ -e "$lib/$soname" ] || die "$lib/$soname is missing"
    strange=$(nm -D --defined-only "$lib/libtsocket.so" | awk '{print $3}' | grep -v '^tsocket_' || true)
    [ -z "$strange" ] || die "names that are exported and should not be: $strange"
    nm -D --defined-only "$lib/libtsocket.so" | grep -q ' tsocket_next$' || die "tsocket_next is not exported"
}

# Every header must do alone, in C and in C++.
check_headers() {
    local header language
    for header in tsocket/tsocket.h tsocket/producer.h tsocket/convert.h; do
        for language in "c -std=c11" c++; do
            # shellcheck disable=SC2086 # two words
            echo "#include <$header>" | cc -x $language -Wall -Wextra -Wpedantic -Werror -fsyntax-only \
                -I"$root/include" - || die "$header does not compile alone as $language"
        done
    done
}

start_daemon() {
    "$root/bin/tsocketd" --name installed --join-grace 0 --ring 64 synthetic:13x8x8 2>"$work/daemon.log" &
    daemon=$!
}

run_trainer() {
    local said
    said=$(LD_LIBRARY_PATH=$lib "$1" installed) || die "$1 failed: $said; $(cat "$work/daemon.log")"
    [[ $said == "13 samples by libtsocket "* ]] || die "$1 said: $said"
    echo "install test: $2: $said"
}

check_library
check_headers
start_daemon

export PKG_CONFIG_PATH=$lib/pkgconfig
pkg-config --exists --print-errors 'tsocket >= 0.1' || die "pkg-config does not find tsocket"
# shellcheck disable=SC2046 # words
cc "$here/install/trainer.c" $(pkg-config --cflags --libs tsocket) -o "$work/by_pkg_config"
run_trainer "$work/by_pkg_config" pkg-config

cmake -S "$here/install" -B "$work/outside" -DCMAKE_PREFIX_PATH="$root" >"$work/log" 2>&1 &&
    cmake --build "$work/outside" >>"$work/log" 2>&1 || die "$(cat "$work/log")"
run_trainer "$work/outside/trainer" find_package

"$root/bin/tsocketctl" stop installed || die "tsocketctl stop failed"
wait "$daemon" || die "tsocketd ended with $?: $(cat "$work/daemon.log")"
daemon=
[ -z "$(ls -A "$TSOCKET_DIR")" ] || die "something is left in the runtime folder"
echo "install test: all is well"
