"""Alembic: how a database of one version becomes one of the next. ``weir db upgrade`` runs them."""
