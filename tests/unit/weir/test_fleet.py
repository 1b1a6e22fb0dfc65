"""`weir fleet off` without a controller, or without a database."""

from __future__ import annotations

from click.testing import CliRunner

from flowdb.models import CommandRow
from tests.support.database.rows import rows
from weir.fleet import fleet


def test_a_database_that_does_not_exist_is_not_created(tmp_path):
    place = tmp_path / "weir.db"
    done = CliRunner().invoke(fleet, ["off", "--db", str(place)])
    assert "there is no flow database" in str(done.exception)
    assert not place.exists()


def test_a_command_that_no_controller_took_is_withdrawn(sqlite_url, open_db, monkeypatch):
    """A controller that is started afterwards must not turn the network off."""
    db = open_db(sqlite_url)
    monkeypatch.setattr("weir.fleet.WAIT_S", 0.1)
    done = CliRunner().invoke(fleet, ["off", "--db", sqlite_url])
    assert done.exit_code == 1
    assert "no controller answered within" in done.output
    assert "run `weir off` on the host of each switch" in done.output
    (row,) = rows(sqlite_url, CommandRow)
    assert (row.succeeded, row.outcome) == (False, "withdrawn: no controller took it")
    assert db.take_commands() == []
