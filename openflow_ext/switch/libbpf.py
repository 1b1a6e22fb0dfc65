"""libbpf through cffi: objects, maps, programs, links, ring buffers, XDP and tc. No policy, no Weir.

Kernel and library errors are raised as BpfError with what libbpf said last, which for a refused
program is the verifier's verdict. Needs libbpf 1.0 or later.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cffi import FFI

_ffi = FFI()
_ffi.cdef("""
struct bpf_object; struct bpf_map; struct bpf_program; struct bpf_link; struct ring_buffer;

int libbpf_set_print(int (*fn)(int level, const char *format, void *args));
struct bpf_object *bpf_object__open_file(const char *path, const void *opts);
int bpf_object__load(struct bpf_object *obj);
void bpf_object__close(struct bpf_object *obj);
struct bpf_map *bpf_object__next_map(const struct bpf_object *obj, const struct bpf_map *map);
struct bpf_map *bpf_object__find_map_by_name(const struct bpf_object *obj, const char *name);
struct bpf_program *bpf_object__find_program_by_name(const struct bpf_object *obj, const char *name);
const char *bpf_map__name(const struct bpf_map *map);
int bpf_map__fd(const struct bpf_map *map);
int bpf_map__set_pin_path(struct bpf_map *map, const char *path);
int bpf_map__set_max_entries(struct bpf_map *map, uint32_t max_entries);
void *bpf_map__initial_value(struct bpf_map *map, size_t *size);
int bpf_program__fd(const struct bpf_program *prog);
struct bpf_link *bpf_program__attach(const struct bpf_program *prog);
struct bpf_link *bpf_link__open(const char *path);
int bpf_link__pin(struct bpf_link *link, const char *path);
int bpf_link__unpin(struct bpf_link *link);
int bpf_link__destroy(struct bpf_link *link);

int bpf_obj_get(const char *path);
int bpf_obj_pin(int fd, const char *path);
int bpf_map_lookup_elem(int fd, const void *key, void *value);
int bpf_map_update_elem(int fd, const void *key, const void *value, uint64_t flags);
int bpf_map_delete_elem(int fd, const void *key);
int bpf_map_get_next_key(int fd, const void *key, void *next_key);
int bpf_prog_get_fd_by_id(uint32_t id);

struct prog_name { char pad[64]; char name[16]; };
int bpf_obj_get_info_by_fd(int fd, void *info, uint32_t *len);

int bpf_xdp_attach(int ifindex, int prog_fd, uint32_t flags, const void *opts);
int bpf_xdp_detach(int ifindex, uint32_t flags, const void *opts);
int bpf_xdp_query_id(int ifindex, int flags, uint32_t *prog_id);

struct bpf_tc_hook { size_t sz; int ifindex; int attach_point; uint32_t parent; };
struct bpf_tc_opts {
    size_t sz; int prog_fd; uint32_t flags; uint32_t prog_id; uint32_t handle; uint32_t priority;
};
int bpf_tc_hook_create(struct bpf_tc_hook *hook);
int bpf_tc_attach(const struct bpf_tc_hook *hook, struct bpf_tc_opts *opts);
int bpf_tc_detach(const struct bpf_tc_hook *hook, const struct bpf_tc_opts *opts);
int bpf_tc_query(const struct bpf_tc_hook *hook, struct bpf_tc_opts *opts);

struct ring_buffer *ring_buffer__new(int map_fd, int (*fn)(void *ctx, void *data, size_t size),
                                     void *ctx, const void *opts);
int ring_buffer__consume(struct ring_buffer *rb);
int ring_buffer__epoll_fd(const struct ring_buffer *rb);
void ring_buffer__free(struct ring_buffer *rb);

struct bpf_test_run_opts {
    size_t sz;
    const void *data_in; void *data_out; uint32_t data_size_in; uint32_t data_size_out;
    const void *ctx_in; void *ctx_out; uint32_t ctx_size_in; uint32_t ctx_size_out;
    uint32_t retval; int repeat; uint32_t duration; uint32_t flags; uint32_t cpu; uint32_t batch_size;
};
int bpf_prog_test_run_opts(int fd, struct bpf_test_run_opts *opts);

