#!/bin/bash
# Make the virtual environment .venv on the system's Python, again whenever one of its inputs has changed.
# It is isolated from the system's Python packages, except Mininet, which is linked in: PyPI does not have it.
# pip accepts only the files whose hashes are in tools/requirements-*.txt (tools/lock.py writes them).
#
# usage: venv.sh [--production]   without the packages of tests, checks, documentation and lab, and without Mininet
set -euo pipefail
. "$(dirname "$0")/lib.sh"

STAMP=$VENV/weir-stamp
PIP=("$VENV/bin/python" -m pip --quiet --disable-pip-version-check install)
LISTED=("${PIP[@]}" --require-hashes --no-build-isolation)
PRODUCTION=
[ "${1:-}" != --production ] || PRODUCTION=yes

list() { echo "$PROJECT/tools/requirements-$1.txt"; }

fingerprint() {
    echo "$PROJECT${PRODUCTION:+ without test tools}"
    "$PYTHON" --version
    cd "$PROJECT" && sha256sum pyproject.toml tools/requirements-*.txt tools/venv.sh tools/ryu_build/*.py
}

# Ryu's build imports a name that setuptools no longer has; ryu_build/sitecustomize.py supplies it.
install_packages() {
    local lists=(-r "$(list run)")
    [ -n "$PRODUCTION" ] || lists+=(-r "$(list dev)")
    PYTHONWARNINGS=ignore PYTHONPATH=$PROJECT/tools/ryu_build "${LISTED[@]}" "${lists[@]}"
}

# Every dependency is in the lists, so pip installs nothing else here.
install_weir() {
    "${PIP[@]}" --no-deps --no-build-isolation -e "$PROJECT" && "$VENV/bin/python" -m pip --quiet check
}

link_mininet() {
    local from to
    from=$("$PYTHON" -c 'import mininet, os; print(os.path.dirname(mininet.__file__))') &&
        to=$("$VENV/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') &&
        ln -sfn "$from" "$to/mininet" &&
        "$VENV/bin/python" -c 'import mininet.net'
}

made_of=$(fingerprint)
made_before=$(cat "$STAMP" 2>/dev/null || true)
[ "$made_of" != "$made_before" ] || exit 0
"$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$PYTHON is $("$PYTHON" --version); Weir needs Python 3.11 or later (Debian 12, Ubuntu 24.04)"

[ -w "$PROJECT" ] || die ".venv must be made or updated, but user $(id -un) may not write to $PROJECT"

# With the same folder and the same Python, update the environment in place. Otherwise, or after an interrupted
# set-up, make it from scratch.
fresh=(--clear)
[ "$(head -n 2 <<<"$made_of")" != "$(head -n 2 <<<"$made_before")" ] || fresh=()

net="check that the Python package index can be reached"
rm -f "$STAMP"
step "virtual environment $VENV" "remove .venv and run this again" "$PYTHON" -m venv "${fresh[@]}" "$VENV"
step "build tools" "$net" "${LISTED[@]}" -r "$(list build)"
step "Python packages" "$net" install_packages
step "Weir" "see the log" install_weir
[ -n "$PRODUCTION" ] || step "Mininet from the system's Python" "reinstall the package mininet" link_mininet
printf '%s\n' "$made_of" >"$STAMP"
