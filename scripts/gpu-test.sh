#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests and measures rings in GPUs on a machine that has a card and nothing else of ours.
#
#     scripts/gpu-test.sh FOLDER          builds, and packs FOLDER: the programs and their libraries, and this script
#     FOLDER/gpu-test.sh [--quick]        runs there; writes FOLDER/gpu-report.json and prints it as a table
#
# What FOLDER needs is a Linux with a C library at least as new as where it was packed, bash, and the NVIDIA driver.
# --quick leaves the long ring tests out and measures for moments only. No setting of the card is changed. With
# TSOCKET_LIBCUDA naming the simulated driver it runs on that, and the report says so. BUILD names another build folder
# than build-gpu/, which has to be built with the tests.
#
# Exit status: 0 all passed or skipped, 1 something failed, 2 wrong usage.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)

# ---- packing --------------------------------------------------------------------------------------------------------

programs="tsocketd tsocketctl bench/gpu examples/trainer_cuda
    tests/gpu/gpu_arena tests/gpu/gpu_copier tests/gpu/gpu_driver tests/gpu/gpu_questions tests/gpu/gpu_sharing
    tests/system/system_epoch_ends tests/system/system_gpu_convert tests/system/system_next_release
    tests/system/system_holding tests/system/system_shards tests/system/system_side_rings tests/system/system_tokens"

build_programs() {
    local build=$1 targets=() program
    for program in $programs; do
        targets+=("$(basename "$program")")
    done
    [ "${TSOCKET_NO_BUILD:-0}" != 1 ] || return 0 # as scripts/build.sh says
    [ -e "$build/CMakeCache.txt" ] || cmake -S "$here/.." -B "$build" -G Ninja >/dev/null
    cmake --build "$build" --target "${targets[@]}" >/dev/null
}

# The libraries that a program needs, but for the C library's own, which belong to the machine.
libraries_of() {
    ldd "$1" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' |
        grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|ld-linux[^/]*)\.so' || true
}

pack() {
    local folder=$1 build=${BUILD:-$here/../build-gpu} program library
    build_programs "$build"
    mkdir -p "$folder/bin" "$folder/lib"
    for program in $programs; do
        cp "$build/$program" "$folder/bin/"
        for library in $(libraries_of "$build/$program"); do
            cp -L "$library" "$folder/lib/"
        done
    done
    cp "$here/gpu-test.sh" "$folder/"
    echo "packed $folder ($(du -sh "$folder" | cut -f1)); run $folder/gpu-test.sh where the card is"
}

# ---- running --------------------------------------------------------------------------------------------------------

quote() { # TEXT as a JSON string
    printf '"%s"' "$(printf '%s' "$1" | tr -d '\000-\037' | sed 's/\\/\\\\/g; s/"/\\"/g')"
}

# Where a command is, or none.
where_is() {
    command -v "$1" || echo none
}

failed=0
tests=""
observed=""

