"""SCCP: count the flows of each port, and lower every window to the port's fair share."""
