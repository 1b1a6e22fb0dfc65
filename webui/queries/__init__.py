"""Queries of the database, each served by an index. They take a session and return ``views``."""
