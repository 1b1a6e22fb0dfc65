"""An app that records the port samples it gets, and requires the apps in ``$WEIR_TEST_APPS``."""

import json
import os

from openflow_ext.engine import App, set_ev_cls
from telemetry_app.events import EventPortSamples

_REQUIRED_APP = os.environ["WEIR_TEST_APPS"].split(",")  # the framework reads it


class SampleListener(App):
    """A line for each event, in the file ``$WEIR_TEST_SAMPLES``."""

    @set_ev_cls(EventPortSamples)
    def on_samples(self, ev):
        samples = [(one.port.port_no, one.name, one.counters.n_i) for one in ev.samples]
        with open(os.environ["WEIR_TEST_SAMPLES"], "a") as file:
            file.write(json.dumps({"dpid": ev.dpid, "samples": samples}) + "\n")
