#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The one list of the Debian and Ubuntu packages that tsocket needs, and the command that installs what is missing.
#
#     scripts/deps.sh build          to build everything
#     scripts/deps.sh photos         to make the photograph set (scripts/make_photos.sh)
#     scripts/deps.sh test           to run everything that CI runs (build and photos included)
#     scripts/deps.sh bench          for the optional comparison with PyTorch's DataLoader
#     scripts/deps.sh --missing GROUP    only print what is missing, install nothing
#
# Says what it installs before it does; installs nothing, and needs no root, where everything is there already.
set -euo pipefail

build="build-essential cmake ninja-build pkg-config libzmq3-dev libcjson-dev libjpeg-dev libpng-dev libxxhash-dev libopenblas-dev"
photos="python3 python3-pil"
tests="clang clang-format libcmocka-dev libjpeg-turbo-progs strace python3-numpy python3-torch"
tests="$tests python3-venv python3-setuptools python3-wheel" # to install the Python package
bench="python3-torch"

die() {
    echo "deps.sh: $*" >&2
    exit 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "needs root to install packages, and there is no sudo; as root, run: apt-get install $missing"
    fi
}

installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

# clang's sanitizers are in a package of their own that carries clang's version, by one of two names.
clang_runtime() {
    local version
    version=$(apt-cache depends clang 2>/dev/null | sed -n 's/.*Depends: clang-\([0-9]*\)$/\1/p')
    [ -n "$version" ] || return 0
    if apt-cache show "libclang-rt-$version-dev" >/dev/null 2>&1; then
        echo "libclang-rt-$version-dev"
    else
        echo "libclang-common-$version-dev"
    fi
}

packages_of() {
    case $1 in
    build) echo "$build" ;;
    photos) echo "$photos" ;;
    test) echo "$build $photos $tests $(clang_runtime)" ;;
    bench) echo "$build $photos $bench" ;;
    *) die "no group '$1'; there are: build photos test bench" ;;
    esac
}

find_missing() {
    local package packages
    packages=$(packages_of "$1")
    missing=""
    for package in $packages; do
        installed "$package" || missing="$missing $package"
    done
    missing=${missing# }
}

main() {
    local only_print=no
    if [ "${1:-}" = --missing ]; then
        only_print=yes
        shift
    fi
    [ $# = 1 ] || die "usage: deps.sh [--missing] build|photos|test|bench"
    command -v dpkg-query >/dev/null || die "not a Debian or Ubuntu system; needed are: $(packages_of "$1")"
    find_missing "$1"
    if [ $only_print = yes ]; then
        echo "$missing"
        return
    fi
    [ -n "$missing" ] || return 0
    echo "installing: $missing"
    as_root apt-get update -qq
    find_missing "$1" # clang's version is known only now where there were no package lists
    # shellcheck disable=SC2086 # a list of words
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
}

main "$@"
