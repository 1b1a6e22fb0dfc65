"""Ticks come at an app's interval, and sooner as soon as the interval shrinks. On Ryu's and os-ken's hubs."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json, sys, time
from openflow_ext import engine
from openflow_ext.engine import hub
from app_base.app import ControllerApp

class Ticking:
    is_active, name = True, "t"
    _send_ticks, check_interval = ControllerApp._send_ticks, ControllerApp.check_interval
    def __init__(self):
        self._tick_waits, self._tick_due_s, self._interval_shrank = False, 0.0, hub.Queue()
        self.interval_s, self.at_s = 0.1, []
    def tick_interval_s(self):
        return self.interval_s
    def send_event(self, _name, _event):
        self._tick_waits = False
        self.at_s.append(time.monotonic())

app = Ticking()
began_s = time.monotonic()
hub.spawn(app._send_ticks)
while len(app.at_s) < 3:
    hub.sleep(0.01)
app.interval_s = 1000.0
hub.sleep(0.5)
before, app.interval_s = len(app.at_s), 0.2
while len(app.at_s) == before and time.monotonic() - began_s < 30:
    app.check_interval()  # many events, none of which may put off the tick
    hub.sleep(0.01)
app.is_active = False
print(json.dumps([[at - began_s for at in app.at_s[:3]], len(app.at_s) > before]), flush=True)
import os
os._exit(0)
"""


@pytest.mark.parametrize("engine", ["ryu", "os_ken"])
def test_a_shrunken_interval_brings_the_next_tick_forward(engine: str) -> None:
    environment = os.environ | {"WEIR_ENGINE": engine}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    (first, second, third), is_sooner = json.loads(done.stdout)
    assert 0.1 <= first < second < third
    assert is_sooner, "not after 1000 s"
