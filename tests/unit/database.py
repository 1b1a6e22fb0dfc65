"""Reads the flow database as anybody else would: with a connection of its own."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from flowdb.models import Base

Row = TypeVar("Row", bound=Base)


def rows(database: Path, model: type[Row]) -> list[Row]:
    """All rows of a table."""
    engine = create_engine(f"sqlite:///{database}", poolclass=NullPool)
    with Session(engine) as session:
        return list(session.scalars(select(model)))
