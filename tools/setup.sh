#!/bin/bash
# All that `make demo` and `make test` need. Asks nothing; costs a second when all is there.
set -euo pipefail
here=$(dirname "$0")
"$here/packages.sh"
"$here/venv.sh"
"$here/ovs.sh"
