"""The pipeline that Weir's apps share: tables, priorities, cookies.

A segment goes through the first four tables; fabric_app puts the table-miss entries that lead on. Where
several shortest paths lead to a destination, forwarding goes on: one table for each bit of the flow's
bucket (``paths.py``), then the table that knows the port for destination and bucket.
An app recognises its entries by the upper half of the cookie; the lower half is its own.
"""

TABLE_SDTCP = 0
TABLE_SCCP = 1
TABLE_EVENTS = 2
TABLE_FORWARDING = 3
TABLE_BUCKET = 4
"""The first of BUCKET_BITS tables."""
TABLE_PATHS = 8

COOKIE_FABRIC = 0x5745_4901_0000_0000
COOKIE_SDTCP = 0x5745_4902_0000_0000
COOKIE_SCCP = 0x5745_4903_0000_0000
COOKIE_MASK = 0xFFFF_FFFF_0000_0000

ETH_IPV4, ETH_ARP, ETH_IPV6, ETH_LLDP = 0x0800, 0x0806, 0x86DD, 0x88CC
IP_TCP, IP_UDP, IP_ICMPV6 = 6, 17, 58
FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
"""Ethernet types, IP protocols, TCP header flags (RFC 9293)."""

OPENING_OR_CLOSING = ((SYN, SYN), (FIN, FIN | SYN), (RST, RST | FIN | SYN))
"""(flags, mask) of disjoint matches that cover every segment with SYN, FIN or RST, SYN first."""
DATA = (0, RST | FIN | SYN)
"""(flags, mask) of the match that covers every other segment."""