# run_test NAME [VARIABLE=VALUE...] PROGRAM: one test program.
run_test() {
    local name=$1 begun=$SECONDS status=0 result line
    shift
    env "${@:1:$#-1}" timeout 600 "$here/bin/${*: -1}" >"$scratch/$name.log" 2>&1 || status=$?
    case $status in
    0) result=passed ;;
    77) result=skipped ;;
    *)
        result=failed
        failed=1
        tail -n 20 "$scratch/$name.log" >&2
        ;;
    esac
    printf '%-28s %-8s %4d s\n' "$name" "$result" $((SECONDS - begun))
    tests+="${tests:+,}{\"name\":$(quote "$name"),\"result\":\"$result\",\"seconds\":$((SECONDS - begun))}"
    while read -r line; do
        printf '    %s\n' "$line"
        line=${line#observed }
        observed+="${observed:+,}$(quote "${line%: *}"):$(quote "${line##*: }")"
    done < <(grep '^observed ' "$scratch/$name.log" || true)
}

run_tests() {
    local name share
    for name in driver questions sharing arena copier; do
        run_test "$name" A=0 "gpu_$name"
    done
    run_test convert RIG_DEVICE=cuda system_gpu_convert
    [ -z "$quick" ] || return 0
    for name in epoch_ends holding next_release shards side_rings tokens; do
        for share in vmm ipc; do
            run_test "ring_${name}_$share" RIG_DEVICE=cuda "RIG_SHARE=$share" "system_$name"
        done
    done
}

# A mapping of another process's memory under the checker of the toolkit, where that is.
run_sanitizer() {
    sanitizer=$(where_is compute-sanitizer)
    [ "$sanitizer" != none ] || return 0
    if "$sanitizer" --target-processes all --error-exitcode 9 "$here/bin/gpu_questions" >"$scratch/sanitizer.log" 2>&1; then
        sanitizer="passed"
    else
        sanitizer="failed"
        failed=1
        tail -n 20 "$scratch/sanitizer.log" >&2
    fi
    printf '%-28s %s\n' compute-sanitizer "$sanitizer"
}

# JSON of a program's last line, or null.
last_json() {
    local line
    line=$(tail -n 1 "$1")
    [ "${line:0:1}" = "{" ] && printf '%s' "$line" || printf null
}

run_bench() {
    local args=(--json)
    [ -z "$simulated" ] || args+=(--simulated)
    [ -z "$quick" ] || args+=(--seconds 0.1 --samples 20 --sample-bytes 4096 --consumers 1,2)
    if ! "$here/bin/gpu" "${args[@]}" >"$scratch/bench.json" 2>"$scratch/bench.log"; then
        failed=1
        cat "$scratch/bench.log" >&2
        : >"$scratch/bench.json"
    fi
}

# A daemon of generated pictures and one trainer, both on the card.
run_trainer() {
    local daemon samples=8192
    [ -z "$quick" ] || samples=64
    "$here/bin/tsocketd" -q --name gpu-test "synthetic:${samples}x64x64" --size 64 --device cuda --epochs 2 --join-grace 0s \
        2>"$scratch/tsocketd.log" &
    daemon=$!
    if ! "$here/bin/trainer_cuda" gpu-test --epochs 2 --classes 1000 --json >"$scratch/trainer.json" 2>"$scratch/trainer.log"; then
        failed=1
        cat "$scratch/trainer.log" "$scratch/tsocketd.log" >&2
        : >"$scratch/trainer.json"
        kill "$daemon" 2>/dev/null || true
    fi
    wait "$daemon" || true
}

report() {
    printf '{"date":%s,"kernel":%s,"driver":%s,"simulated":%s,"mps_control":%s,"compute_sanitizer":%s,' \
        "$(quote "$(date -u +%Y-%m-%dT%H:%M:%SZ)")" "$(quote "$(uname -r)")" \
        "$(quote "$(head -n 1 /proc/driver/nvidia/version 2>/dev/null || echo none)")" "$([ -n "$simulated" ] && echo true || echo false)" \
        "$(quote "$(where_is nvidia-cuda-mps-control)")" "$(quote "$sanitizer")"
    printf '"doctor":%s,' "$(quote "$(tr '\n' ';' <"$scratch/doctor.txt")")"
    printf '"tests":[%s],"observed":{%s},"bench":%s,"trainer":%s}\n' "$tests" "$observed" \
        "$(last_json "$scratch/bench.json")" "$(last_json "$scratch/trainer.json")"
}

run() {
    scratch=$(mktemp -d)
    trap 'rm -rf "$scratch"' EXIT
    export LD_LIBRARY_PATH="$here/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}" TSOCKET_DIR="$scratch/run"
    mkdir "$TSOCKET_DIR"
    "$here/bin/tsocketctl" doctor | tee "$scratch/doctor.txt" || true
    simulated=$(grep -o 'Simulated GPU' "$scratch/doctor.txt" | head -n 1 || true)
    if ! grep -q '^ok  cuda:0 ' "$scratch/doctor.txt"; then
        echo "gpu-test.sh: there is no GPU here that works" >&2
        exit 1
    fi
    [ -z "$simulated" ] || printf '\nSIMULATED: what follows says nothing about any card.\n'
    echo
    run_tests
    run_sanitizer
    run_bench
    run_trainer
    report >"$here/gpu-report.json"
    printf '\n%s\n%s\n\nThe report is %s/gpu-report.json\n' "$(cat "$scratch/bench.json")" "$(cat "$scratch/trainer.json")" "$here"
}

quick=
if [ -d "$here/bin" ] && [ -d "$here/lib" ]; then
    [ "${1:-}" != --quick ] || quick=yes
    run
    exit "$failed"
fi
if [ $# != 1 ] || [ "${1:0:1}" = - ]; then
    sed -n '3,14s/^# \{0,1\}//p' "$0" >&2
    exit 2
fi
pack "$1"
