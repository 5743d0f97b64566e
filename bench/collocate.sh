#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What K trainers on one GPU get together, by how the GPU is shared:
#
#     plain    processes that take turns on it
#     mps      clients of MPS, where its control daemon is running already
#     mig      one trainer in each MIG instance, where there are some
#
# Each time one tsocketd feeds all of them; trainers are examples/trainer_cuda. No setting of the GPU is changed and no
# daemon of NVIDIA's is started or stopped: docs/collocation.md says how to do that. BUILD names another build folder
# than build/.
#
#     bench/collocate.sh [--trainers K] [--epochs N] [--batch N] [--data FOLDER|synthetic:COUNTxHEIGHTxWIDTH] [--json]
set -euo pipefail

top=$(cd "$(dirname "$0")/.." && pwd)
build=${BUILD:-$top/build}
trainers=4
epochs=3
batch=64
data=synthetic:8192x128x128
json=
daemon=
first=yes

usage() {
    sed -n '3,14s/^# \{0,1\}//p' "$0"
}

fail() {
    echo "collocate.sh: $*" >&2
    exit 1
}

parse() {
    while [ $# -gt 0 ]; do
        case $1 in
        --trainers | --epochs | --batch)
            [[ ${2:-} =~ ^[1-9][0-9]*$ ]] || {
                echo "collocate.sh: $1 ${2:-}: a number from 1 on is needed" >&2
                exit 2
            }
            printf -v "${1#--}" %s "$2"
            shift 2
            ;;
        --data)
            data=${2:?--data needs a folder}
            shift 2
            ;;
        --json)
            json=yes
            shift
            ;;
        --help)
            usage
            exit 0
            ;;
        *)
            usage >&2
            exit 2
            ;;
        esac
    done
    [ "$epochs" -ge 2 ] || {
        echo "collocate.sh: --epochs $epochs: 2 or more are needed, as the first one is not counted" >&2
        exit 2
    }
}

clean_up() {
    [ -z "$daemon" ] || kill "$daemon" 2>/dev/null || true
    wait
    rm -rf "$scratch"
}

# Where MPS's control daemon would have its pipes.
mps_pipes() {
    echo "${CUDA_MPS_PIPE_DIRECTORY:-/tmp/nvidia-mps}"
}

mig_instances() {
    command -v nvidia-smi >/dev/null && nvidia-smi -L | grep -o 'MIG-[0-9a-fA-F-]*' || true
}

# Whether only MPS's server may use the GPU: then tsocketd has to be a client of it, too.
is_exclusive() {
    command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=compute_mode --format=csv,noheader | grep -q Exclusive
}

# outside COMMAND...: not as a client of MPS.
outside() {
    CUDA_MPS_PIPE_DIRECTORY=$scratch/no-mps "$@"
}

# What a trainer's log comes to, in samples per second, the first epoch left out: it waits for the others to come.
rate_of() {
    awk -F'[:,]' '/"own_epoch":0,/ {next}
        {for (i = 1; i < NF; i++) {if ($i == "\"samples\"") n += $(i + 1); if ($i == "\"seconds\"") s += $(i + 1)}}
        END {printf "%.0f", (s > 0 ? n / s : 0)}' "$1"
}

print_rates() { # MODE RATE...
    local mode=$1 sum=0 rate
    shift
    for rate in "$@"; do
        sum=$((sum + rate))
    done
    if [ -n "$json" ]; then
        printf '%s{"mode":"%s","trainers":%d,"samples_per_s":[%s],"sum":%d}' "${first:+}${first:-,}" "$mode" $# \
            "$(IFS=,; echo "$*")" "$sum" | sed 's/^yes//'
    else
        printf '%-6s %8d   %10d   %s\n' "$mode" $# "$sum" "$*"
    fi
    first=
}

# run MODE DEVICE: a daemon that is run by `daemon_by`, and trainers by `trainer_by NUMBER`.
run() {
    local mode=$1 device=$2 pids=() rates=() i
    $daemon_by "$build/tsocketd" -q --name collocate --device "$device" --size 64 --max-batch "$batch" \
        --epochs "$epochs" --wait-for "$trainers" --join-grace 0s "$data" 2>"$scratch/tsocketd.log" &
    daemon=$!
    for ((i = 0; i < trainers; i++)); do
        trainer_by "$mode" "$i" "$build/examples/trainer_cuda" collocate --batch "$batch" --epochs "$epochs" \
            --classes 1000 --json >"$scratch/$i.json" 2>"$scratch/$i.log" &
        pids+=($!)
    done
    for ((i = 0; i < trainers; i++)); do
        wait "${pids[i]}" || fail "$mode: trainer $i failed: $(cat "$scratch/$i.log" "$scratch/tsocketd.log")"
        rates+=("$(rate_of "$scratch/$i.json")")
    done
    wait "$daemon" || fail "$mode: tsocketd failed: $(cat "$scratch/tsocketd.log")"
    daemon=
    print_rates "$mode" "${rates[@]}"
}

trainer_by() { # MODE NUMBER COMMAND...
    local mode=$1 number=$2
    shift 2
    case $mode in
    plain) outside "$@" ;;
    mps) "$@" ;;
    mig) CUDA_VISIBLE_DEVICES=${instances[number]} outside "$@" ;;
    esac
}

# Those who are not there say why, where nobody reads numbers.
skip() {
    [ -n "$json" ] || printf '%-6s not here: %s\n' "$1" "$2"
}

run_mps() {
    [ -e "$(mps_pipes)/control" ] || {
        skip mps "no control daemon has pipes in $(mps_pipes)"
        return 0
    }
    daemon_by=outside
    ! is_exclusive || daemon_by=env
    run mps cuda
}

run_mig() {
    mapfile -t instances < <(mig_instances)
    [ ${#instances[@]} -gt 0 ] || {
        skip mig "nvidia-smi -L shows no instance"
        return 0
    }
    trainers=${#instances[@]}
    daemon_by=outside
    run mig host # a process sees one instance, and instances do not see each other's memory
}

main() {
    parse "$@"
    "$top/scripts/build.sh" tsocketd tsocketctl trainer_cuda
    scratch=$(mktemp -d)
    trap clean_up EXIT
    export TSOCKET_DIR=$scratch/run
    mkdir "$TSOCKET_DIR" "$scratch/no-mps"
    if "$build/tsocketctl" doctor 2>/dev/null | grep -q 'Simulated GPU'; then
        [ -n "$json" ] || echo "SIMULATED: the figures say nothing about any card."
        simulated=true
    else
        simulated=false
    fi
    [ -n "$json" ] && printf '{"simulated":%s,"runs":[' "$simulated" ||
        echo "mode   trainers   samples/s in all   each"
    instances=()
    if [ -z "$(mig_instances)" ]; then
        daemon_by=outside
        run plain cuda
    else
        skip plain "the GPU is in MIG mode"
    fi
    run_mps
    run_mig
    [ -z "$json" ] || echo "]}"
}

main "$@"
