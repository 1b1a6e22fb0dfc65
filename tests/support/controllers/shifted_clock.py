"""A system clock for one Python process that a test can set."""

from __future__ import annotations

from pathlib import Path

_SITE = """
import sys, time
_time_ns = time.time_ns
_file = {of_writer!r} if "flowdb.writing.writer_process" in sys.orig_argv else {file!r}
def _shift_ns():
    with open(_file) as file:
        return int(file.read()) * 1_000_000_000
time.time_ns = lambda: _time_ns() + _shift_ns()
time.time = lambda: time.time_ns() / 1e9
"""


class ShiftedClock:
    """A Python process whose path has ``folder`` sees a system clock that is shifted, and that can be set.

    ``writer``: the clock of the writer process that a controller starts; by default the controller's.
    """

    def __init__(self, folder: Path, ahead_s: int, writer: ShiftedClock | None = None) -> None:
        folder.mkdir()
        self.folder, self._file = folder, folder / "shift"
        self.set(ahead_s)
        of_writer = (writer or self)._file
        site = _SITE.format(file=str(self._file), of_writer=str(of_writer))
        (folder / "sitecustomize.py").write_text(site)

    def set(self, ahead_s: int) -> None:
        """Other processes read the file at any moment, so it is replaced as a whole."""
        new = self.folder / "new"
        new.write_text(str(ahead_s))
        new.rename(self._file)
