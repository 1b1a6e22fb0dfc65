"""The C declarations of libbpf for cffi, and the errors of libbpf as BpfError."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from cffi import FFI

ffi = FFI()
ffi.cdef("""
struct bpf_object; struct bpf_map; struct bpf_program; struct bpf_link; struct ring_buffer;

int libbpf_set_print(int (*fn)(int level, const char *format, void *args));
struct bpf_object *bpf_object__open_file(const char *path, const void *opts);
int bpf_object__load(struct bpf_object *obj);
void bpf_object__close(struct bpf_object *obj);
struct bpf_map *bpf_object__next_map(const struct bpf_object *obj, const struct bpf_map *map);
struct bpf_map *bpf_object__find_map_by_name(const struct bpf_object *obj, const char *name);
struct bpf_program *bpf_object__find_program_by_name(const struct bpf_object *obj, const char *name);
struct bpf_program *bpf_object__next_program(const struct bpf_object *obj, struct bpf_program *prog);
const char *bpf_program__name(const struct bpf_program *prog);
int bpf_program__set_autoload(struct bpf_program *prog, bool autoload);
const char *bpf_map__name(const struct bpf_map *map);
int bpf_map__fd(const struct bpf_map *map);
int bpf_map__set_pin_path(struct bpf_map *map, const char *path);
int bpf_map__set_max_entries(struct bpf_map *map, uint32_t max_entries);
int bpf_map__type(const struct bpf_map *map);
uint32_t bpf_map__key_size(const struct bpf_map *map);
uint32_t bpf_map__value_size(const struct bpf_map *map);
uint32_t bpf_map__max_entries(const struct bpf_map *map);
int bpf_program__fd(const struct bpf_program *prog);
struct bpf_link *bpf_program__attach(const struct bpf_program *prog);
struct bpf_link *bpf_program__attach_cgroup(const struct bpf_program *prog, int cgroup_fd);
struct bpf_link *bpf_link__open(const char *path);
int bpf_link__pin(struct bpf_link *link, const char *path);
int bpf_link__unpin(struct bpf_link *link);
int bpf_link__detach(struct bpf_link *link);
int bpf_link__destroy(struct bpf_link *link);
int bpf_link__fd(const struct bpf_link *link);
void bpf_link__disconnect(struct bpf_link *link);
struct bpf_link *bpf_map__attach_struct_ops(const struct bpf_map *map);
int bpf_iter_create(int link_fd);

int libbpf_num_possible_cpus(void);
int bpf_obj_get(const char *path);
int bpf_obj_pin(int fd, const char *path);
int bpf_map_lookup_elem(int fd, const void *key, void *value);
int bpf_map_update_elem(int fd, const void *key, const void *value, uint64_t flags);
int bpf_map_delete_elem(int fd, const void *key);
int bpf_map_get_next_key(int fd, const void *key, void *next_key);
int bpf_map_lookup_batch(int fd, void *in_batch, void *out_batch, void *keys, void *values, uint32_t *count,
                         const void *opts);
int bpf_prog_get_fd_by_id(uint32_t id);
int bpf_map_get_fd_by_id(uint32_t id);

struct prog_info { char pad[52]; uint32_t nr_map_ids; uint64_t map_ids; char name[16]; };
struct map_info {
    uint32_t type; uint32_t id; uint32_t key_size; uint32_t value_size; uint32_t max_entries; uint32_t flags;
    char name[16]; uint32_t ifindex; uint32_t vmlinux_type; uint64_t netns[2];
    uint32_t btf_id; uint32_t key_type; uint32_t value_type;
};
struct btf_info { uint64_t btf; uint32_t btf_size; uint32_t id; };
int bpf_btf_get_fd_by_id(uint32_t id);
int bpf_obj_get_info_by_fd(int fd, void *info, uint32_t *len);

int bpf_xdp_attach(int ifindex, int prog_fd, uint32_t flags, const void *opts);
int bpf_xdp_detach(int ifindex, uint32_t flags, const void *opts);

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


class BpfError(OSError):
    """A call of libbpf failed. The message states the call, its object, and what libbpf reported."""


_LINE_BYTES = 2048
_LINES_KEPT = 20
_LINES_QUOTED = 3

_libc = ffi.dlopen(None)
_log: list[str] = []
"""The last lines that libbpf printed."""


def _keep_line(_level: int, text: Any, args: Any) -> int:
    buffer = ffi.new("char[]", _LINE_BYTES)
    _libc.vsnprintf(buffer, _LINE_BYTES, text, args)
    _log.append(ffi.string(buffer).decode(errors="replace").strip())
    del _log[:-_LINES_KEPT]
    return 0


_print_callback = ffi.callback("int(int, const char *, void *)", _keep_line)
_library: Any = None


def lib() -> Any:
    """The library. It is opened by the first call, so that this module can be imported without it."""
    global _library
    if _library is None:
        try:
            _library = ffi.dlopen("libbpf.so.1")
        except OSError as error:
            raise BpfError(errno.ENOENT, "libbpf.so.1 is missing: install libbpf1 (`make setup`)") from error
        _library.libbpf_set_print(_print_callback)
    return _library


def check(result: int, what: str) -> int:
    """``result`` of the call ``what``. Raises BpfError if it is negative."""
    if result < 0:
        number = ffi.errno or -result
        reported = "; ".join(line for line in _log[-_LINES_QUOTED:] if line)
        _log.clear()
        raise BpfError(number, f"{what}: {os.strerror(number)}" + (f" ({reported})" if reported else ""))
    return result


def check_pointer(pointer: Any, what: str) -> Any:
    """``pointer``, the result of the call ``what``. Raises BpfError if it is NULL."""
    if pointer == ffi.NULL:
        check(-(ffi.errno or errno.EINVAL), what)
    return pointer


def c_path(path: Path) -> bytes:
    """A path as C takes it."""
    return os.fsencode(path)
