"""The dashboard: which flows are punished, why, and what it did to the queue."""
