"""The network under the controllers: hosts, ARP, forwarding on one switch, flow events."""
