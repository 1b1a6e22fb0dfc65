"""libbpf through cffi: objects, maps, programs, links, struct_ops, ring buffers, XDP, tc.

Errors of the kernel and of the library are raised as BpfError with the last lines that libbpf printed. For a
program that the kernel refuses, these lines are the verifier's verdict. Requires libbpf 1.0 or later.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cffi import FFI

from libbpf_cffi.declarations import BpfError, c_path, check, check_pointer, ffi, lib

__all__ = ["BpfError", "Link", "Map", "MapShape", "Object", "PerCpuMap", "PinnedMap", "RingBuffer"]

XDP_NATIVE = 1 << 2
XDP_GENERIC = 1 << 1
TC_INGRESS = 1
TC_EGRESS = 2
_XDP_ONLY_IF_FREE = 1 << 0
_TC_REPLACE = 1 << 0
_TC_PRIORITY = 7
_NOEXIST = 1
_HEADROOM_BYTES = 256
"""By how much a program may lengthen a packet in ``run``."""
_MOST_MAPS = 64
PROGRAM_NAME_MAX = 15
"""The characters of a program's name that the kernel keeps (BPF_OBJ_NAME_LEN - 1)."""


@dataclass(frozen=True, slots=True)
class MapShape:
    """The kind and the sizes of a map. A map takes the place of another one only if they are equal."""

    kind: int
    key_bytes: int
    value_bytes: int
    max_entries: int


@dataclass(frozen=True, slots=True)
class PinnedMap:
    """A pinned map: its shape, and its types in the kernel's BTF object ``btf_id`` (0: it has none)."""

    shape: MapShape
    btf_id: int
    key_type: int
    value_type: int


def byte_types(shape: MapShape) -> FFI:
    """``struct key`` and ``struct value``: bytes, as many as the keys and values of such a map have."""
    types = FFI()
    types.cdef(
        f"struct key {{ unsigned char bytes[{shape.key_bytes}]; }};"
        f"struct value {{ unsigned char bytes[{shape.value_bytes}]; }};"
    )
    return types


