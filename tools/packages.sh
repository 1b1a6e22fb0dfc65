#!/bin/bash
# Install the system packages whose programs, libraries or modules are missing.
# usage: packages.sh [--production]   without the packages of the lab, the tests and the documentation
set -euo pipefail
. "$(dirname "$0")/lib.sh"

MODE=${1:-}
UPDATED= # the lists of packages are new

has() { command -v "$1" >/dev/null; }
has_lib() { ldconfig -p | grep "$1 " >/dev/null; }
has_candidate() { apt-cache policy "$1" 2>/dev/null | grep "Candidate: [0-9]" >/dev/null; }
# Without lists of packages apt does not know which packages the distribution has.
has_package_lists() { apt-cache policy 2>/dev/null | grep " Packages$" >/dev/null; }
has_module() { "$PYTHON" -c "import $*" 2>/dev/null; }

# Print the packages whose feature is missing.
missing() {
    missing_to_run
    [ "$MODE" = --production ] || missing_to_test
}

missing_to_run() {
    has "$PYTHON" || echo python3
    has_module ensurepip, venv || echo python3-venv
    has ovs-vswitchd && [ -x /usr/share/openvswitch/scripts/ovs-ctl ] || echo openvswitch-switch
    has clang || echo clang
    has llvm-strip || echo llvm
    has cc && [ -e /usr/include/stdio.h ] || echo gcc libc6-dev
    has_lib libbpf.so.1 && [ -e /usr/include/bpf/bpf_helpers.h ] || echo libbpf-dev
    "$PROJECT/tools/bpftool.sh" >/dev/null 2>&1 || bpftool_packages
    has cargo && has rustc || echo cargo rustc
    has ip && has tc && has ss || echo iproute2
}

missing_to_test() {
    has_module mininet.net && has mnexec || echo mininet
    has ifconfig || echo net-tools # Mininet uses it
    has ethtool || echo ethtool
    has tcpdump || echo tcpdump
    has iperf3 || echo iperf3
    has g++ && [ -e /usr/include/udt/udt.h ] || echo g++ libudt-dev # the lab's scheme udt
    has ping || echo iputils-ping
    has chromium && has chromedriver || chromium_packages
    has fc-list && [ -n "$(fc-list)" ] || echo fonts-dejavu-core fontconfig
    has git || echo git
    has systemd-analyze || echo systemd # rates the units
    has npm || echo npm # fetches the documentation's Mermaid
    has java || echo default-jre-headless # the tests' HTML checker runs on Java
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || echo postgresql # tests start a server of their own
}

# Ubuntu has Chromium only as a snap. There the tests of the web tier are skipped, which pytest's summary says.
chromium_packages() {
    if has_candidate chromium || { [ -z "$UPDATED" ] && ! has_package_lists; }; then
        echo chromium chromium-driver
    fi
}

# Debian has a package named bpftool; on Ubuntu it is part of the kernel's tools.
bpftool_packages() {
    if has_candidate bpftool; then
        echo bpftool
    else
        echo linux-tools-common linux-tools-generic
    fi
}

install_packages() {
    apt-get install -y --no-install-recommends "$@"
}

wanted=$(missing | xargs)
[ -n "$wanted" ] || exit 0
has apt-get || die "this machine has no apt: install the equivalents of these Debian packages, then run this again: $wanted"
is_root || die "these packages are missing, and only root can install them: $wanted (run: sudo make setup)"

step "package lists" "check the network and the sources of apt" apt-get update
UPDATED=yes
wanted=$(missing | xargs)
[ -n "$wanted" ] || exit 0
# shellcheck disable=SC2086  # one word for each package
step "system packages: $wanted" "run 'apt-get install $wanted' by hand" install_packages $wanted
wanted=$(missing | xargs)
[ -z "$wanted" ] || die "these packages are installed, but their programs or libraries are still missing: $wanted"
