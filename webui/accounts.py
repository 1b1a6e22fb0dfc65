"""The file of accounts: people with hashed passwords, tokens of scripts, the key that signs sessions.

One JSON file, for its owner alone. A changed password ends that person's sessions.

AccountsError   the file cannot be read or written, or a name is not there
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import tempfile
from pathlib import Path
from typing import Literal

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

Scope = Literal["read", "act"]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
LEAST_PASSWORD = 10
_HASHER = PasswordHasher()
_NOBODY = _HASHER.hash(secrets.token_hex())


class AccountsError(Exception):
    """The accounts cannot be used; the message says why and what to do."""


class Token(BaseModel):
    """A script's token: only its SHA-256 is kept (it is 256 random bits, so nothing slower is needed)."""

    model_config = ConfigDict(extra="forbid")
    sha256: str
    scope: Scope


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    secret_key: str = Field(default_factory=secrets.token_hex)
    people: dict[str, str] = {}
    tokens: dict[str, Token] = {}


class Accounts:
    """The accounts in a file. A file that is not there is an empty one, made with the first account."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at: tuple[int, int] | None = None
        self._file = _File()
        self._refresh()

    @property
    def secret_key(self) -> str:
        return self._file.secret_key

    @property
    def people(self) -> list[str]:
        return sorted(self._refresh().people)

    @property
    def tokens(self) -> dict[str, Scope]:
        return {name: token.scope for name, token in sorted(self._refresh().tokens.items())}

    def admits(self, name: str, password: str) -> bool:
        """Whether this is the person's password; takes as long for a name that is not there."""
        hashed = self._refresh().people.get(name)
        try:
            return _HASHER.verify(hashed or _NOBODY, password) and hashed is not None
        except (VerificationError, InvalidHashError):
            return False

    def mark_of(self, name: str) -> str | None:
        """What a session holds beside the name: changes with the password. None: no such person."""
        hashed = self._refresh().people.get(name)
        return None if hashed is None else hashlib.sha256(hashed.encode()).hexdigest()[:16]

    def token_named(self, secret: str) -> tuple[str, Scope] | None:
        """The token's name and what it may do; None: unknown."""
        digest = _digest(secret)
        for name, token in self._refresh().tokens.items():
            if secrets.compare_digest(token.sha256, digest):
                return name, token.scope
        return None

    def put_person(self, name: str, password: str) -> None:
        """Add a person or change a password. Raises AccountsError."""
        if len(password) < LEAST_PASSWORD:
            raise AccountsError(f"a password has at least {LEAST_PASSWORD} characters")
        self._refresh().people[_checked(name)] = _HASHER.hash(password)
        self._write()

    def remove_person(self, name: str) -> None:
        """Raises AccountsError where there is none."""
        if self._refresh().people.pop(name, None) is None:
            raise AccountsError(f"there is no person {name!r}; there are: {', '.join(self.people) or 'none'}")
        self._write()

    def add_token(self, name: str, scope: Scope) -> str:
        """A new token's secret, which is not kept. Raises AccountsError."""
        if _checked(name) in self._refresh().tokens:
            raise AccountsError(f"there is a token {name!r} already; remove it first, or take another name")
        secret = f"weir_{secrets.token_urlsafe(32)}"
        self._file.tokens[name] = Token(sha256=_digest(secret), scope=scope)
        self._write()
        return secret

    def remove_token(self, name: str) -> None:
        """Raises AccountsError where there is none."""
        if self._refresh().tokens.pop(name, None) is None:
            raise AccountsError(f"there is no token {name!r}; there are: {', '.join(self.tokens) or 'none'}")
        self._write()

    def _refresh(self) -> _File:
        """The file as it is now: accounts are changed while the dashboard runs."""
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            return self._file
        except OSError as error:
            raise AccountsError(f"{self._path}: cannot be read ({error.strerror})") from error
        if (state := (stat.st_mtime_ns, stat.st_ino)) != self._read_at:
            try:
                self._file = _File.model_validate_json(self._path.read_bytes())
            except OSError as error:
                raise AccountsError(f"{self._path}: cannot be read ({error.strerror})") from error
            except ValidationError as error:
                raise AccountsError(f"{self._path}: is no file of accounts; move it away") from error
            self._read_at = state
        return self._file

    def _write(self) -> None:
        text = json.dumps(self._file.model_dump(), indent=1)
        try:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}-")
            with os.fdopen(handle, "w") as file:
                file.write(text)
            os.replace(name, self._path)
        except OSError as error:
            raise AccountsError(
                f"{self._path}: cannot be written ({error.strerror}); name another in [web] accounts"
            ) from error


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise AccountsError(f"{name!r} is no name here: letters, digits and . _ @ -, at most 64")
    return name


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
