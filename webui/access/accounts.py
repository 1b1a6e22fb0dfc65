"""The accounts file: people with hashed passwords, tokens for scripts, the key that signs sessions.

It is one JSON file that only its owner may read. A changed password ends the person's sessions.

AccountsError   the file cannot be read or written, or a name is unknown or already taken
TooManyChecks   many passwords are being checked now
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import tempfile
from pathlib import Path
from threading import BoundedSemaphore
from typing import Literal

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

Scope = Literal["read", "act"]
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
MIN_PASSWORD_LENGTH = 10
MOST_HASHES = 2
"""Passwords that are hashed at a time. Each takes 64 MiB of memory and 50 ms or more of a CPU."""
MOST_QUEUED = 6
_HASHER = PasswordHasher()
_HASHES = BoundedSemaphore(MOST_HASHES)
_CHECKS = BoundedSemaphore(MOST_HASHES + MOST_QUEUED)
_UNKNOWN = _HASHER.hash(secrets.token_hex())


class AccountsError(Exception):
    """The accounts cannot be used; the message says why, and what to do."""


class TooManyChecks(Exception):
    """Many passwords are being checked now; the message says what to do."""


class Token(BaseModel):
    """A script's token. Only its SHA-256 is stored; the token has 256 random bits, so a fast hash is safe."""

    model_config = ConfigDict(extra="forbid")
    sha256: str
    scope: Scope


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    secret_key: str = Field(default_factory=secrets.token_hex)
    people: dict[str, str] = {}
    tokens: dict[str, Token] = {}


class Accounts:
    """The accounts in a file. A missing file has no accounts; the first account creates it."""

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

    def admits(self, name: str, password: str, wait_s: float = 0.0) -> bool:
        """Whether this is the person's password. An unknown name takes as long as a known one.

        ``wait_s``: how long to wait for a place in the queue of checks. Raises TooManyChecks without one.
        """
        hashed = self._refresh().people.get(name)
        if not _CHECKS.acquire(timeout=wait_s):
            raise TooManyChecks("too many logins are being checked; try again in a few seconds")
        try:
            with _HASHES:
                return _HASHER.verify(hashed or _UNKNOWN, password) and hashed is not None
        except (VerificationError, InvalidHashError):
            return False
        finally:
            _CHECKS.release()

    def session_mark(self, name: str) -> str | None:
        """A value that sessions store besides the name; it changes with the password. None: unknown name."""
        hashed = self._refresh().people.get(name)
        return None if hashed is None else hashlib.sha256(hashed.encode()).hexdigest()[:16]

    def token_named(self, secret: str) -> tuple[str, Scope] | None:
        """The token's name and scope; None: an unknown token."""
        digest = _digest(secret)
        for name, token in self._refresh().tokens.items():
            if secrets.compare_digest(token.sha256, digest):
                return name, token.scope
        return None

    def put_person(self, name: str, password: str) -> None:
        """Add a person or change a password. Raises AccountsError."""
        if len(password) < MIN_PASSWORD_LENGTH:
            raise AccountsError(f"a password needs at least {MIN_PASSWORD_LENGTH} characters")
        self._refresh().people[_checked(name)] = _HASHER.hash(password)
        self._write()

    def remove_person(self, name: str) -> None:
        """Raises AccountsError if the name is unknown."""
        if self._refresh().people.pop(name, None) is None:
            raise AccountsError(f"unknown user {name!r}; the users are: {', '.join(self.people) or 'none'}")
        self._write()

    def add_token(self, name: str, scope: Scope) -> str:
        """Add a token; returns its secret, which is not stored. Raises AccountsError."""
        if _checked(name) in self._refresh().tokens:
            raise AccountsError(f"a token {name!r} already exists; remove it first, or choose another name")
        secret = f"weir_{secrets.token_urlsafe(32)}"
        self._file.tokens[name] = Token(sha256=_digest(secret), scope=scope)
        self._write()
        return secret

    def remove_token(self, name: str) -> None:
        """Raises AccountsError if the name is unknown."""
        if self._refresh().tokens.pop(name, None) is None:
            raise AccountsError(f"unknown token {name!r}; the tokens are: {', '.join(self.tokens) or 'none'}")
        self._write()

    def _refresh(self) -> _File:
        """Read the file again if it changed, because accounts are changed while the dashboard runs."""
        try:
            stat = self._path.stat()
        except FileNotFoundError:
            if self._read_at is not None:  # the file was removed, and its accounts with it
                self._file, self._read_at = _File(secret_key=self._file.secret_key), None
            return self._file
        except OSError as error:
            raise self._unreadable(error) from error
        if (state := (stat.st_mtime_ns, stat.st_ino)) != self._read_at:
            try:
                self._file = _File.model_validate_json(self._path.read_bytes())
            except OSError as error:
                raise self._unreadable(error) from error
            except ValidationError as error:
                raise AccountsError(f"{self._path} is not an accounts file; move it away") from error
            self._read_at = state
        return self._file

    def _unreadable(self, error: OSError) -> AccountsError:
        return AccountsError(
            f"{self._path}: cannot be read ({error.strerror}); run weir accounts as root, give the file and"
            " its folder to the user of weir web, or name another file in [web] accounts"
        )

    def _write(self) -> None:
        text = json.dumps(self._file.model_dump(), indent=1)
        try:
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            owner = (self._path if self._path.exists() else self._path.parent).stat()
            handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}-")
            with os.fdopen(handle, "w") as file:
                if os.geteuid() == 0:  # an administrator writes the file, and the service reads it
                    os.fchown(handle, owner.st_uid, owner.st_gid)
                file.write(text)
                file.flush()
                os.fsync(handle)
            os.replace(name, self._path)
        except OSError as error:
            raise AccountsError(
                f"{self._path}: cannot be written ({error.strerror}); name another in [web] accounts"
            ) from error


def _checked(name: str) -> str:
    if not NAME.fullmatch(name):
        raise AccountsError(f"{name!r} is not a valid name; use at most 64 letters, digits and . _ @ -")
    return name


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
