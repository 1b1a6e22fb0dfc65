#!/bin/bash
# Print the path of a bpftool that runs. Ubuntu's /usr/sbin/bpftool is a wrapper that runs only if the tools of the
# running kernel's exact version are installed. A bpftool of any other kernel version works as well.
set -u
for tool in "$(command -v bpftool)" /usr/sbin/bpftool /usr/lib/linux-tools*/*/bpftool /usr/lib/linux-tools-*/bpftool; do
    if [ -x "$tool" ] && "$tool" version >/dev/null 2>&1; then
        echo "$tool"
        exit 0
    fi
done
echo "no bpftool runs on this machine; run 'make setup'" >&2
exit 1
