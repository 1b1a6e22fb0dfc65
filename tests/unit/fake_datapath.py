"""A datapath that builds real messages and records what is sent; and what a real one would serialize."""

from types import SimpleNamespace

from openflow_ext import registry
from openflow_ext.engine import ofproto_v1_3, ofproto_v1_3_parser, ofproto_v1_5, ofproto_v1_5_parser
from tests.unit.scripted_switch import FLOW_MOD, parse_flow_mod

registry.install()
_VERSIONS = {4: (ofproto_v1_3, ofproto_v1_3_parser), 6: (ofproto_v1_5, ofproto_v1_5_parser)}


class FakeDatapath:
    """``sent`` holds the messages; each was serialized, so that a value that cannot be sent fails here."""

    address = ("127.0.0.1", 1)

    def __init__(self, dpid=1, version=4):
        self.id = dpid
        self.sent = []
        self.xid = 0
        self.ofproto, self.ofproto_parser = _VERSIONS[version]

    def set_xid(self, msg):
        self.xid += 1
        msg.set_xid(self.xid)

    def send_msg(self, msg):
        msg.datapath = self
        if msg.xid is None:
            self.set_xid(msg)
        msg.serialize()
        self.sent.append(msg)
        return True

    def flow_mods(self):
        """What was sent as FLOW_MODs, read back from their bytes."""
        return [parse_flow_mod(bytes(m.buf)) for m in self.sent if m.msg_type == FLOW_MOD]


def event(datapath, **fields):
    """An event with a message, as handlers get it."""
    return SimpleNamespace(msg=SimpleNamespace(datapath=datapath, **fields))
