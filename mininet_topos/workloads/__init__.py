"""Workloads: what flows there are, decided beforehand. Pure: see README.md."""
