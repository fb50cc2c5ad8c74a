#!/bin/sh
# Everything that only a real GPU can show, in one call with prebuilt binaries:
#
#     cargo build --release --features nccl --examples    # here, or on another machine
#     cargo build --release -p commtrace-cli
#     scripts/gpu-check.sh [FOLDER [COMMTRACE]]            # default: target/release/examples and target/release/commtrace
#
# Prints one verdict a line: PASS, FAIL or SKIP, with the figure. The exit status is 1 if one failed and 2
# if nothing could be checked. docs/gpu.md says when it was last run, and on what.
set -u

folder=${1:-"$(dirname "$0")/../target/release/examples"}
commtrace=${2:-"$folder/../commtrace"}
for program in gpu_check ddp_train; do
    if [ ! -x "$folder/$program" ]; then
        echo "$folder/$program is missing: cargo build --release --features nccl --examples" >&2
        exit 2
    fi
done

# Two ranks on one card, where there is one only.
export NCCL_MULTI_RANK_GPU_ENABLE="${NCCL_MULTI_RANK_GPU_ENABLE:-1}"
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT COMMTRACE COMMTRACE_DIR COMMTRACE_STEPS COMMTRACE_RANKS
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT

status=0
"$folder/gpu_check" || status=$?
[ "$status" -eq 2 ] && exit 2

# Arguments: what is checked, how training is called.
train() {
    what=$1
    shift
    if ! "$folder/ddp_train" --backend nccl --steps 20 --hidden 256 "$@" >"$work/out" 2>"$work/err"; then
        echo "FAIL $what: $(tail -n 1 "$work/err")"
        status=1
    elif ! grep -q 'bit-identical on all ranks' "$work/out"; then
        echo "FAIL $what: no rank compared the weights"
        status=1
    else
        echo "PASS $what: $(grep '^loss ' "$work/out")"
    fi
}

COMMTRACE_DIR=$work/off train 'ddp_train --backend nccl' --overlap off
COMMTRACE_DIR=$work/on train 'ddp_train --backend nccl --overlap on' --overlap on --bucket-kib 128
COMMTRACE=off train 'ddp_train --backend nccl, untraced'
for run in off on; do
    if grep -q '"device": *[0-9]' "$work/$run/summary.json" 2>/dev/null; then
        echo "PASS report of ddp_train, overlap $run: $(grep -m 1 'Overlap' "$work/$run/report.txt" | sed 's/^ *//')"
    else
        echo "FAIL report of ddp_train, overlap $run: nothing in it was timed on a device"
        status=1
    fi
done

# The experiments, small. Argument: which one, its options.
experiment() {
    name=$1
    shift
    if "$commtrace" bench "$name" --backend nccl --dry-run=false -o "$work/bench" "$@" >"$work/out" 2>"$work/err"; then
        echo "PASS bench $name: $(grep -m 1 '^# decision' "$work/out" | cut -c 13-)"
    elif grep -q '^# failed: .*libcublas' "$work/out"; then
        echo "SKIP bench $name: $(grep -m 1 '^# failed' "$work/out" | cut -c 11-)"
    else
        echo "FAIL bench $name: $(grep -m 1 '^# failed' "$work/out" "$work/err" | cut -c 1-300)"
        status=1
    fi
}

if [ -x "$commtrace" ]; then
    experiment collectives --payload-elements 65536,1048576 --repeats 10 --timeout 100
    experiment overlap --timeout 100
else
    echo "SKIP bench: $commtrace is missing: cargo build --release -p commtrace-cli"
fi
exit "$status"
