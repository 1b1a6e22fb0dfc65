"""Database URLs in messages: no password in them is ever shown.

A password may be in the URL before the host, in its query, or, in a URL with a mistake, anywhere.
"""

from __future__ import annotations

import re
from urllib.parse import quote, quote_plus, unquote, unquote_plus

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError

HIDDEN = "***"
_SECRET_KEYS = re.compile("pass(word|wd|phrase)?$|secret|token", re.IGNORECASE)


class UnusableUrl(ValueError):
    """The text is not a database URL. The message says why, and shows no part of it that may be secret."""


def parsed(url: str) -> URL:
    """The parts of a URL. Raises UnusableUrl."""
    try:
        found = make_url(url)
    except (ArgumentError, ValueError):  # the message of an invalid port shows it, and it may be a password
        raise UnusableUrl("it cannot be parsed") from None
    if found.get_backend_name() != "sqlite" and "@" in f"{found.host}{found.database}{found.port}":
        raise UnusableUrl("it has an @ that does not end the password; write an @ of the password as %40")
    return found


def without_password(url: str) -> str:
    """A URL for messages. Of a text that is not a URL only the part before :// is shown."""
    try:
        found = parsed(url)
    except UnusableUrl:
        scheme, separator, _ = url.partition("://")
        return f"{scheme}://{HIDDEN}" if separator and scheme.replace("+", "").isalnum() else HIDDEN
    shown = found.set(query={key: HIDDEN if _is_secret(key) else value for key, value in found.query.items()})
    return shown.render_as_string().replace(quote_plus(HIDDEN), HIDDEN)


def has_password(url: str) -> bool:
    """Whether a URL holds a password, or may hold one because it cannot be parsed."""
    try:
        return bool(_passwords(parsed(url)))
    except UnusableUrl:
        return True


def hide_password(text: str, url: str) -> str:
    """A driver's message about a database, without the password of the database's URL."""
    try:
        secrets = _passwords(parsed(url))
    except UnusableUrl:
        return text
    for secret in secrets:
        for form in {
            secret,
            quote(secret, safe=""),
            quote_plus(secret),
            unquote(secret),
            unquote_plus(secret),
        }:
            text = text.replace(form, HIDDEN)
    return text


def _passwords(url: URL) -> list[str]:
    in_query = [value for key, value in url.normalized_query.items() if _is_secret(key)]
    found = [*([str(url.password)] if url.password else []), *(one for values in in_query for one in values)]
    return [one for one in found if one]


def _is_secret(key: str) -> bool:
    return _SECRET_KEYS.search(key) is not None