int vsnprintf(char *buffer, size_t size, const char *format, void *args);
""")

XDP_NATIVE = 1 << 2
XDP_GENERIC = 1 << 1
_XDP_ONLY_IF_FREE = 1 << 0
_TC_EGRESS = 2
_TC_REPLACE = 1 << 0
_TC_PRIORITY = 7
_NOEXIST = 1
_INFO_SIZE = 80


class BpfError(OSError):
    """A call of libbpf that failed; the message says which, on what, and what libbpf said."""


_said: list[str] = []


@_ffi.callback("int(int, const char *, void *)")
def _keep(level: int, text: Any, args: Any) -> int:
    buffer = _ffi.new("char[]", 2048)
    _libc.vsnprintf(buffer, 2048, text, args)
    _said.append(_ffi.string(buffer).decode(errors="replace").strip())
    del _said[:-20]
    return 0


_libc = _ffi.dlopen(None)
_library: Any = None


def _lib() -> Any:
    """The library, opened with the first call, so that importing this module needs nothing."""
    global _library
    if _library is None:
        try:
            _library = _ffi.dlopen("libbpf.so.1")
        except OSError as error:
            raise BpfError(errno.ENOENT, "libbpf.so.1 is missing: install libbpf1 (`make setup`)") from error
        _library.libbpf_set_print(_keep)
    return _library


def _check(result: int, what: str) -> int:
    if result < 0:
        number = _ffi.errno or -result
        said = "; ".join(line for line in _said[-3:] if line)
        _said.clear()
        raise BpfError(number, f"{what}: {os.strerror(number)}" + (f" ({said})" if said else ""))
    return result


def _check_pointer(pointer: Any, what: str) -> Any:
    if pointer == _ffi.NULL:
        _check(-(_ffi.errno or errno.EINVAL), what)
    return pointer


def _path(path: Path) -> bytes:
    return os.fsencode(path)


class Map:
    """A BPF map whose keys and values are cdata of the given pointer types of `ffi`."""

    def __init__(self, fd: int, ffi: FFI, key: str, value: str, name: str = "map") -> None:
        self.fd = fd
        self.name = name
        self._ffi, self._key, self._value = ffi, key + " *", value + " *"

    @classmethod
    def pinned(cls, path: Path, ffi: FFI, key: str, value: str) -> Map:
        """Open a pinned map; the caller closes `fd`. Raises BpfError where there is none."""
        return cls(_check(_lib().bpf_obj_get(_path(path)), f"open {path}"), ffi, key, value, path.name)

    def key(self, *fields: Any) -> Any:
        return self._ffi.new(self._key, *fields)

    def value(self, *fields: Any) -> Any:
        return self._ffi.new(self._value, *fields)

    def get(self, key: Any) -> Any | None:
        """The value (a copy), or None."""
        value = self.value()
        if _lib().bpf_map_lookup_elem(self.fd, self._raw(key), self._raw(value)) < 0:
            if _ffi.errno == errno.ENOENT:
                return None
            _check(-1, f"read {self.name}")
        return value

    def put(self, key: Any, value: Any, *, only_new: bool = False) -> bool:
        """Write; with only_new, False where the key is there already. Raises BpfError (E2BIG: full)."""
        flags = _NOEXIST if only_new else 0
        if _lib().bpf_map_update_elem(self.fd, self._raw(key), self._raw(value), flags) < 0:
            if only_new and _ffi.errno == errno.EEXIST:
                return False
            _check(-1, f"write {self.name}")
        return True

    def delete(self, key: Any) -> bool:
        """Remove; False where the key was not there."""
        if _lib().bpf_map_delete_elem(self.fd, self._raw(key)) < 0:
            if _ffi.errno == errno.ENOENT:
                return False
            _check(-1, f"delete from {self.name}")
        return True

    def keys(self) -> Iterator[Any]:
        """All keys, each a copy. Keys that come or go meanwhile may be missed or met twice."""
        key: Any = None
        while True:
            following = self.key()
            previous = _ffi.NULL if key is None else self._raw(key)
            if _lib().bpf_map_get_next_key(self.fd, previous, self._raw(following)) < 0:
                if _ffi.errno == errno.ENOENT:
                    return
                _check(-1, f"walk {self.name}")
            yield following
            key = following

    def items(self) -> Iterator[tuple[Any, Any]]:
        for key in list(self.keys()):
            value = self.get(key)
            if value is not None:
                yield key, value

    def _raw(self, cdata: Any) -> Any:
        return _ffi.cast("void *", int(self._ffi.cast("uintptr_t", cdata)))


class Object:
    """A BPF object file: open, pin or size its maps, load, then find programs and maps."""

    def __init__(self, path: Path) -> None:
        self._pointer = _check_pointer(_lib().bpf_object__open_file(_path(path), _ffi.NULL), f"open {path}")
        self.path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def pin_maps(self, folder: Path) -> None:
        """Before load: each map is pinned under its name, or reused where it is pinned already."""
        pointer = _lib().bpf_object__next_map(self._pointer, _ffi.NULL)
        while pointer != _ffi.NULL:
            name = _ffi.string(_lib().bpf_map__name(pointer)).decode()
            if "." not in name:
                _check(_lib().bpf_map__set_pin_path(pointer, _path(folder / name)), f"pin map {name}")
            pointer = _lib().bpf_object__next_map(self._pointer, pointer)

    def resize(self, name: str, max_entries: int) -> None:
        """Before load: how many entries a map holds."""
        _check(_lib().bpf_map__set_max_entries(self._map(name), max_entries), f"resize map {name}")

    def set_constants(self, section: str, ffi: FFI, ctype: str, **values: Any) -> None:
        """Before load: set `const volatile` variables, laid out as the struct ctype, of a section."""
        size = _ffi.new("size_t *")
        pointer = _check_pointer(
            _lib().bpf_map__initial_value(self._map(section), size), f"constants of {self.path.name}"
        )
        struct = ffi.cast(ctype + " *", int(_ffi.cast("uintptr_t", pointer)))
        for name, value in values.items():
            setattr(struct, name, value)

    def load(self) -> None:
        """Load programs and maps into the kernel. Raises BpfError with the verifier's last words."""
        _check(_lib().bpf_object__load(self._pointer), f"load {self.path.name}")

    def map(self, name: str, ffi: FFI, key: str, value: str) -> Map:
        return Map(_check(_lib().bpf_map__fd(self._map(name)), f"map {name}"), ffi, key, value, name)

    def program(self, name: str) -> int:
        """The descriptor of a loaded program."""
        return _check(_lib().bpf_program__fd(self._program(name)), f"program {name}")

    def attach(self, program: str) -> Link:
        """Attach a program where its section says (a tracepoint)."""
        pointer = _lib().bpf_program__attach(self._program(program))
        return Link(_check_pointer(pointer, f"attach {program}"))

    def close(self) -> None:
        """Let go; what is pinned or attached stays."""
        if self._pointer != _ffi.NULL:
            _lib().bpf_object__close(self._pointer)
            self._pointer = _ffi.NULL

    def _map(self, name: str) -> Any:
        return _check_pointer(
            _lib().bpf_object__find_map_by_name(self._pointer, name.encode()), f"find map {name}"
        )

    def _program(self, name: str) -> Any:
        return _check_pointer(
            _lib().bpf_object__find_program_by_name(self._pointer, name.encode()), f"find program {name}"
        )


