"""Alembic's migrations from each version of the tables to the next. ``weir db upgrade`` runs them."""
