"""Ticks come at an app's interval, and sooner as soon as the interval shrinks. On Ryu's and os-ken's hubs.

Only the app's own thread asks for the interval, because the answer depends on what its handlers change.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import json, os, threading, time
from openflow_ext.engine import hub
from app_base.app import ControllerApp

class Ticking:
    is_active, name = True, "t"
    _send_ticks, on_tick = ControllerApp._send_ticks, ControllerApp.on_tick
    check_interval = ControllerApp.check_interval
    def __init__(self):
        self._tick_waits, self._due_changed, self.events = False, hub.Queue(), hub.Queue()
        self._tick_due_s = time.monotonic() + 0.1
        self.interval_s, self.at_s, self.asked_by = 0.1, [], set()
    def tick_interval_s(self):
        self.asked_by.add(threading.get_ident())
        return self.interval_s
    def send_event(self, _name, event):
        self.events.put(event)
    def tick(self):
        self.at_s.append(time.monotonic())

def handle_events():
    hub.sleep(0.01)
    while app.events.qsize():
        app.on_tick(app.events.get())

app = Ticking()
began_s = time.monotonic()
hub.spawn(app._send_ticks)
while len(app.at_s) < 3:
    handle_events()
app.interval_s = 1000.0
until_s = time.monotonic() + 0.5
while time.monotonic() < until_s:
    handle_events()
before, app.interval_s = len(app.at_s), 0.2
while len(app.at_s) == before and time.monotonic() - began_s < 30:
    app.check_interval()  # many events, none of which may put off the tick
    handle_events()
mine = app.asked_by == {threading.get_ident()}
print(json.dumps([[at - began_s for at in app.at_s[:3]], len(app.at_s) > before, mine]), flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("engine", ["ryu", "os_ken"])
def test_a_shrunken_interval_brings_the_next_tick_forward(engine: str) -> None:
    environment = os.environ | {"WEIR_ENGINE": engine}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=True)
    (first, second, third), is_sooner, only_the_app_asks = json.loads(done.stdout)
    assert 0.1 <= first < second < third
    assert is_sooner, "not after 1000 s"
    assert only_the_app_asks
