"""The `weir` command line and the configuration file."""
