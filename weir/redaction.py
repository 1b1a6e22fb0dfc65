"""Text without secrets: known values are removed, and whatever looks like a password or a key. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

REMOVED = "[removed]"
LEAST_SECRET = 4
"""A shorter value is not searched for: it would remove parts of words."""
_SECRET_KEY = re.compile(r"pass(word|wd|phrase)?$|secret|token|credential|^(private_)?key$", re.IGNORECASE)


def _value_of(name: str, bare: str) -> re.Pattern[str]:
    """Finds the value of ``name``: in JSON, in Python's notation, in a header or in an assignment.

    Group 1 is what stays. The value is in quotes, which a string of JSON escapes, or ``bare`` finds it.
    """
    quote_mark = r"\\*[\"']"
    in_quotes = r"(?:(?!\2)(?:\\.|[^\\\r\n]))*"
    return re.compile(rf"(?i)({name}(?:{quote_mark})?\s*[:=]\s*({quote_mark})?)(?(2){in_quotes}|{bare})")


_PATTERNS = (
    (
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S),
        REMOVED,
    ),
    (re.compile(r"(\w[\w+.-]*://[^\s/:@\"']*):[^\s\"']*@"), rf"\1:{REMOVED}@"),
    (re.compile(r"(\$argon2\w*\$)\S+"), rf"\1{REMOVED}"),
    (_value_of("authorization", r"(?:(?:bearer|basic)\s+)?[^\s\"',;]+"), rf"\1{REMOVED}"),
    (_value_of("cookie", r"[^\r\n]+"), rf"\1{REMOVED}"),
    (
        _value_of(r"\w*(?:passw(?:or)?d|passphrase|secret|token|credential)\w*", r"[^\s\"',;&}]+"),
        rf"\1{REMOVED}",
    ),
)
"""What looks like a secret, and what replaces it. A URL's password ends at the last @, as libpq reads it."""


def without_secrets(text: str, secrets: Collection[str] = ()) -> str:
    """``text`` without the known ``secrets``, in the forms of URLs and JSON too, and without others."""
    forms = {
        form
        for one in secrets
        if len(one) >= LEAST_SECRET
        for form in (one, quote(one, safe=""), quote_plus(one), *_in_json(one))
    }
    for form in sorted(forms, key=len, reverse=True):
        text = text.replace(form, REMOVED)
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def _in_json(text: str) -> tuple[str, str]:
    """``text`` as JSON has it between the quotes, with and without characters beyond ASCII."""
    return json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]


def settings_without_secrets(value: Any, key: str = "") -> Any:
    """Settings as JSON has them, without the values of keys that name a secret. Paths of files stay."""
    if isinstance(value, Mapping):
        return {name: settings_without_secrets(held, str(name)) for name, held in value.items()}
    if isinstance(value, list | tuple):
        return [settings_without_secrets(held, key) for held in value]
    if isinstance(value, str) and _SECRET_KEY.search(key) and not value.startswith("/"):
        return REMOVED
    return value
