#!/bin/bash
# Install everything that `make demo` and `make test` need. Asks nothing; takes a second if nothing is missing.
#
# usage: setup.sh [--production]   only what the agent, the controllers and the dashboard need
set -euo pipefail
here=$(dirname "$0")
"$here/packages.sh" "$@"
"$here/venv.sh" "$@"
"$here/ovs.sh"
