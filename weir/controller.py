"""`weir controller`: runs the controller's apps, on Ryu with its own manager or on os-ken, which has none."""

from __future__ import annotations

import importlib.util
import ipaddress
import logging
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import click

from flowdb.config import database_url_of_argument
from openflow_ext import engine as framework
from weir_base.signals import awaited

DEFAULT_LISTEN = "127.0.0.1:6653"
DEFAULT_APPS = "fabric_app.app,sdtcp_app.app"
STOP_WITHIN_S = 10.0
_FILE = click.Path(exists=True, dir_okay=False)


class Address(NamedTuple):
    """Where the controller listens for switches."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """`127.0.0.1:6653` or `[::1]:6653`; raises click.BadParameter."""
        host, colon, port = text.rpartition(":")
        try:
            host = str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
            number = int(port)
        except ValueError:
            number = 0
        if not colon or not 0 < number < 65536:
            raise click.BadParameter(f"{text!r} is not an address and port, such as {DEFAULT_LISTEN}")
        return cls(host, number)

    def check_free(self) -> None:
        """Raises click.ClickException when nothing can listen there."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(self)
                probe.listen()
            except OSError as error:
                raise click.ClickException(
                    f"cannot listen on {self.host} port {self.port}: {error.strerror}; "
                    "stop the program that listens there, or choose another port with --listen"
                ) from error

    def options(self, tls: Tls | None) -> list[str]:
        """Options of both engines. By default they would listen on every address."""
        kind = "ssl" if tls else "tcp"
        options = ["--ofp-listen-host", self.host, f"--ofp-{kind}-listen-port", str(self.port)]
        return options + (tls.options() if tls else [])


class Tls(NamedTuple):
    """The files for TLS to switches."""

    private_key: str
    certificate: str
    ca_certificate: str

    @classmethod
    def of(cls, *files: str | None) -> Tls | None:
        """All three files or none; raises click.UsageError."""
        given = [os.path.abspath(file) for file in files if file]
        if given and len(given) < len(cls._fields):
            raise click.UsageError("TLS needs all of --private-key, --certificate and --ca-certificate")
        return cls(*given) if given else None

    def options(self) -> list[str]:
        """Options of both engines."""
        names = ("--ctl-privkey", "--ctl-cert", "--ca-certs")
        return [part for pair in zip(names, self, strict=True) for part in pair]


@click.command()
@click.option("--engine", type=click.Choice(["ryu", "os-ken"]), default="ryu", show_default=True)
@click.option("--listen", default=DEFAULT_LISTEN, show_default=True, help="Address and port for switches.")
@click.option("--apps", default=DEFAULT_APPS, show_default=True, help="Modules of apps, separated by commas.")
@click.option("--private-key", type=_FILE, help="The controller's private key: switches have to use TLS.")
@click.option("--certificate", type=_FILE, help="The controller's certificate.")
@click.option("--ca-certificate", type=_FILE, help="Certificate of the CA of the switches.")
@click.option("--config", type=click.Path(exists=True, dir_okay=False), help="The configuration file.")
@click.option("--db", help="The flow database: an SQLAlchemy URL or a file for SQLite.")
def controller(
    engine: str,
    listen: str,
    apps: str,
    private_key: str | None,
    certificate: str | None,
    ca_certificate: str | None,
    config: str | None,
    db: str | None,
) -> None:
    """Run the controller's apps until stopped by Ctrl-C or SIGTERM."""
    tls = Tls.of(private_key, certificate, ca_certificate)
    address = Address.parse(listen)
    modules = [name.strip() for name in apps.split(",") if name.strip()]
    check_apps(modules)
    address.check_free()
    os.environ["WEIR_ENGINE"] = engine.replace("-", "_")
    if config:
        os.environ["WEIR_CONFIG"] = os.path.abspath(config)
    if db:
        os.environ["WEIR_DB"] = database_url_of_argument(db)
    if engine == "ryu":
        run_ryu(address.options(tls), modules)
    run_os_ken(address.options(tls), modules)


def check_apps(modules: list[str]) -> None:
    """Raises click.BadParameter for a missing module."""
    if not modules:
        raise click.BadParameter(f"no app is given; for example {DEFAULT_APPS}", param_hint="--apps")
    for name in modules:
        try:
            found = importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            raise click.BadParameter(f"module {name} is not found; install its package", param_hint="--apps")


def run_ryu(options: list[str], modules: list[str]) -> NoReturn:
    """Become ryu-manager. If an app starts the REST server, it listens on loopback."""
    manager = Path(sys.executable).with_name("ryu-manager")
    if not manager.exists():
        raise click.ClickException(f"{manager} is missing; run `make setup`")
    # The first line of ryu-manager names the place where the environment was made. It may have moved since.
    arguments = [sys.executable, str(manager), *options, "--wsapi-host", "127.0.0.1", *modules]
    os.execv(sys.executable, arguments)  # noqa: S606  # no shell wanted


def run_os_ken(options: list[str], modules: list[str]) -> NoReturn:
    """Run the apps in this process until a signal, then close them.

    On native threads, os-ken's `AppManager.run_apps` does not return, because nothing wakes the thread that
    accepts switches. So this function takes its steps, and the process ends without waiting for threads.
    """
    level = logging.DEBUG if os.environ.get("WEIR_DEBUG") else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    with awaited(signal.SIGINT, signal.SIGTERM) as stop:
        apps = _started_on_os_ken(options, modules)
        stop.wait()
        closing = threading.Thread(target=apps.close, daemon=True)
        closing.start()
        closing.join(STOP_WITHIN_S)
        _leave(1 if closing.is_alive() else 0)


def _started_on_os_ken(options: list[str], modules: list[str]) -> Any:
    """os-ken's manager of the running apps. Ends the process if they do not start."""
    apps = framework.load("base.app_manager", "os_ken").AppManager.get_instance()
    framework.load("controller.controller", "os_ken")
    framework.load("cfg", "os_ken").CONF(args=options, project="weir", default_config_files=[])
    try:
        apps.load_apps(modules)
        apps.instantiate_apps(**apps.create_contexts())
    except (Exception, SystemExit) as error:
        logging.getLogger(__name__).debug("start", exc_info=True)
        click.echo(f"weir: the apps did not start: {error}", err=True)
        _leave(1)
    return apps


def _leave(code: int) -> NoReturn:
    """End the process even though os-ken's threads still run."""
    logging.shutdown()
    sys.stdout.flush()
    os._exit(code)
