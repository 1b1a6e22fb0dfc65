"""The follower, run by a real systemd. It runs alone, because other tests load the same control."""

from __future__ import annotations

import ipaddress
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.systemd import WEIR, systemd
from tests.support.waiting import wait_until
from transports import pacing_paths
from transports.congestion import loaded

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


def test_the_follower_does_its_work_as_a_service() -> None:
    """It writes the path of a destination, and removes it at its end."""
    network = ipaddress.ip_network(FOLLOWED)
    follow = "transports follow --controller ${CONTROLLER} --token-file ${CREDENTIALS_DIRECTORY}/token"
    units = {"follow": ["ExecStart=", f"ExecStart={WEIR} {follow} --to {FOLLOWED}"]}
    with loaded("weir_ap_reno"), ThreadingHTTPServer(("127.0.0.1", 0), Bottlenecks) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            with systemd("", units) as manager:
                configuration = manager.stage / "etc/weir"
                (configuration / "follow.env").write_text(
                    f"CONTROLLER=http://127.0.0.1:{server.server_port}\n"
                )
                (configuration / "follow.token").write_text("a token\n")
                (configuration / "follow.token").chmod(0o600)
                manager.start("follow")
                path = wait_until(lambda: pacing_paths.paths().get(network), "the follower writes the path")
                assert path.flows == 7
                assert manager.status("follow")["Seccomp"] == "2"
                manager.stop("follow")
                assert network not in pacing_paths.paths()
        finally:
            server.shutdown()