class Map:
    """A BPF map. Its keys and values are cdata of the C types ``key`` and ``value`` of ``types``.

    ``value_bytes`` is the size of a value.
    """

    def __init__(self, fd: int, types: FFI, key: str, value: str, name: str = "map") -> None:
        self.fd = fd
        self.name = name
        self._ffi, self._key, self._value = types, key + " *", value + " *"
        self.value_bytes = types.sizeof(value)

    @classmethod
    def pinned(cls, path: Path, types: FFI, key: str, value: str) -> Map:
        """Open a pinned map. The caller closes ``fd``. Raises BpfError if nothing is pinned there."""
        return cls(check(lib().bpf_obj_get(c_path(path)), f"open {path}"), types, key, value, path.name)

    @classmethod
    def of_program(cls, program_id: int, name: str, types: FFI, key: str, value: str) -> Map:
        """Open a map that a loaded program uses. The caller closes ``fd``.

        ``name`` is cut to PROGRAM_NAME_MAX characters, as the kernel keeps it. Raises BpfError (ENOENT: the
        program is gone or has no such map).
        """
        for map_id in maps_of(program_id):
            fd = check(lib().bpf_map_get_fd_by_id(map_id), f"open map {map_id}")
            info = ffi.new("struct map_info *")
            _read_info(fd, info, f"read about map {map_id}")
            if ffi.string(info.name).decode() == name[:PROGRAM_NAME_MAX]:
                return cls(fd, types, key, value, name)
            os.close(fd)
        raise BpfError(errno.ENOENT, f"program {program_id} has no map {name}")

    def key(self, *fields: Any) -> Any:
        """A new key. ``fields`` initialises it as in ffi.new."""
        return self._ffi.new(self._key, *fields)

    def value(self, *fields: Any) -> Any:
        """A new value. ``fields`` initialises it as in ffi.new."""
        return self._ffi.new(self._value, *fields)

    def get(self, key: Any) -> Any | None:
        """A copy of the value, or None if the map does not have the key."""
        value = self.value()
        if lib().bpf_map_lookup_elem(self.fd, self._raw(key), self._raw(value)) < 0:
            if ffi.errno == errno.ENOENT:
                return None
            check(-1, f"read {self.name}")
        return value

    def put(self, key: Any, value: Any, *, only_new: bool = False) -> bool:
        """Write an entry. With ``only_new``, False if the key exists. Raises BpfError (E2BIG: full)."""
        flags = _NOEXIST if only_new else 0
        if lib().bpf_map_update_elem(self.fd, self._raw(key), self._raw(value), flags) < 0:
            if only_new and ffi.errno == errno.EEXIST:
                return False
            check(-1, f"write {self.name}")
        return True

    def delete(self, key: Any) -> bool:
        """Remove an entry. False if the key does not exist."""
        if lib().bpf_map_delete_elem(self.fd, self._raw(key)) < 0:
            if ffi.errno == errno.ENOENT:
                return False
            check(-1, f"delete in {self.name}")
        return True

    def keys(self) -> Iterator[Any]:
        """Copies of all keys. Keys that are added or removed meanwhile may be missed or repeated."""
        key: Any = None
        while True:
            following = self.key()
            previous = ffi.NULL if key is None else self._raw(key)
            if lib().bpf_map_get_next_key(self.fd, previous, self._raw(following)) < 0:
                if ffi.errno == errno.ENOENT:
                    return
                check(-1, f"walk {self.name}")
            yield following
            key = following

    def items(self) -> Iterator[tuple[Any, Any]]:
        """All keys and values. The keys are read before the first value."""
        for key in list(self.keys()):
            value = self.get(key)
            if value is not None:
                yield key, value

    def values(self, first: int, count: int) -> bytes:
        """The values of ``count`` entries of an array, from index ``first`` on, read by one call.

        The values of a per-CPU array follow one another, each with its CPUs. Raises BpfError.
        """
        values, keys = bytearray(count * self.value_bytes), ffi.new("uint32_t[]", count)
        before = ffi.NULL if first == 0 else ffi.new("uint32_t *", first - 1)
        last, found = ffi.new("uint32_t *"), ffi.new("uint32_t *", count)
        done = lib().bpf_map_lookup_batch(
            self.fd, before, last, keys, ffi.from_buffer(values), found, ffi.NULL
        )
        if done < 0 and ffi.errno != errno.ENOENT:
            check(-1, f"read {self.name}")
        return bytes(values)

    def peek(self) -> bool:
        """Whether a queue map has an entry."""
        if lib().bpf_map_lookup_elem(self.fd, ffi.NULL, self._raw(self.value())) < 0:
            if ffi.errno == errno.ENOENT:
                return False
            check(-1, f"read {self.name}")
        return True

    def size(self) -> int:
        """The most entries that the map can hold."""
        info = ffi.new("struct map_info *")
        _read_info(self.fd, info, f"read about {self.name}")
        return int(info.max_entries)

    def mapped(self) -> mmap.mmap:
        """All values of a BPF_F_MMAPABLE array as memory that can be read. The caller closes it."""
        info = ffi.new("struct map_info *")
        _read_info(self.fd, info, f"read about {self.name}")
        return mmap.mmap(self.fd, info.value_size * info.max_entries, prot=mmap.PROT_READ)

    def _raw(self, cdata: Any) -> Any:
        return ffi.cast("void *", int(self._ffi.cast("uintptr_t", cdata)))


class PerCpuMap(Map):
    """A map with one value for each CPU. They are read and written as an array."""

    def __init__(self, fd: int, types: FFI, key: str, value: str, name: str = "map") -> None:
        super().__init__(fd, types, key, value, name)
        self._value = f"{value}[{check(lib().libbpf_num_possible_cpus(), 'count the CPUs')}]"
        self.value_bytes = types.sizeof(self._value)


