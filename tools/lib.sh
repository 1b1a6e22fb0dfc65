# Shared by the set-up scripts: where things are, and how a step is run and reported.
# shellcheck shell=bash disable=SC2034

PROJECT=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
VENV=$PROJECT/.venv
PYTHON=/usr/bin/python3
LOG=$PROJECT/build/setup.log
export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
export DEBIAN_FRONTEND=noninteractive

mkdir -p "$PROJECT/build"

note() { printf '  setup  %s\n' "$*"; }

die() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

is_root() { [ "$(id -u)" -eq 0 ]; }

# step NAME WHAT-TO-DO COMMAND...: run quietly; on failure show the log's tail, the name and the remedy.
step() {
    local name=$1 remedy=$2
    shift 2
    note "$name"
    if ! "$@" >"$LOG" 2>&1 </dev/null; then
        tail -n 20 "$LOG" >&2
        die "step '$name' failed; $remedy (whole log: $LOG)"
    fi
}
