"""The emulated network: topologies, the roles of hosts and ports, shaped links, nodes, and Open vSwitch."""