class Object:
    """A BPF object file: open it, pin or resize its maps, load it, then find its programs and maps."""

    def __init__(self, path: Path) -> None:
        self._pointer = check_pointer(lib().bpf_object__open_file(c_path(path), ffi.NULL), f"open {path}")
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def pin_maps(self, folder: Path) -> None:
        """Before load: pin each map under its name. A map that is already pinned there is reused."""
        pointer = lib().bpf_object__next_map(self._pointer, ffi.NULL)
        while pointer != ffi.NULL:
            name = ffi.string(lib().bpf_map__name(pointer)).decode()
            if "." not in name:
                check(lib().bpf_map__set_pin_path(pointer, c_path(folder / name)), f"pin map {name}")
            pointer = lib().bpf_object__next_map(self._pointer, pointer)

    def use_pinned(self, name: str, path: Path) -> None:
        """Before load: use the map that is pinned at ``path`` in place of the object's map ``name``.

        Without a pin, load() pins the object's own map there. Raises BpfError.
        """
        check(lib().bpf_map__set_pin_path(self._map(name), c_path(path)), f"use map {name}")

    def shapes(self) -> dict[str, MapShape]:
        """The shapes of the maps that are pinned, by name. Call it before load."""
        found = {}
        pointer = lib().bpf_object__next_map(self._pointer, ffi.NULL)
        while pointer != ffi.NULL:
            name = ffi.string(lib().bpf_map__name(pointer)).decode()
            if "." not in name:
                found[name] = MapShape(
                    lib().bpf_map__type(pointer),
                    lib().bpf_map__key_size(pointer),
                    lib().bpf_map__value_size(pointer),
                    lib().bpf_map__max_entries(pointer),
                )
            pointer = lib().bpf_object__next_map(self._pointer, pointer)
        return found

    def resize(self, name: str, max_entries: int) -> None:
        """Before load: set the number of entries of a map."""
        check(lib().bpf_map__set_max_entries(self._map(name), max_entries), f"resize map {name}")

    def leave_out(self, unwanted: Callable[[str], bool]) -> None:
        """Before load: do not load the programs whose name is ``unwanted``. They then have no descriptor."""
        pointer = lib().bpf_object__next_program(self._pointer, ffi.NULL)
        while pointer != ffi.NULL:
            name = ffi.string(lib().bpf_program__name(pointer)).decode()
            if unwanted(name):
                check(lib().bpf_program__set_autoload(pointer, False), f"leave out program {name}")
            pointer = lib().bpf_object__next_program(self._pointer, pointer)

    def load(self) -> None:
        """Load programs and maps into the kernel. Raises BpfError with the verifier's last lines."""
        check(lib().bpf_object__load(self._pointer), f"load {self.path.name}")

    def map(self, name: str, types: FFI, key: str, value: str) -> Map:
        """A loaded map. It is open as long as the object. Raises BpfError."""
        return Map(check(lib().bpf_map__fd(self._map(name)), f"map {name}"), types, key, value, name)

    def program(self, name: str) -> int:
        """The descriptor of a loaded program."""
        return check(lib().bpf_program__fd(self._program(name)), f"program {name}")

    def attach(self, program: str) -> Link:
        """Attach a program to the hook that its section names (a tracepoint, an iterator)."""
        pointer = lib().bpf_program__attach(self._program(program))
        return Link(check_pointer(pointer, f"attach {program}"))

    def attach_cgroup(self, program: str, cgroup: Path) -> Link:
        """Attach a program to a cgroup (v2) and all below it, beside other programs. Raises BpfError."""
        folder = os.open(cgroup, os.O_RDONLY)
        try:
            pointer = lib().bpf_program__attach_cgroup(self._program(program), folder)
            return Link(check_pointer(pointer, f"attach {program} to {cgroup}"))
        finally:
            os.close(folder)

    def register(self, struct_ops: str, path: Path) -> None:
        """Register a loaded struct_ops map with the kernel and pin it at ``path``, until unregister(path).

        The registration outlives the process. Raises BpfError (EEXIST: the name is taken) and leaves no pin.
        """
        pointer = self._map(struct_ops)
        pin(check(lib().bpf_map__fd(pointer), f"map {struct_ops}"), path)
        try:
            link = check_pointer(lib().bpf_map__attach_struct_ops(pointer), f"register {struct_ops}")
        except BpfError:
            path.unlink()
            raise
        lib().bpf_link__disconnect(link)
        lib().bpf_link__destroy(link)

    def close(self) -> None:
        """Close the object. Everything pinned or attached stays."""
        if self._pointer != ffi.NULL:
            lib().bpf_object__close(self._pointer)
            self._pointer = ffi.NULL

    def _map(self, name: str) -> Any:
        return check_pointer(
            lib().bpf_object__find_map_by_name(self._pointer, name.encode()), f"find map {name}"
        )

    def _program(self, name: str) -> Any:
        return check_pointer(
            lib().bpf_object__find_program_by_name(self._pointer, name.encode()), f"find program {name}"
        )


