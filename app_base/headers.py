"""Numbers of packet headers that flow entries match: Ethernet types, IP protocols, TCP flags."""

ETH_IPV4, ETH_ARP, ETH_RARP, ETH_IPV6, ETH_LLDP = 0x0800, 0x0806, 0x8035, 0x86DD, 0x88CC
IP_TCP, IP_UDP, IP_ICMPV6 = 6, 17, 58

FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
"""TCP header flags (RFC 9293)."""

OPENING_OR_CLOSING = ((SYN, SYN), (FIN, FIN | SYN), (RST, RST | FIN | SYN))
"""(flags, mask) of disjoint matches that cover every segment with SYN, FIN or RST; SYN comes first."""

DATA = (0, RST | FIN | SYN)
"""(flags, mask) of the match that covers every other segment."""
