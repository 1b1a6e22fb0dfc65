"""An example of a controller app for Weir: a fixed window limit for the receivers of chosen subnets."""
