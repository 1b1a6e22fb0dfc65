"""Keyset pagination: a page starts after a row instead of after a count, so every page costs the same.

A cursor names the row after which a page starts (or before which it ends) by its sort value and its id.
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
    """A text that is not a cursor of this dashboard."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """A row of a list. ``backwards``: the page before the row is wanted, instead of the page after it."""

    value: int
    id: int
    backwards: bool = False

    def __str__(self) -> str:
        return base64.urlsafe_b64encode(_PACKED.pack(self.backwards, self.value, self.id)).decode()

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The cursor in a text. Raises BadCursor."""
        try:
            if len(text) != _LENGTH:
                raise ValueError
            backwards, value, row_id = _PACKED.unpack(base64.b64decode(text, altchars=b"-_", validate=True))
        except (ValueError, binascii.Error, struct.error) as error:
            raise BadCursor("cursor: not a cursor of this dashboard; start again without it") from error
        return cls(value, row_id, bool(backwards))


@dataclass(frozen=True, slots=True)
class Order:
    """An order of rows by a column and then by an id, which may belong to another table."""

    column: InstrumentedAttribute[Any]
    id: InstrumentedAttribute[Any]
    descending: bool = True

    def of(self, statement: AnySelect, cursor: Cursor | None, limit: int) -> AnySelect:
        """The rows of one page, and one more row, which shows whether there is another page."""
        descending = self.descending ^ bool(cursor and cursor.backwards)
        if cursor is not None:
            statement = statement.where(self._beyond(cursor, descending))
        keys = [self.column] if self.column is self.id else [self.column, self.id]
        ordered = [key.desc() if descending else key.asc() for key in keys]
        return statement.order_by(*ordered).limit(limit + 1)

    def _beyond(self, cursor: Cursor, descending: bool) -> Any:
        """The condition for rows after the cursor. An index can start at the outer bound, on one column."""
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
    """One page of rows, in the list's order, with its cursors. ``key`` returns a row's sort value and id."""
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
