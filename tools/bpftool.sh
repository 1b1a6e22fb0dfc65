#!/bin/bash
# Print the path of a bpftool that runs. Ubuntu's /usr/sbin/bpftool is a wrapper that runs only
# when the tools of the very kernel in use are there; those of any other kernel do as well.
set -u
for tool in "$(command -v bpftool)" /usr/sbin/bpftool /usr/lib/linux-tools*/*/bpftool /usr/lib/linux-tools-*/bpftool; do
    if [ -x "$tool" ] && "$tool" version >/dev/null 2>&1; then
        echo "$tool"
        exit 0
    fi
done
echo "bpftool: none that runs; try 'make setup'" >&2
exit 1