class Link:
    """A program's attachment. It ends with destroy() or with the process, unless it is pinned."""

    def __init__(self, pointer: Any) -> None:
        self._pointer = pointer

    @classmethod
    def pinned(cls, path: Path) -> Link:
        """Open a pinned link. Raises BpfError."""
        return cls(check_pointer(lib().bpf_link__open(c_path(path)), f"open {path}"))

    def pin(self, path: Path) -> None:
        """Pin the link at ``path``. Raises BpfError."""
        check(lib().bpf_link__pin(self._pointer, c_path(path)), f"pin {path}")

    def unpin(self) -> None:
        """Remove the link's pin. Raises BpfError."""
        check(lib().bpf_link__unpin(self._pointer), "unpin a link")

    def detach(self) -> None:
        """Detach the program at once, although other descriptors or pins hold the link. Raises BpfError."""
        check(lib().bpf_link__detach(self._pointer), "detach a link")

    def read(self) -> bytes:
        """Run an iterator and return its output."""
        fd = check(lib().bpf_iter_create(lib().bpf_link__fd(self._pointer)), "run an iterator")
        with open(fd, "rb") as output:
            return output.read()

    def destroy(self) -> None:
        """Close the link. A link that is not pinned is detached."""
        lib().bpf_link__destroy(self._pointer)


class RingBuffer:
    """The reader of a ring buffer map. ``handle`` is called with the bytes of each record."""

    def __init__(self, map_fd: int, handle: Callable[[bytes], None]) -> None:
        def on_record(_ctx: Any, data: Any, size: int) -> int:
            handle(bytes(ffi.buffer(data, size)))
            return 0

        self._callback = ffi.callback("int(void *, void *, size_t)", on_record)
        self._pointer = check_pointer(
            lib().ring_buffer__new(map_fd, self._callback, ffi.NULL, ffi.NULL), "open a ring buffer"
        )

    @property
    def fd(self) -> int:
        """A descriptor that is readable while records wait."""
        return int(lib().ring_buffer__epoll_fd(self._pointer))

    def consume(self) -> None:
        """Call ``handle`` with every waiting record."""
        check(lib().ring_buffer__consume(self._pointer), "read a ring buffer")

    def close(self) -> None:
        if self._pointer != ffi.NULL:
            lib().ring_buffer__free(self._pointer)
            self._pointer = ffi.NULL


def pin(fd: int, path: Path) -> None:
    """Pin a map or program at ``path``. Raises BpfError."""
    check(lib().bpf_obj_pin(fd, c_path(path)), f"pin {path}")


def unregister(path: Path) -> None:
    """Unregister a struct_ops map and remove its pin. Sockets that use it go on using it."""
    struct_ops = Map.pinned(path, ffi, "uint32_t", "uint32_t")
    try:
        struct_ops.delete(struct_ops.key(0))
    finally:
        os.close(struct_ops.fd)
    path.unlink()


def program_name(program_id: int) -> str:
    """The name of a loaded program, cut to PROGRAM_NAME_MAX characters; "" if it is gone."""
    info = ffi.new("struct prog_info *")
    return str(ffi.string(info.name).decode()) if _read_program_info(program_id, info) else ""


def maps_of(program_id: int) -> set[int]:
    """The ids of the first 64 maps that a loaded program uses; empty if the program is gone."""
    ids = ffi.new("uint32_t[]", _MOST_MAPS)
    info = ffi.new(
        "struct prog_info *", {"nr_map_ids": _MOST_MAPS, "map_ids": int(ffi.cast("uintptr_t", ids))}
    )
    if not _read_program_info(program_id, info):
        return set()
    return set(ids[0 : min(info.nr_map_ids, _MOST_MAPS)])


def pinned_map_id(path: Path) -> int:
    """The id of a pinned map. Raises BpfError (ENOENT: nothing is pinned there)."""
    info = ffi.new("struct map_info *")
    fd = check(lib().bpf_obj_get(c_path(path)), f"open {path}")
    try:
        _read_info(fd, info, f"read about {path}")
    finally:
        os.close(fd)
    return int(info.id)


def pinned_map(path: Path) -> PinnedMap:
    """The map that is pinned at ``path``. Raises BpfError (EINVAL: a program or a link, not a map)."""
    info = ffi.new("struct map_info *")
    fd = check(lib().bpf_obj_get(c_path(path)), f"open {path}")
    try:
        if not os.readlink(f"/proc/self/fd/{fd}").endswith("bpf-map"):
            raise BpfError(errno.EINVAL, f"{path} is not a map")
        _read_info(fd, info, f"read about {path}")
    finally:
        os.close(fd)
    shape = MapShape(info.type, info.key_size, info.value_size, info.max_entries)
    return PinnedMap(shape, info.btf_id, info.key_type, info.value_type)


