"""Who leaves the processors to others: the dashboard, and PostgreSQL's processes that answer it."""

from __future__ import annotations

import logging
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import psycopg
import pytest

from tests.unit.conftest import WITH_TABLES
from webui import yielding
from webui.database import Database
from webui.yielding import backend_yields, yield_processors


@pytest.fixture
def yielding_thread():
    """A thread of its own, for who yields does so for good."""
    with ThreadPoolExecutor(1) as thread:
        thread.submit(yield_processors).result()
        yield thread


@pytest.fixture
def cluster(postgres):
    """A PostgreSQL server with Weir's tables."""
    postgres.make_database(like=WITH_TABLES)
    return postgres


def connected(cluster):
    """The scheduling policy of the PostgreSQL process that answers, once its priority was seen to."""
    with psycopg.connect(cluster.url) as connection:
        backend_yields(connection)
        return os.sched_getscheduler(connection.info.backend_pid)


def test_who_yields_runs_when_nobody_else_wants_to(yielding_thread):
    assert yielding_thread.submit(os.sched_getscheduler, 0).result() == os.SCHED_IDLE


@pytest.mark.postgres
def test_the_servers_process_yields_as_the_dashboard_does(cluster, yielding_thread):
    assert yielding_thread.submit(connected, cluster).result() == os.SCHED_IDLE
    assert connected(cluster) == os.SCHED_OTHER


@pytest.mark.postgres
def test_every_connection_of_a_dashboard_that_yields_is_seen_to(cluster, yielding_thread):
    def policy():
        with Database(cluster.url).reading() as session:
            connection = session.connection().connection.driver_connection
            return os.sched_getscheduler(connection.info.backend_pid)

    assert yielding_thread.submit(policy).result() == os.SCHED_IDLE


def test_another_machines_process_of_that_number_is_left_alone(yielding_thread):
    """Over TCP the number says nothing; over a Unix socket the process must be the listener's child."""
    chosen = []

    def ask(family):
        server = socket.socket(family)
        server.bind("\0weir-test" if family == socket.AF_UNIX else ("127.0.0.1", 0))
        with server, socket.socket(family) as client:
            server.listen()
            client.connect(server.getsockname())
            info = SimpleNamespace(backend_pid=os.getpid())
            chosen.append(yielding._listener(client.fileno()))
            backend_yields(SimpleNamespace(info=info, fileno=client.fileno))
        return os.sched_getscheduler(os.getpid())

    for family, listener in ((socket.AF_INET, None), (socket.AF_UNIX, os.getpid())):
        assert yielding_thread.submit(ask, family).result() == os.SCHED_OTHER
        assert chosen.pop() == listener


@pytest.mark.postgres
def test_who_may_not_change_it_says_so_and_goes_on(cluster, yielding_thread, monkeypatch, caplog):
    def refused(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(yielding, "yield_processors", refused)
    with caplog.at_level(logging.INFO):
        assert yielding_thread.submit(connected, cluster).result() == os.SCHED_OTHER
    assert "keeps its priority: Operation not permitted" in caplog.text