class Link:
    """A program's attachment; it ends with destroy() or with the process, unless it is pinned."""

    def __init__(self, pointer: Any) -> None:
        self._pointer = pointer

    @classmethod
    def pinned(cls, path: Path) -> Link:
        return cls(_check_pointer(_lib().bpf_link__open(_path(path)), f"open {path}"))

    def pin(self, path: Path) -> None:
        _check(_lib().bpf_link__pin(self._pointer, _path(path)), f"pin {path}")

    def unpin(self) -> None:
        _check(_lib().bpf_link__unpin(self._pointer), "unpin a link")

    def destroy(self) -> None:
        """Close; a link that is not pinned is then detached."""
        _lib().bpf_link__destroy(self._pointer)


class RingBuffer:
    """The reader of a ring buffer map: `handle` gets the bytes of each record."""

    def __init__(self, map_fd: int, handle: Callable[[bytes], None]) -> None:
        def on_record(_ctx: Any, data: Any, size: int) -> int:
            handle(bytes(_ffi.buffer(data, size)))
            return 0

        self._callback = _ffi.callback("int(void *, void *, size_t)", on_record)
        self._pointer = _check_pointer(
            _lib().ring_buffer__new(map_fd, self._callback, _ffi.NULL, _ffi.NULL), "open a ring buffer"
        )

    @property
    def fd(self) -> int:
        """Readable when records wait."""
        return int(_lib().ring_buffer__epoll_fd(self._pointer))

    def consume(self) -> None:
        """Hand over all records that wait."""
        _check(_lib().ring_buffer__consume(self._pointer), "read a ring buffer")

    def close(self) -> None:
        if self._pointer != _ffi.NULL:
            _lib().ring_buffer__free(self._pointer)
            self._pointer = _ffi.NULL


