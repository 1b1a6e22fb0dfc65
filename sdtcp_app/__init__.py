"""SDTCP: on a queue alarm, slow the longest-lived flow through the port by its ACKs' receive window."""
