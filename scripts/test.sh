#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing, builds, and runs everything that CI runs.
#
#     scripts/test.sh                 all steps
#     scripts/test.sh STEP...         some of them, in this order
#
#     layers  who may include whom, licence lines, clang-format
#     gcc     gcc, warnings are errors; all tests
#     asan    clang with AddressSanitizer and UndefinedBehaviorSanitizer; all tests, fewer repeats; and the fault sweep
#     tsan    clang with ThreadSanitizer; the tests with threads, fewer repeats
#     fuzz    each fuzz target for a short while (TSOCKET_FUZZ_SECONDS, 20 by default)
#
# Each step builds in a folder of its own, build-test-STEP. A step that fails does not keep the next ones from running.
# The last line sums all of it up; the exit status is 0 only if nothing failed.
set -euo pipefail

cd "$(dirname "$0")/.."
jobs=$(nproc)
counts=$(mktemp) # a line for each step: name, passed, failed, skipped
trap 'rm -f "$counts"' EXIT

record() {
    echo "$1 $2 $3 $4" >>"$counts"
}

# build STEP CMAKE-OPTION...; quiet unless it fails
build() {
    local folder=build-test-$1
    shift
    # the flags of RelWithDebInfo, but with assertions
    if ! { cmake -S . -B "$folder" -G Ninja -DTSOCKET_WERROR=ON -DCMAKE_C_FLAGS_RELWITHDEBINFO="-O2 -g" "$@" &&
        cmake --build "$folder" -j "$jobs"; } >"$folder.log" 2>&1; then
        tail -n 60 "$folder.log"
        return 1
    fi
    rm "$folder.log"
}

# The number called $2 in the head of the JUnit file $1.
junit() {
    sed -n "0,/<testcase/s/.*[[:space:]]$2=\"\([0-9]*\)\".*/\1/p" "$1" | head -n 1
}

# Sanitizers of clang 14 fail on kernels that scatter addresses more widely than they know.
without_scatter() {
    if setarch "$(uname -m)" -R true 2>/dev/null; then
        setarch "$(uname -m)" -R "$@"
    else
        "$@"
    fi
}

# run_ctest STEP OPTION...
run_ctest() {
    local step=$1 report=$PWD/build-test-$1/report.xml total bad left
    shift
    rm -f "$report"
    without_scatter ctest --test-dir "build-test-$step" -j "$jobs" --output-on-failure --no-tests=error --output-junit "$report" "$@" ||
        true # the report says more than the status
    total=$(junit "$report" tests)
    bad=$(junit "$report" failures)
    left=$(($(junit "$report" skipped) + $(junit "$report" disabled)))
    record "$step" $((total - bad - left)) "$bad" "$left"
}

step_layers() {
    tests/layers.sh
    record layers 1 0 0
}

step_gcc() {
    build gcc -DCMAKE_C_COMPILER=gcc
    run_ctest gcc
}

step_asan() {
    build asan -DCMAKE_C_COMPILER=clang -DTSOCKET_SANITIZE=address,undefined -DTSOCKET_STEPS=ON
    UBSAN_OPTIONS=print_stacktrace=1 TSOCKET_TEST_SCALE=0.1 run_ctest asan
}

step_tsan() {
    build tsan -DCMAKE_C_COMPILER=clang -DTSOCKET_SANITIZE=thread
    TSAN_OPTIONS="suppressions=$PWD/tests/tsan.supp" TSOCKET_TEST_SCALE=0.1 run_ctest tsan -L threads
}

step_fuzz() {
    build fuzz -DCMAKE_C_COMPILER=clang -DTSOCKET_SANITIZE=address,undefined -DTSOCKET_FUZZ=ON
    tests/fuzz/run.sh build-test-fuzz "${TSOCKET_FUZZ_SECONDS:-20}"
    record fuzz 1 0 0
}

# A step that ends before it has recorded anything has failed.
run_step() {
    local begun=$SECONDS
    echo "=== $1"
    set +e
    (
        set -e
        "step_$1"
    )
    set -e
    grep -q "^$1 " "$counts" || record "$1" 0 1 0
    echo "=== $1: $(awk -v step="$1" '$1 == step {print $2 " passed, " $3 " failed, " $4 " skipped"}' "$counts")," \
        "$((SECONDS - begun)) s"
}

steps=("$@")
[ $# -gt 0 ] || steps=(layers gcc asan tsan fuzz)
for step in "${steps[@]}"; do
    declare -F "step_$step" >/dev/null || {
        echo "test.sh: no step '$step'; there are: layers gcc asan tsan fuzz" >&2
        exit 2
    }
done
scripts/deps.sh test
for step in "${steps[@]}"; do
    run_step "$step"
done
awk '{p += $2; f += $3; s += $4} END {printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0}' "$counts"