def btf_bytes(btf_id: int) -> bytes:
    """A BTF object of the kernel, which describes the types of maps. Raises BpfError."""
    info = ffi.new("struct btf_info *")
    fd = check(lib().bpf_btf_get_fd_by_id(btf_id), f"open BTF {btf_id}")
    try:
        _read_info(fd, info, f"read about BTF {btf_id}")
        data = ffi.new("char[]", info.btf_size)
        info = ffi.new(
            "struct btf_info *", {"btf": int(ffi.cast("uintptr_t", data)), "btf_size": info.btf_size}
        )
        _read_info(fd, info, f"read BTF {btf_id}")
    finally:
        os.close(fd)
    return bytes(ffi.buffer(data))


def _read_program_info(program_id: int, info: Any) -> bool:
    fd = lib().bpf_prog_get_fd_by_id(program_id)
    if fd < 0:
        return False
    try:
        _read_info(fd, info, f"read about program {program_id}")
    finally:
        os.close(fd)
    return True


def _read_info(fd: int, info: Any, what: str) -> None:
    size = ffi.new("uint32_t *", ffi.sizeof(info[0]))
    check(lib().bpf_obj_get_info_by_fd(fd, info, size), what)


def xdp_attach(ifindex: int, program_fd: int, mode: int, *, replace: bool) -> None:
    """Attach an XDP program. Without ``replace``, only if there is none."""
    flags = mode | (0 if replace else _XDP_ONLY_IF_FREE)
    check(lib().bpf_xdp_attach(ifindex, program_fd, flags, ffi.NULL), f"attach XDP to interface {ifindex}")


def xdp_detach(ifindex: int, mode: int) -> None:
    """Detach the XDP program that is attached in this mode."""
    check(lib().bpf_xdp_detach(ifindex, mode, ffi.NULL), f"detach XDP from interface {ifindex}")


def _tc_hook(ifindex: int, where: int) -> Any:
    hook = ffi.new("struct bpf_tc_hook *")
    hook.sz, hook.ifindex, hook.attach_point = ffi.sizeof("struct bpf_tc_hook"), ifindex, where
    return hook


def _tc_options(**fields: int) -> Any:
    options = ffi.new("struct bpf_tc_opts *", {"handle": 1, "priority": _TC_PRIORITY} | fields)
    options.sz = ffi.sizeof("struct bpf_tc_opts")
    return options


def tc_attach(ifindex: int, where: int, program_fd: int) -> None:
    """Attach a program to TC_INGRESS or TC_EGRESS of an interface. A missing clsact qdisc is created."""
    hook = _tc_hook(ifindex, where)
    made = lib().bpf_tc_hook_create(hook)
    if made < 0 and made != -errno.EEXIST:
        check(made, f"make clsact on interface {ifindex}")
    options = _tc_options(prog_fd=program_fd, flags=_TC_REPLACE)
    check(lib().bpf_tc_attach(hook, options), f"attach to tc of interface {ifindex}")


def tc_detach(ifindex: int, where: int) -> None:
    """Detach the program of ``tc_attach``. Raises BpfError (ENOENT, ENODEV or EINVAL if there is none)."""
    hook = _tc_hook(ifindex, where)
    check(lib().bpf_tc_detach(hook, _tc_options()), f"detach from tc of interface {ifindex}")


def tc_program(ifindex: int, where: int) -> int:
    """The id of the program of ``tc_attach`` on TC_INGRESS or TC_EGRESS; 0 if there is none."""
    options = _tc_options()
    found = lib().bpf_tc_query(_tc_hook(ifindex, where), options)
    return int(options.prog_id) if found == 0 else 0


def run(program_fd: int, packet: bytes, context: bytes = b"", flags: int = 0) -> tuple[int, bytes]:
    """BPF_PROG_TEST_RUN: the program's return value, and the packet after the run.

    ``context``: the kernel's description of the packet, as struct __sk_buff for tc programs; empty: none.
    ``flags``: BPF_F_TEST_... of linux/bpf.h.
    """
    options = ffi.new("struct bpf_test_run_opts *")
    options.sz = ffi.sizeof("struct bpf_test_run_opts")
    packet_in, packet_out = ffi.from_buffer(packet), ffi.new("char[]", len(packet) + _HEADROOM_BYTES)
    options.data_in, options.data_size_in = packet_in, len(packet)
    context_in = ffi.from_buffer(context)
    options.ctx_in, options.ctx_size_in = context_in if context else ffi.NULL, len(context)
    options.data_out, options.data_size_out = packet_out, len(packet) + _HEADROOM_BYTES
    options.flags = flags
    check(lib().bpf_prog_test_run_opts(program_fd, options), "run a program")
    return options.retval, bytes(ffi.buffer(packet_out, options.data_size_out))
