"""The follower with the rights of its unit. It runs alone, because other tests load the same control."""

from __future__ import annotations

import ipaddress
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from tests.support.waiting import wait_until
from transports import pacing_paths
from transports.congestion import loaded
from weir_base.paths import PROJECT

UNIT = PROJECT / "packaging" / "weir-follow.service"
FOLLOWED = "192.0.2.9"


class Bottlenecks(BaseHTTPRequestHandler):
    """A dashboard that knows one bottleneck."""

    def do_GET(self) -> None:
        item = {"to": FOLLOWED, "n_i": 7, "capacity_bps": 10**8, "buffer_bytes": 150_000}
        body = json.dumps([item | {"allowance_bytes": 0, "age_s": 0.1}]).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def test_the_follower_does_its_work_with_the_rights_of_its_unit(tmp_path: Path) -> None:
    """It writes the path of a destination, and removes it at its end."""
    token, network = tmp_path / "token", ipaddress.ip_network(FOLLOWED)
    token.write_text("a token\n")
    with loaded("weir_ap_reno"), ThreadingHTTPServer(("127.0.0.1", 0), Bottlenecks) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        options = ["--controller", f"http://127.0.0.1:{server.server_address[1]}", "--token-file", str(token)]
        weir = [sys.executable, "-m", "weir", "transports", "follow", *options, "--to", FOLLOWED]
        follower = subprocess.Popen([sys.executable, "-m", "tests.support.confined", str(UNIT), *weir])
        try:
            path = wait_until(lambda: pacing_paths.paths().get(network), "the follower writes the path")
            assert path.flows == 7
            assert "Seccomp:\t2" in Path(f"/proc/{follower.pid}/status").read_text()
        finally:
            follower.terminate()
            ended = follower.wait(30)
            server.shutdown()
        assert ended == 0
        assert network not in pacing_paths.paths()
