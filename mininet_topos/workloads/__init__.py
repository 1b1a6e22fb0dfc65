"""Workloads: the plan of flows, computed before a run. Pure; see README.md."""
