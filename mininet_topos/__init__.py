"""The lab: Mininet networks with the extended switch, real TCP workloads, and the figures of their runs."""
