"""The versions of the tables: created, upgraded with their rows, refused with the remedy."""

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import inspect, text

from flowdb import schema
from flowdb.db import FlowDb
from flowdb.engine import SchemaMismatch, open_engine
from flowdb.models import COUNTER_COLUMNS, Base, ClampRow, DecisionRow, FlowRow, HopRow, PortSampleRow, RunRow
from tests.support.database.rows import rows

OLD_ROWS = """
INSERT INTO runs (host, pid, started_ns, last_seen_ns, ended_ns) VALUES ('here', 1, 1, 1, 1);
INSERT INTO switches VALUES ('0000000000000007', true, 1);
INSERT INTO ports VALUES ('0000000000000007', 3, 'p3', 'aa', 1);
INSERT INTO flows VALUES (11, '10.0.0.1', '10.0.0.2', 1000, 80, 5, NULL, NULL, 1460, 9);
INSERT INTO flows VALUES (12, '10.0.0.1', '10.0.0.2', 1001, 80, 6, 7, 'fin', 1460, NULL);
INSERT INTO hops VALUES (11, '0000000000000007', 1, 3);
INSERT INTO hops VALUES (12, '0000000000000007', 1, 3);
INSERT INTO alarms VALUES (13, '0000000000000007', 3, 'alarm', 30, 45000, 100, 2, 8, 9, 0);
INSERT INTO decisions VALUES (14, 13, 11, 9, 'longest-lived', 2, 3, 100, 1000, 45000, 2, 9, NULL, 1460, 5, 8);
INSERT INTO clamps VALUES (15, 14, 11, '0000000000000007', 3, 8, 9, NULL, NULL);
"""


def make_old(empty_url):
    """A database of the first version, which recorded no version, with a row of each kind."""
    engine = open_engine(empty_url)
    with engine.begin() as connection:
        command.upgrade(schema._config(connection), schema.BEFORE_VERSIONS)
        connection.execute(text("DROP TABLE alembic_version"))
        for statement in OLD_ROWS.strip().splitlines():
            connection.execute(text(statement))
    return engine


def differences(engine):
    with engine.connect() as connection:
        return compare_metadata(MigrationContext.configure(connection), Base.metadata)


def test_the_migrations_create_the_tables_of_the_models(empty_url):
    engine = open_engine(empty_url)
    assert schema.upgrade(engine, empty_url) == (None, schema.newest())
    assert differences(engine) == []
    assert schema.upgrade(engine, empty_url) == (schema.newest(), schema.newest())


def test_an_older_database_is_refused_then_upgraded_with_its_rows(empty_url):
    engine = make_old(empty_url)
    with pytest.raises(SchemaMismatch, match=r"older version \(0001, not .*`weir db upgrade`"):
        FlowDb(empty_url)
    assert schema.upgrade(engine, empty_url) == ("0001", schema.newest())
    assert differences(engine) == []
    assert [(flow.state, flow.sent_bytes) for flow in rows(empty_url, FlowRow)] == [
        ("active", 0),
        ("closed", 0),
    ]
    assert [(hop.flow_id, hop.position, hop.dpid) for hop in rows(empty_url, HopRow)] == [
        (11, 0, 7),
        (12, 0, 7),
    ]
    (decision,) = rows(empty_url, DecisionRow)
    assert (decision.dpid, decision.port_no, decision.origin, decision.ranking) == (7, 3, "alarm", [])
    assert [clamp.flow_id for clamp in rows(empty_url, ClampRow)] == [11]
    FlowDb(empty_url).close()
    assert len(rows(empty_url, RunRow)) == 2


def test_a_sample_from_before_other_counters_stays_readable(empty_url):
    engine = open_engine(empty_url)
    with engine.begin() as connection:
        command.upgrade(schema._config(connection), "0003")
        columns = ("port_no", "at_ns", *COUNTER_COLUMNS)
        values = ", ".join(str(number) for number in range(len(columns)))
        connection.execute(
            text(f"INSERT INTO port_samples (dpid, {', '.join(columns)}) VALUES ('7', {values})")  # noqa: S608 - ours
        )
    assert schema.upgrade(engine, empty_url) == ("0003", schema.newest())
    (sample,) = rows(empty_url, PortSampleRow)
    assert sample.other_counters is None
    counters = PortSampleRow.join(vars(sample))
    assert counters == {name: 2 + place for place, name in enumerate(COUNTER_COLUMNS)}


def test_an_upgrade_that_fails_changes_nothing(empty_url):
    """The last migration fails, because a table of that name exists."""
    engine = make_old(empty_url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE commands (id INTEGER)"))
    with pytest.raises(Exception, match=r"cannot upgrade the flow database .*commands.* already exists"):
        schema.upgrade(engine, empty_url)
    with engine.connect() as connection:
        assert schema.version(connection) == "0001"
        assert "boot_id" not in {column["name"] for column in inspect(connection).get_columns("runs")}


def test_a_newer_database_is_refused(empty_url):
    engine = open_engine(empty_url)
    schema.upgrade(engine, empty_url)
    with engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    for use in (lambda: FlowDb(empty_url), lambda: schema.upgrade(engine, empty_url)):
        with pytest.raises(SchemaMismatch, match=r"newer version \(9999, .*update Weir"):
            use()
