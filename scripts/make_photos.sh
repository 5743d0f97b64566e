#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Makes a set of real photographs in DIR, from photographs that Debian's wallpaper packages carry (each under its own
# free licence; nothing is installed, and nothing but this script is part of the project).
#
#     scripts/make_photos.sh DIR [small|full]
#
#     small  16 MB to fetch, within a minute: DIR/train (500 files) and DIR/val (100), 10 classes that can be learned
#     full   310 MB to fetch, some minutes: DIR/inet, DIR/inet420, DIR/coco, DIR/large, for measuring
#
# Does nothing where DIR is complete already.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)

die() {
    echo "make_photos.sh: $*" >&2
    exit 1
}

fetch() { # PACKAGE: into the current folder, with no root where the package lists are there
    apt-get download -q -o APT::Sandbox::User=root "$1" >fetch.log 2>&1 && return
    if [ "$(id -u)" = 0 ]; then
        apt-get update -qq
    elif command -v sudo >/dev/null; then
        sudo apt-get update -qq
    fi
    apt-get download -q -o APT::Sandbox::User=root "$1" >fetch.log 2>&1 ||
        die "cannot fetch the package $1: $(tail -n 1 fetch.log)"
}

list_of() { # KIND: which photographs
    case $1 in
    small) grep '^lomiri-wallpapers-16.04/' "$here/photos.txt" ;;
    full) cat "$here/photos.txt" ;;
    *) die "no set '$1'; there are: small full" ;;
    esac
}

make_set() { # DIR KIND, in a folder of its own
    local package packages
    list_of "$2" >list.txt
    mapfile -t packages < <(cut -d/ -f1 list.txt | sort -u)
    for package in "${packages[@]}"; do
        echo "fetching $package" >&2
        fetch "$package"
        mkdir -p "sources/$package"
        dpkg-deb -x "$package"_*.deb "sources/$package"
    done
    echo "cutting the photographs into $1" >&2
    /usr/bin/python3 "$here/make_photos.py" "$2" sources list.txt made
    touch "made/.complete-$2"
    mkdir -p "$1"
    cp -r made/. "$1"
}

main() {
    local dir kind=${2:-small}
    [ $# = 1 ] || [ $# = 2 ] || die "usage: make_photos.sh DIR [small|full]"
    [ -e "$1/.complete-$kind" ] && return
    list_of "$kind" >/dev/null
    mkdir -p "$1"
    dir=$(cd "$1" && pwd)
    "$here/deps.sh" photos
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    cd "$work"
    make_set "$dir" "$kind"
}

main "$@"
