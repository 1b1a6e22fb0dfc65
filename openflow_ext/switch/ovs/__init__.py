"""The interfaces of Open vSwitch and of its ports: OVSDB, controllers, links, qdiscs."""
