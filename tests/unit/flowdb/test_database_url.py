"""A database password appears in no message, page or log, and is not accepted as an argument."""

from __future__ import annotations

import logging
import traceback
from urllib.parse import quote, unquote

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from flowdb.config import database_url_of_argument
from flowdb.database_url import has_password, hide_password, without_password
from flowdb.engine import FlowDbError, open_engine, open_reader, reporting_errors
from tests.support.dashboard.application import PAGES, make
from weir.cli import weir
from weir_base.settings import SettingsError

WORD = "hunter2hunter2"
NOWHERE = "127.0.0.1:1"
HOSTILE = (
    f"postgresql://weir:{WORD}@{NOWHERE}/weir",
    f"postgresql+psycopg://weir:{WORD}@{NOWHERE}/weir",
    f"postgresql://{NOWHERE}/weir?user=weir&password={WORD}",
    f"postgresql://{NOWHERE}/weir?sslpassword={WORD}",
    f"postgresql://weir:p@{WORD}@{NOWHERE}/weir",
    f"postgresql://weir:p@ss/{WORD}@{NOWHERE}/weir",
    f"postgresql://we/ir:{WORD}@{NOWHERE}/weir",
    f"postgresql://weir:{WORD}",
    f"postgresql:/weir:{WORD}@{NOWHERE}/weir",
    f"mysql://weir:{WORD}@{NOWHERE}/weir",
    f"{WORD}://weir",
    f"nonsense{WORD}://a:b:c@[::",
)


@pytest.mark.parametrize("url", HOSTILE)
@pytest.mark.parametrize("opened", [open_engine, open_reader])
def test_no_error_shows_a_password(url, opened):
    with pytest.raises(FlowDbError) as caught, reporting_errors(url, "read"), opened(url).connect():
        pass
    shown = "".join(traceback.format_exception(caught.value))
    if url.startswith((WORD, "nonsense")):
        shown = str(caught.value)
        assert "a:b:c" not in shown
    else:
        assert WORD not in shown


@pytest.mark.parametrize("url", HOSTILE[:10])
def test_no_page_and_no_log_shows_a_password(url, tmp_path, caplog):
    caplog.set_level(logging.DEBUG)
    client = make(url, tmp_path).test_client()
    for address in (*PAGES, "/api/v1/totals", "/metrics", "/health", "/live?page=/"):
        answer = client.get(address, buffered=False)
        start = b"".join(part for _, part in zip(range(2), answer.iter_encoded(), strict=False))
        answer.close()
        assert WORD.encode() not in start, address
    assert WORD not in caplog.text


@pytest.mark.parametrize("command", [["web"], ["why", "1"], ["db"], ["controller"]])
@pytest.mark.parametrize("url", [HOSTILE[0], HOSTILE[2], HOSTILE[4], HOSTILE[7]])
def test_no_command_takes_a_password_as_an_argument(command, url):
    arguments = [*command, "--db", url, *(["stats"] if command == ["db"] else [])]
    done = CliRunner().invoke(weir, arguments)
    said = done.output + str(done.exception)
    assert done.exit_code == 1
    assert "a password in an argument is visible to other users" in said
    assert WORD not in said


def test_a_url_without_a_password_is_accepted_as_an_argument():
    for url in ("postgresql://weir@db/weir", "postgresql:///weir?host=/run/postgresql", "sqlite:////a@b.db"):
        assert database_url_of_argument(url) == url
        assert not has_password(url)
        assert unquote(without_password(url)) == url
    with pytest.raises(SettingsError, match="pgpass"):
        database_url_of_argument("postgresql://weir:x@db/weir")


@given(secret=st.text(min_size=6))
def test_a_quoted_password_is_hidden_in_every_form(secret):
    url = f"postgresql://weir:{quote(secret, safe='')}@db/weir?application_name=x"
    assert without_password(url) == "postgresql://weir:***@db/weir?application_name=x"
    assert has_password(url)
    message = hide_password(f"cannot log in with <{secret}> or <{quote(secret, safe='')}>", url)
    assert f"<{secret}>" not in message or secret in ("***",)
