"""The dashboard: which flows are punished, why, and how the queues changed."""
