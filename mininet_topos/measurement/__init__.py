"""Measurements during a run: TCP and drop counters, CPU time, CPU stalls, and the bottleneck's queue."""
