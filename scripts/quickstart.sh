#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The main job from nothing, on Debian 12 or Ubuntu: installs what is missing, builds into build/, starts one tsocketd
# on a folder of photographs and trains two trainers from it at once, with batches of 32 and of 48.
#
#     scripts/quickstart.sh [FOLDER]
#
# FOLDER holds a folder of JPEG files per class. Without it a small set is made in build/photos (16 MB are fetched) and
# used again the next time. Leaves nothing behind but build/: no process, socket or shared memory.
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
build=$top/build
name=quickstart
batches=(32 48)
epochs=${EPOCHS:-10}
pids=()

say() {
    printf '\n== %s\n' "$*"
}

die() {
    echo "quickstart.sh: $*" >&2
    exit 1
}

fail() { # and show why
    cat "$TSOCKET_DIR/tsocketd.log" >&2
    die "$*"
}

clean_up() {
    local pid
    for pid in "${pids[@]}"; do
        kill "$pid" 2>/dev/null || true
    done
    wait
    rm -rf "$TSOCKET_DIR"
}

# Sets $folder and the options for tsocketd and the trainers that depend on it.
choose_photos() {
    daemon_options=() trainer_options=()
    if [ $# = 1 ]; then
        folder=$1
    else
        say "making a small set of photographs in $build/photos"
        "$top/scripts/make_photos.sh" "$build/photos" small
        folder=$build/photos/train
        daemon_options=(--stream "val=$build/photos/val,augment=eval,shuffle=off,epochs=0")
        trainer_options=(--val "$name/val")
    fi
    [ -d "$folder" ] || die "$folder is not a folder"
    trainer_options+=(--classes "$(find -L "$folder" -mindepth 1 -maxdepth 1 -type d ! -name '.*' | wc -l)")
}

start_daemon() {
    say "tsocketd decodes $folder, once for all"
    "$build/tsocketd" --name "$name" --max-batch 64 --wait-for "${#batches[@]}" --join-grace 0s --epochs "$epochs" \
        --exit-when-idle "${daemon_options[@]}" "$folder" 2>"$TSOCKET_DIR/tsocketd.log" &
    daemon=$!
    pids+=("$daemon")
}

# Each trainer's lines go to the terminal under its name.
train() {
    local batch trainer trainers=()
    say "${#batches[@]} trainers at once, $epochs epochs"
    for batch in "${batches[@]}"; do
        "$build/examples/trainer" "$name" --batch "$batch" --epochs "$epochs" "${trainer_options[@]}" \
            > >(sed -u "s/^/batch $batch  /") &
        trainers+=($!)
    done
    pids+=("${trainers[@]}")
    for trainer in "${trainers[@]}"; do
        wait "$trainer" || fail "a trainer failed"
    done
}

# The daemon ends when its last consumer has left; its last line is the sum of the run.
sum_up() {
    wait "$daemon" || fail "tsocketd failed"
    say "what tsocketd did"
    tail -n 1 "$TSOCKET_DIR/tsocketd.log"
}

main() {
    [ $# -le 1 ] || die "usage: quickstart.sh [FOLDER]"
    "$top/scripts/deps.sh" build
    say "building into $build"
    BUILD=$build "$top/scripts/build.sh" tsocketd tsocketctl trainer
    choose_photos "$@"
    TSOCKET_DIR=$(mktemp -d)
    export TSOCKET_DIR
    trap clean_up EXIT
    start_daemon
    train
    sum_up
}

main "$@"
