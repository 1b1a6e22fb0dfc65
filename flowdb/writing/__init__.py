"""How changes of rows reach SQL: collected in memory, written in batches in the background."""
