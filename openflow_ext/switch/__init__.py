"""The weir switch: the agent that extends a stock Open vSwitch."""
