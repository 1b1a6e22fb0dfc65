"""Congestion controls for hosts, in BPF: see README.md."""
