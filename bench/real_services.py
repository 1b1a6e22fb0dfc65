"""The services that bench.real_programs asks: nginx by curl, and memcached by a multi-get."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from mininet_topos.machine.programs import Program
from mininet_topos.network.lab_network import Network
from mininet_topos.network.nodes import LabHost, inside

HTTP_PORT, MEMCACHED_PORT = 8080, 11211
START_S, QUERY_S = 20.0, 60.0
VALUE_BYTES = 1000
"""About as large is a value that memcached holds; a response is made of several."""
NGINX = """daemon off; master_process off; error_log {folder}/nginx-{name}.log; pid {folder}/{name}.pid;
events {{ worker_connections 256; }}
http {{ access_log off; client_body_temp_path {folder}/{name}-body; proxy_temp_path {folder}/{name}-proxy;
  fastcgi_temp_path {folder}/{name}-f; uwsgi_temp_path {folder}/{name}-u; scgi_temp_path {folder}/{name}-s;
  server {{ listen {port}; root {folder}/www; }} }}
"""

Query = Callable[[], float]
"""Asks all workers at once. Returns the time of the slowest response, in s."""


@dataclass(frozen=True)
class Service:
    """``servers`` runs one on every worker of a network, ``client`` is how the root asks them.

    Both take the network, a folder and the bytes of a response. ``fresh``: each query opens connections.
    """

    needs: tuple[str, ...]
    fresh: bool
    servers: Callable[[Network, Path, int], AbstractContextManager[None]]
    client: Callable[[Network, Path, int], AbstractContextManager[Query]]


def succeeds(*argv: str) -> bool:
    """Whether a command ends with status 0."""
    return (
        subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode
        == 0
    )


@contextmanager
def on_each_worker(
    net: Network, name: str, log: Path, argv_of: Callable[[LabHost], list[str]], check: Sequence[str]
) -> Iterator[None]:
    """A program on every worker. It is ready when the command ``check`` succeeds on its host."""
    programs = []
    try:
        for host in net.workers:
            programs.append(Program(f"{name} of {host.name}", inside(host, *argv_of(host)), log, net.state))
        for host, program in zip(net.workers, programs, strict=True):
            program.wait_ready(partial(succeeds, *inside(host, *check)), "it does not answer", START_S)
        yield
    finally:
        for program in programs:
            program.stop()


@contextmanager
def nginx(net: Network, folder: Path, size_bytes: int) -> Iterator[None]:
    """An nginx on every worker, with one file."""
    (folder / "www").mkdir()
    (folder / "www" / "response").write_bytes(bytes(size_bytes))

    def argv(host: LabHost) -> list[str]:
        config = folder / f"{host.name}.conf"
        config.write_text(NGINX.format(folder=folder, name=host.name, port=HTTP_PORT))
        return ["nginx", "-c", str(config), "-p", str(folder)]

    url = f"http://127.0.0.1:{HTTP_PORT}/response"  # without a controller no host reaches another
    with on_each_worker(net, "nginx", folder / "nginx.log", argv, ("curl", "-s", "-o", "/dev/null", url)):
        yield


@contextmanager
def curl(net: Network, folder: Path, _size_bytes: int) -> Iterator[Query]:
    """One curl for each query, which opens a connection to every worker."""
    config = folder / "query.curl"
    urls = (
        f'url = "http://{host.IP()}:{HTTP_PORT}/response"\noutput = "/dev/null"\n' for host in net.workers
    )
    config.write_text("".join(urls))
    options = ("-sS", "--parallel", "--parallel-immediate", "--parallel-max", "300", "-K", str(config))
    argv = inside(net.root, "curl", *options, "-w", "%{http_code} %{time_total}\\n")

    def query_s() -> float:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=QUERY_S, check=True)
        answers = [line.split() for line in done.stdout.splitlines()]
        if len(answers) != len(net.workers) or any(code != "200" for code, _ in answers):
            raise click.ClickException(f"a worker did not answer: {done.stdout}{done.stderr}")
        return max(float(took_s) for _, took_s in answers)

    yield query_s


def stored(size_bytes: int) -> tuple[int, int, str]:
    """The values of a reply of about so many bytes: how many, the reply's bytes, commands to store them."""
    keys = max(1, size_bytes // VALUE_BYTES)
    size = size_bytes // keys - len("VALUE k000 0 1000\r\n\r\n")
    reply_bytes = keys * (len(f"VALUE k000 0 {size}\r\n\r\n") + size) + len("END\r\n")
    commands = "".join(f"set k{number:03} 0 0 {size}\r\n{'x' * size}\r\n" for number in range(keys))
    return keys, reply_bytes, commands + "quit\r\n"


@contextmanager
def memcached(net: Network, folder: Path, size_bytes: int) -> Iterator[None]:
    """A memcached on every worker, which holds the values of a response."""
    keys, _, commands = stored(size_bytes)
    store = folder / "store"
    store.write_text(commands)
    at_loopback = f"exec 3<>/dev/tcp/127.0.0.1/{MEMCACHED_PORT} && cat {store} >&3"
    script = f"{at_loopback} && test $(grep -c STORED <&3) = {keys}"
    argv = ["memcached", "-u", "root", "-U", "0", "-p", str(MEMCACHED_PORT)]
    log = folder / "memcached.log"
    with on_each_worker(net, "memcached", log, lambda _host: argv, ("bash", "-c", script)):
        yield


@contextmanager
def multi_get(net: Network, _folder: Path, size_bytes: int) -> Iterator[Query]:
    """One client for all queries, with a standing connection to every worker."""
    keys, reply_bytes, _ = stored(size_bytes)
    words = (MEMCACHED_PORT, keys, reply_bytes, *(host.IP() for host in net.workers))
    argv = inside(net.root, sys.executable, "-m", "bench.multi_get", *map(str, words))
    ours, theirs = socket.socketpair()
    end = theirs.fileno()
    with theirs, subprocess.Popen(argv, stdin=end, stdout=end), ours, ours.makefile("rw") as client:
        theirs.close()

        def answer() -> str:
            line = client.readline()
            if not line:
                raise click.ClickException("the client of memcached has ended; its error is above")
            return line

        def query_s() -> float:
            client.write("\n")
            client.flush()
            return float(answer())

        answer()  # it is connected
        yield query_s


SERVICES = {
    "nginx": Service(("nginx", "curl"), True, nginx, curl),
    "memcached": Service(("memcached",), False, memcached, multi_get),
}
