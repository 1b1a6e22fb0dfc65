"""The fabric's app over a database of its own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fabric_app.app import FabricApp
from flowdb.db import FlowDb


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FabricApp]:
    monkeypatch.delenv("WEIR_CONFIG", raising=False)
    flowdb = FlowDb(f"sqlite:///{tmp_path}/weir.db")
    yield FabricApp(flowdb=flowdb)
    flowdb.close()
