"""The global flow database: an index in memory for the controllers' hot path, and SQL for all others."""
