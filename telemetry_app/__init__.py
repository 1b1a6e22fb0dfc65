"""Samples the port counters of all switches, once for all apps, the flow database and Prometheus."""
