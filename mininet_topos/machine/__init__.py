"""This machine: commands, programs, processes and CPUs, and the record of what a lab has created."""
