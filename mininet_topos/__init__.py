"""The lab: Mininet networks behind the extended switch, real TCP workloads, and what they show."""
