# Shared by the set-up scripts: paths, and a function that runs a step and reports a failure.
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

# raise_to LEAST FILE...: write LEAST to each FILE that holds a smaller number.
raise_to() {
    local least=$1 file
    shift
    for file in "$@"; do
        [ "$(cat "$file")" -ge "$least" ] || echo "$least" >"$file" || return 1
    done
}

# step NAME REMEDY COMMAND...: run COMMAND quietly. On failure print the end of its log, NAME and REMEDY, and exit.
step() {
    local name=$1 remedy=$2
    shift 2
    note "$name"
    if ! "$@" >"$LOG" 2>&1 </dev/null; then
        tail -n 20 "$LOG" >&2
        die "step '$name' failed; $remedy (whole log: $LOG)"
    fi
}
