#!/bin/bash
# Start Open vSwitch with a large send buffer, and mount the BPF file system.
#
# The userspace datapath sends through a packet socket. With the kernel's default buffer the socket is full before
# the port's queue is, and Open vSwitch drops packets that the queue has room for.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

BUFFER=$((16 * 1024 * 1024))
OVS_CTL=/usr/share/openvswitch/scripts/ovs-ctl

wide_buffers() { raise_to $BUFFER /proc/sys/net/core/wmem_max /proc/sys/net/core/wmem_default; }
wide_now() { [ "$(cat /proc/sys/net/core/wmem_default)" -ge $BUFFER ]; }
running() { ovs-appctl -t ovs-vswitchd version && ovs-vsctl --timeout=5 show; }

# The daemons outlive this script, so they must not inherit open files of its caller (a lock, a pipe).
ovs() {
    if [ -d /run/systemd/system ]; then
        systemctl "$1" openvswitch-switch
    else
        "$OVS_CTL" "$1" --system-id=random --no-mlockall
    fi 3>&- 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
}

# Print the smallest send buffer of ovs-vswitchd's packet sockets; print nothing if it has no such socket.
socket_buffer() {
    ss -0 -p -m | grep -A1 '"ovs-vswitchd"' | grep -o ',tb[0-9]*' | tr -d ',tb' | sort -n | head -n 1
}

if ! is_root; then
    if running >/dev/null 2>&1; then exit 0; fi
    note "Open vSwitch is not running, and only root can start it: skipped"
    exit 0
fi

wide_now || step "send buffers of 16 MiB" "set net.core.wmem_default on the host of this machine" wide_buffers
mountpoint -q /sys/fs/bpf ||
    step "BPF file system" "mount it by hand: mount -t bpf bpf /sys/fs/bpf" mount -t bpf bpf /sys/fs/bpf
running >/dev/null 2>&1 || step "Open vSwitch" "see /var/log/openvswitch" ovs start

small=$(socket_buffer || true)
if [ -n "$small" ] && [ "$small" -lt $BUFFER ]; then
    if [ -z "$(ovs-vsctl list-br)" ]; then
        step "Open vSwitch again, with the larger send buffer" "see /var/log/openvswitch" ovs restart
    else
        note "Open vSwitch has bridges and a send buffer of $small bytes, so it drops packets early: restart it when you can"
    fi
fi
