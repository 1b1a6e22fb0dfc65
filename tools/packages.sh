#!/bin/bash
# System packages, each asked for by what it gives, so that only what is missing is installed.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

has() { command -v "$1" >/dev/null; }
has_lib() { ldconfig -p | grep "$1 " >/dev/null; }
has_module() { "$PYTHON" -c "import $*" 2>/dev/null; }

# The packages whose feature is missing, one a line.
missing() {
    has "$PYTHON" || echo python3
    has_module ensurepip, venv || echo python3-venv
    has_module mininet.net && has mnexec || echo mininet
    has ovs-vswitchd && [ -x /usr/share/openvswitch/scripts/ovs-ctl ] || echo openvswitch-switch
    has clang || echo clang
    has llvm-strip || echo llvm
    has cc && [ -e /usr/include/stdio.h ] || echo gcc libc6-dev
    has_lib libbpf.so.1 && [ -e /usr/include/bpf/bpf_helpers.h ] || echo libbpf-dev
    "$PROJECT/tools/bpftool.sh" >/dev/null 2>&1 || bpftool_packages
    has ip && has tc && has ss || echo iproute2
    has ifconfig || echo net-tools # Mininet asks for it
    has ethtool || echo ethtool
    has tcpdump || echo tcpdump
    has iperf3 || echo iperf3
    has ping || echo iputils-ping
    has chromium && has chromedriver || echo chromium chromium-driver
    has fc-list && [ -n "$(fc-list)" ] || echo fonts-dejavu-core fontconfig
    has git || echo git
    has java || echo default-jre-headless # the tests' HTML checker runs on it
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || echo postgresql # a test starts one of its own
}

# Debian has a package bpftool; on Ubuntu it comes with the kernel's tools.
bpftool_packages() {
    if apt-cache policy bpftool 2>/dev/null | grep "Candidate: [0-9]" >/dev/null; then
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
has apt-get || die "no apt here; install what gives: $wanted (Debian's names), then run this again"
is_root || die "these packages are missing and need root: $wanted (sudo make setup)"

step "package lists" "is the network up, are apt's sources right?" apt-get update
wanted=$(missing | xargs)
# shellcheck disable=SC2086  # one word a package
step "system packages: $wanted" "run 'apt-get install $wanted' by hand" install_packages $wanted
wanted=$(missing | xargs)
[ -z "$wanted" ] || die "installed, yet still without what these give: $wanted"
