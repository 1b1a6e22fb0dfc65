"""The global flow database: an index in memory for the hot path, SQL behind it for everyone else."""
