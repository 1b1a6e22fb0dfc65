"""Keyset pagination: a page begins after a row, not after a count, so that the millionth costs the first's.

A cursor names the row that a page begins after (or ends before) by the value sorted by and its id.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from sqlalchemy import Select, and_, or_
from sqlalchemy.orm import InstrumentedAttribute

from webui.views import Page

_PACKED = struct.Struct(">Bqq")
_LENGTH = len(base64.urlsafe_b64encode(bytes(_PACKED.size)))
Row = TypeVar("Row")
AnySelect: TypeAlias = "Select[*tuple[Any, ...]]"


class BadCursor(ValueError):
    """A cursor that this dashboard did not make."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a list; ``backwards``: the page before it is wanted."""

    value: int
    id: int
    backwards: bool = False

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(_PACKED.pack(self.backwards, self.value, self.id)).decode()

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Raises BadCursor."""
        try:
            if len(text) != _LENGTH:
                raise ValueError
            backwards, value, row_id = _PACKED.unpack(base64.b64decode(text, altchars=b"-_", validate=True))
        except (ValueError, binascii.Error, struct.error) as error:
            raise BadCursor("cursor: not one of ours; begin again without it") from error
        return cls(value, row_id, bool(backwards))


@dataclass(frozen=True, slots=True)
class Order:
    """Rows sorted by a column and their id, which need not be the same table's."""

    column: InstrumentedAttribute[Any]
    id: InstrumentedAttribute[Any]
    descending: bool = True

    def of(self, statement: AnySelect, cursor: Cursor | None, limit: int) -> AnySelect:
        """The statement's rows of one page, and one more, which tells whether there is another."""
        descending = self.descending ^ bool(cursor and cursor.backwards)
        if cursor is not None:
            statement = statement.where(self._beyond(cursor, descending))
        keys = [self.column] if self.column is self.id else [self.column, self.id]
        ordered = [key.desc() if descending else key.asc() for key in keys]
        return statement.order_by(*ordered).limit(limit + 1)

    def _beyond(self, cursor: Cursor, descending: bool) -> Any:
        """After a place; the outer bound, on one column, is what an index can begin at."""
        column, row_id = self.column, self.id
        if column is row_id:
            return row_id < cursor.id if descending else row_id > cursor.id
        if descending:
            bound, tie = column <= cursor.value, and_(column == cursor.value, row_id < cursor.id)
            return and_(bound, or_(column < cursor.value, tie))
        bound, tie = column >= cursor.value, and_(column == cursor.value, row_id > cursor.id)
        return and_(bound, or_(column > cursor.value, tie))


def cut(
    rows: Sequence[Row], cursor: Cursor | None, limit: int, key: Callable[[Row], tuple[int, int]]
) -> tuple[list[Row], Page]:
    """One page of rows, in the list's order, and where it goes on; ``key`` is a row's value and id."""
    backwards = bool(cursor and cursor.backwards)
    more = len(rows) > limit
    kept = list(rows[:limit])
    if backwards:
        kept.reverse()
    if not kept:
        return [], Page()
    after = str(Cursor(*key(kept[-1]))) if more or backwards else None
    before = str(Cursor(*key(kept[0]), backwards=True)) if (more if backwards else cursor) else None
    return kept, Page(after=after, before=before)
