"""Port samples as values, as a listening app records them, and as a controller's metrics page shows them."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from openflow_ext.wire import PortCountersFlags, PortCountersRecord
from telemetry_app.core import PortSample

LISTENER = "tests.support.controllers.sample_listener"


def a_record(port_no=1, flags=PortCountersFlags.ATTACHED, **counted):
    return PortCountersRecord(port_no, flags=flags, **counted)


def a_sample(port, name="p", at_ns=1, **counted):
    return PortSample(port, name, at_ns, a_record(port.port_no, **counted))


def figures(port):
    """Read a controller's metrics page: (metric, name of the port) -> value."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        families = text_string_to_metric_families(answer.read().decode())
        return {(s.name, s.labels.get("name")): s.value for family in families for s in family.samples}
