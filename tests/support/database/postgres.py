"""A private PostgreSQL server in a temporary folder, reached only through a Unix socket."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

_USER = "postgres"


def binaries() -> Path | None:
    """The folder of initdb and pg_ctl, which is not on Debian's path; None without PostgreSQL."""
    places = [*Path("/usr/lib/postgresql").glob("*/bin")]
    if found := shutil.which("pg_ctl"):
        places.append(Path(found).resolve().parent)
    return next((place for place in sorted(places, reverse=True) if (place / "initdb").exists()), None)


class Postgres:
    """A running cluster, from ``with`` to its end; ``stop`` and ``start`` in between. As root: as postgres.

    ``durable``: commits wait for the disk, as they do in service.
    """

    def __init__(self, durable: bool = False) -> None:
        place = binaries()
        if place is None:
            raise FileNotFoundError("no PostgreSQL here: apt-get install postgresql")
        self._place = place
        self._folder = Path(tempfile.mkdtemp(prefix="weir-pg-"))
        self._data = self._folder / "data"
        self._fsync = "on" if durable else "off"
        self._as_user = {"user": _USER, "group": _USER, "extra_groups": []} if os.geteuid() == 0 else {}
        if self._as_user:
            shutil.chown(self._folder, _USER, _USER)

    @property
    def url(self) -> str:
        return f"postgresql://{_USER}@/weir?host={self._folder}"

    def __enter__(self) -> Postgres:
        try:
            self._run("initdb", "-D", self._data, "-U", _USER, "-A", "trust", "--no-sync")
            self.start()
            self.make_database()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if (self._data / "postmaster.pid").exists():
            self.stop()
        shutil.rmtree(self._folder)

    def start(self) -> None:
        """Start the server and wait until it answers."""
        options = f"-c listen_addresses= -c unix_socket_directories={self._folder} -c fsync={self._fsync}"
        self._run("pg_ctl", "-D", self._data, "-l", self._folder / "log", "-w", "-o", options, "start")

    def stop(self) -> None:
        """Stop the server immediately, which aborts every session."""
        self._run("pg_ctl", "-D", self._data, "-w", "-m", "immediate", "stop")

    def processes(self) -> list[int]:
        """The process ids of the server and of its children."""
        server = int((self._data / "postmaster.pid").read_text().split()[0])
        return [server, *map(int, Path(f"/proc/{server}/task/{server}/children").read_text().split())]

    def make_database(self, like: str = "template1") -> None:
        """Create the database again: empty, or as a copy of one that was kept."""
        self._say("DROP DATABASE IF EXISTS weir WITH (FORCE)", f"CREATE DATABASE weir TEMPLATE {like}")

    def keep(self, name: str) -> None:
        """Keep the database under another name. It must have no connections."""
        self._say(f"ALTER DATABASE weir RENAME TO {name}")

    def _say(self, *commands: str) -> None:
        said = [word for command in commands for word in ("-c", command)]
        self._run("psql", "-h", self._folder, "-U", _USER, "-d", "postgres", "-q", *said)

    def _run(self, program: str, *arguments: object) -> None:
        path = self._place / program
        command = [str(path), *map(str, arguments)]
        done = subprocess.run(
            command, cwd=self._folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, timeout=60, **self._as_user,
        )  # fmt: skip
        if done.returncode:
            log = self._folder / "log"
            raise RuntimeError(f"{program}: {done.stdout}{log.read_text() if log.exists() else ''}")
