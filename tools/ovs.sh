#!/bin/bash
# Open vSwitch running with a send buffer that keeps queues true, and the BPF file system mounted.
#
# The userspace datapath sends through a packet socket. With the buffer as shipped that socket
# fills at about 92 full-size packets, and OVS drops what the port's queue should have held.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BUFFER=$((16 * 1024 * 1024))
OVS_CTL=/usr/share/openvswitch/scripts/ovs-ctl

wide_buffers() {
    echo $BUFFER >/proc/sys/net/core/wmem_max && echo $BUFFER >/proc/sys/net/core/wmem_default
}

wide_now() { [ "$(cat /proc/sys/net/core/wmem_default)" -ge $BUFFER ]; }
running() { ovs-appctl -t ovs-vswitchd version && ovs-vsctl --timeout=5 show; }

# The daemons outlive this script: they get none of its caller's open files (a lock, a pipe).
ovs() {
    if [ -d /run/systemd/system ]; then
        systemctl "$1" openvswitch-switch
    else
        "$OVS_CTL" "$1" --system-id=random --no-mlockall
    fi 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
}

# The smallest send buffer among ovs-vswitchd's packet sockets; nothing if it has none.
socket_buffer() {
    ss -0 -p -m | grep -A1 '"ovs-vswitchd"' | grep -o ',tb[0-9]*' | tr -d ',tb' | sort -n | head -n 1
}

if ! is_root; then
    if running >/dev/null 2>&1; then exit 0; fi
    note "Open vSwitch is not running, and starting it needs root: left out"
    exit 0
fi

wide_now || step "send buffers of 16 MiB" "set net.core.wmem_default where this machine is run from" wide_buffers
mountpoint -q /sys/fs/bpf ||
    step "BPF file system" "mount it by hand: mount -t bpf bpf /sys/fs/bpf" mount -t bpf bpf /sys/fs/bpf
running >/dev/null 2>&1 || step "Open vSwitch" "see /var/log/openvswitch" ovs start

small=$(socket_buffer || true)
if [ -n "$small" ] && [ "$small" -lt $BUFFER ]; then
    if [ -z "$(ovs-vsctl list-br)" ]; then
        step "Open vSwitch again, with the larger send buffer" "see /var/log/openvswitch" ovs restart
    else
        note "Open vSwitch has bridges and still sends with $small bytes of buffer: it hides drops until restarted"
    fi
fi