def pin(fd: int, path: Path) -> None:
    _check(_lib().bpf_obj_pin(fd, _path(path)), f"pin {path}")


def program_name(program_id: int) -> str:
    """The name of a loaded program (15 characters at most); "" where it is gone."""
    fd = _lib().bpf_prog_get_fd_by_id(program_id)
    if fd < 0:
        return ""
    try:
        info = _ffi.new("struct prog_name *")
        size = _ffi.new("uint32_t *", _INFO_SIZE)
        _check(_lib().bpf_obj_get_info_by_fd(fd, info, size), f"look at program {program_id}")
        return _ffi.string(info.name).decode()
    finally:
        os.close(fd)


def xdp_program(ifindex: int) -> int:
    """The id of the XDP program on an interface, 0 for none."""
    program_id = _ffi.new("uint32_t *")
    _check(_lib().bpf_xdp_query_id(ifindex, 0, program_id), f"look for XDP on interface {ifindex}")
    return int(program_id[0])


def xdp_attach(ifindex: int, program_fd: int, mode: int, *, replace: bool) -> None:
    """Attach an XDP program; without replace only where there is none."""
    flags = mode | (0 if replace else _XDP_ONLY_IF_FREE)
    _check(_lib().bpf_xdp_attach(ifindex, program_fd, flags, _ffi.NULL), f"attach XDP to interface {ifindex}")


def xdp_detach(ifindex: int) -> None:
    _check(_lib().bpf_xdp_detach(ifindex, 0, _ffi.NULL), f"detach XDP from interface {ifindex}")


def _egress_hook(ifindex: int) -> Any:
    hook = _ffi.new("struct bpf_tc_hook *")
    hook.sz, hook.ifindex, hook.attach_point = _ffi.sizeof("struct bpf_tc_hook"), ifindex, _TC_EGRESS
    return hook


def _tc_options(**fields: int) -> Any:
    options = _ffi.new("struct bpf_tc_opts *", {"handle": 1, "priority": _TC_PRIORITY} | fields)
    options.sz = _ffi.sizeof("struct bpf_tc_opts")
    return options


def tc_egress_attach(ifindex: int, program_fd: int) -> None:
    """Put a program on the egress of an interface (clsact, made where it is missing)."""
    hook = _egress_hook(ifindex)
    made = _lib().bpf_tc_hook_create(hook)
    if made < 0 and made != -errno.EEXIST:
        _check(made, f"make clsact on interface {ifindex}")
    options = _tc_options(prog_fd=program_fd, flags=_TC_REPLACE)
    _check(_lib().bpf_tc_attach(hook, options), f"attach to the egress of interface {ifindex}")


def tc_egress_detach(ifindex: int) -> None:
    """Take our program off the egress. Raises BpfError (ENOENT, ENODEV) where it is not there."""
    hook = _egress_hook(ifindex)
    _check(_lib().bpf_tc_detach(hook, _tc_options()), f"detach from the egress of interface {ifindex}")


def run(program_fd: int, *, packet: bytes = b"", context: bytearray | None = None) -> tuple[int, bytes]:
    """BPF_PROG_TEST_RUN: the program's verdict, and the packet as it leaves it.

    `context` is the program's context structure; a syscall program writes its answer there.
    """
    options = _ffi.new("struct bpf_test_run_opts *")
    options.sz = _ffi.sizeof("struct bpf_test_run_opts")
    packet_in, packet_out = _ffi.from_buffer(packet), _ffi.new("char[]", len(packet) + 256)
    if packet:
        options.data_in, options.data_size_in = packet_in, len(packet)
        options.data_out, options.data_size_out = packet_out, len(packet) + 256
    context_in = _ffi.from_buffer(context if context is not None else b"")
    if context is not None:
        options.ctx_in, options.ctx_size_in = context_in, len(context)
    _check(_lib().bpf_prog_test_run_opts(program_fd, options), "run a program")
    return options.retval, bytes(_ffi.buffer(packet_out, options.data_size_out)) if packet else b""
