"""PostgreSQL's processes on this machine run with the priority of the client."""

from __future__ import annotations

import logging
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import psycopg
import pytest

from flowdb import postgres_priority
from flowdb.engine import open_engine
from flowdb.postgres_priority import share_priority
from tests.unit.conftest import WITH_TABLES
from webui.database import Database
from webui.server import yield_processors


@pytest.fixture
def yielding_thread():
    """A thread that yields the CPU. A thread cannot undo that, so it is not the test's own."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(yield_processors).result()
        yield thread


@pytest.fixture
def cluster(postgres):
    """A PostgreSQL server with Weir's tables."""
    postgres.make_database(like=WITH_TABLES)
    return postgres


def connected(cluster):
    """Opens a connection and sets its process's priority; returns the scheduling policy and nice value."""
    with psycopg.connect(cluster.url) as connection:
        share_priority(connection)
        return priority_of(connection)


def priority_of(connection):
    process = connection.info.backend_pid
    return os.sched_getscheduler(process), os.getpriority(os.PRIO_PROCESS, process)


@pytest.mark.postgres
def test_the_server_process_gets_the_clients_priority(cluster, yielding_thread):
    assert connected(cluster) == (os.SCHED_OTHER, 0)
    assert yielding_thread.submit(connected, cluster).result() == (os.SCHED_IDLE, 0)
    yielding_thread.submit(os.setpriority, os.PRIO_PROCESS, 0, 7).result()
    assert yielding_thread.submit(connected, cluster).result() == (os.SCHED_IDLE, 7)


@pytest.mark.postgres
def test_every_engine_shares_its_priority(cluster, yielding_thread):
    def read():
        with Database(cluster.url).reading() as session:
            return priority_of(session.connection().connection.driver_connection)

    def write():
        with open_engine(cluster.url).connect() as connection:
            return priority_of(connection.connection.driver_connection)

    assert yielding_thread.submit(read).result() == (os.SCHED_IDLE, 0)
    assert yielding_thread.submit(write).result() == (os.SCHED_IDLE, 0)


def test_a_process_of_another_machine_is_not_changed(yielding_thread):
    """A TCP connection proves nothing; with a Unix socket the process must be the listener's child."""
    chosen = []

    def ask(family):
        server = socket.socket(family)
        server.bind("\0weir-test" if family == socket.AF_UNIX else ("127.0.0.1", 0))
        with server, socket.socket(family) as client:
            server.listen()
            client.connect(server.getsockname())
            info = SimpleNamespace(backend_pid=os.getpid())
            chosen.append(postgres_priority._listener(client.fileno()))
            share_priority(SimpleNamespace(info=info, fileno=client.fileno))
        return os.sched_getscheduler(os.getpid())

    for family, listener in ((socket.AF_INET, None), (socket.AF_UNIX, os.getpid())):
        assert yielding_thread.submit(ask, family).result() == os.SCHED_OTHER
        assert chosen.pop() == listener


@pytest.mark.postgres
def test_a_missing_permission_is_logged(cluster, yielding_thread, monkeypatch, caplog):
    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "sched_setscheduler", refused)
    with caplog.at_level(logging.INFO):
        assert yielding_thread.submit(connected, cluster).result() == (os.SCHED_OTHER, 0)
    assert "keeps its priority: Operation not permitted" in caplog.text
