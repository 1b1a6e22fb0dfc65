#!/bin/bash
# Run a command on a distribution's own kernel, in QEMU. It sees the files of this machine below an overlay, so that it
# changes none of them. It prints the output of the command, and exits with its status.
#
# usage: stock_kernel.sh PACKAGE COMMAND...
#   PACKAGE: a Debian package with a kernel, or one that depends on it, such as linux-image-amd64
# environment: WEIR_VM_MB (memory, 6000), WEIR_VM_CPUS (2), WEIR_VM_KVM (yes: use KVM)
#
# Without KVM QEMU translates each instruction: programs take 10 to 30 times as long. KVM is not the default, because a
# machine may offer /dev/kvm with which no guest boots.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

[ $# -ge 2 ] || die "usage: stock_kernel.sh PACKAGE COMMAND..."
[ "$(id -u)" -eq 0 ] || die "the virtual machine needs root to read this machine's files"
[ "$(uname -m)" = x86_64 ] || die "only x86-64 is implemented; this machine is $(uname -m)"

package=$1
shift
case $package in
    *[0-9].[0-9]*) ;;
    *) package=$(apt-cache depends "$package" 2>/dev/null | awk '/Depends: linux-image/ { print $2; exit }') ;;
esac
[ -n "$package" ] || die "apt knows no kernel by this name; run apt-get update, or name another package"
kernel=$PROJECT/build/stock-kernel/$package
share=$(mktemp -d)
trap 'rm -rf "$share"' EXIT

install_tools() {
    local tool
    for tool in qemu-system-x86_64 busybox cpio depmod; do
        command -v "$tool" >/dev/null && continue
        step "QEMU" "run apt-get update" apt-get install -y -q --no-install-recommends \
            qemu-system-x86 seabios busybox-static cpio kmod
        return
    done
}

# The kernel and its modules, without the files that the package would install for a boot loader. `step` calls this in a
# condition, in which bash does not end at the first failure.
unpack_kernel() {
    local partial=$kernel.part
    rm -rf "$partial" && mkdir -p "$partial" &&
        (cd "$partial" && apt-get download -q "$package" && dpkg -x ./*.deb . && rm ./*.deb) &&
        depmod -b "$partial" "$(ls "$partial/lib/modules")" &&
        mv "$partial" "$kernel"
}

# The modules that the first file system needs, in their order.
first_modules() {
    local module
    for module in virtio_pci 9pnet_virtio 9p overlay; do
        modprobe -d "$kernel" -S "$(ls "$kernel/lib/modules")" --show-depends "$module" | awk '/^insmod/ { print $2 }'
    done | awk '!seen[$0]++'
}

# An initial file system that mounts this machine's files by 9p, and an overlay in memory above them.
make_initrd() {
    local root=$kernel/initrd module
    rm -rf "$root"
    mkdir -p "$root"/{bin,modules,lower,over,new,proc,sys,dev}
    cp "$(command -v busybox)" "$root/bin/"
    first_modules | while read -r module; do
        cp "$module" "$root/modules/"
        echo "/modules/$(basename "$module")"
    done >"$root/order"
    cat >"$root/init" <<'END'
#!/bin/busybox sh
PATH=/bin
alias mount='busybox mount'
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
for module in $(busybox cat /order); do busybox insmod $module || echo "cannot insert $module"; done
mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=512000 root /lower
mount -t tmpfs -o size=80% tmpfs /over; busybox mkdir /over/upper /over/work
mount -t overlay -o lowerdir=/lower,upperdir=/over/upper,workdir=/over/work overlay /new
mount -t proc proc /new/proc; mount -t sysfs sys /new/sys; mount -t devtmpfs dev /new/dev
mount -t bpf bpf /new/sys/fs/bpf; mount -t cgroup2 none /new/sys/fs/cgroup
mount -t debugfs debugfs /new/sys/kernel/debug; mount -t tracefs tracefs /new/sys/kernel/tracing
busybox mkdir -p /new/dev/pts /new/dev/shm /new/mnt
mount -t devpts devpts /new/dev/pts; mount -t tmpfs tmpfs /new/dev/shm; mount -t tmpfs tmpfs /new/run
mount -t 9p -o trans=virtio,version=9p2000.L share /new/mnt
exec busybox switch_root /new /bin/bash /mnt/job
END
    chmod +x "$root/init"
    (cd "$root" && find . | cpio --quiet -o -H newc | gzip -1) >"$kernel/initrd.part"
    mv "$kernel/initrd.part" "$kernel/initrd.gz"
    rm -rf "$root"
}

# What the virtual machine does.
write_job() {
    local release
    release=$(ls "$kernel/lib/modules")
    cat >"$share/job" <<END
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mkdir -p /lib/modules && rm -rf /lib/modules/$release && ln -s $kernel/lib/modules/$release /lib/modules/$release
ip link set lo up
modprobe tun
cd $PROJECT
$(printf '%q ' "$@")
echo \$? >/mnt/status
echo o >/proc/sysrq-trigger
sleep 60
END
}

install_tools
[ -d "$kernel" ] || step "kernel $package" "run apt-get update" unpack_kernel
[ -e "$kernel/initrd.gz" ] || make_initrd
write_job "$@"
cpu=(-cpu max)
[ "${WEIR_VM_KVM:-}" != yes ] || cpu=(-enable-kvm -cpu host)
qemu-system-x86_64 -M q35 "${cpu[@]}" -m "${WEIR_VM_MB:-6000}" -smp "${WEIR_VM_CPUS:-2}" -nodefaults -no-reboot \
    -display none -serial stdio -kernel "$kernel"/boot/vmlinuz-* -initrd "$kernel/initrd.gz" \
    -append "console=ttyS0 quiet panic=-1 mitigations=off" \
    -fsdev local,id=root,path=/,security_model=passthrough,readonly=on,multidevs=remap \
    -device virtio-9p-pci,fsdev=root,mount_tag=root \
    -fsdev local,id=share,path="$share",security_model=passthrough \
    -device virtio-9p-pci,fsdev=share,mount_tag=share </dev/null
exit "$(cat "$share/status" 2>/dev/null || echo 1)"
