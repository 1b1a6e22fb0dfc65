"""The agent: it takes bridges over, keeps ports and rules up to date, and restores everything at the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.dataplane.interface import DataPlane, DataPlaneError, QueueEvent
from openflow_ext.switch.dataplane.netlink import Netlink, interfaces
from openflow_ext.switch.errors import SwitchError
from openflow_ext.switch.locks import lock_of_data_plane, locked
from openflow_ext.switch.openflow.bridge import Bridge
from openflow_ext.switch.openflow.extension_table import ExtensionTable
from openflow_ext.switch.openflow.flow_reports import FlowReports
from openflow_ext.switch.openflow.proxy import Controller, Proxy
from openflow_ext.switch.openflow.session import Session
from openflow_ext.switch.ovs import egress, takeover, tls
from openflow_ext.switch.ovs.link_changes import LinkChanges
from openflow_ext.switch.ovs.ovsdb import Ovsdb, as_list
from openflow_ext.switch.ovs.ports import Link, Port, Ports

log = logging.getLogger(__name__)

EXPIRE_S = 1.0
"""The time between two looks for rules whose timeout has passed."""
RETRY_S = 1.0
"""The time until something that failed is tried again."""
COLLECT_S = 0.02
"""Shaping a port takes several commands. Their notifications are collected for this time."""
_FIRST_RESERVED_OFPORT = 0xFF00

Ready = Callable[[int, list[str]], None]
"""Called once with the number of ports that carry the programs, and the names of the other ports."""


class Extended:
    """One bridge that the agent extends, with a proxy for each of its controllers.

    ``bypassed``: somebody has given the bridge other controllers. ``insecure``: or another fail mode.
    ``noted_off``: OVSDB notes that the bridge is off. ``uuid`` and ``noted``: the row that was taken over,
    and the external_ids that it got.
    """

    def __init__(self, bridge: Bridge, controllers: list[Controller], rundir: Path) -> None:
        self.bridge = bridge
        self.bypassed = False
        self.insecure = False
        self.noted_off = bridge.ports.off
        self.uuid = ""
        self.noted: dict[str, str] = {}
        self.proxies = [
            Proxy(socket_path(rundir, bridge.name, index), controller, partial(Session, bridge))
            for index, controller in enumerate(controllers)
        ]

    @property
    def targets(self) -> list[str]:
        """The controller targets of the bridge: the agent's sockets."""
        return [proxy.target for proxy in self.proxies]

    def send_due_requests(self) -> None:
        """Let each session send Open vSwitch the request that is due."""
        for proxied in [proxied for proxy in self.proxies for proxied in proxy.sessions]:
            proxied.send_due_request()

    def report(self, port: Port, event: QueueEvent) -> None:
        """Send a queue event to every controller whose handshake is complete."""
        ranks = port.switched(event)
        for proxied in [proxied for proxy in self.proxies for proxied in proxy.sessions]:
            if not proxied.notify(proxied.session.event(port, event, ranks)):
                log.warning("bridge %s: an alarm is lost: a controller reads too slowly", self.bridge.name)


def socket_path(rundir: Path, bridge: str, index: int = 0) -> Path:
    """The socket on which the agent listens for a bridge.

    It is in the run directory of Open vSwitch, which refuses to connect to sockets elsewhere.
    """
    return rundir / (f"{bridge}.controller{index}" if index else f"{bridge}.controller")


class Agent:
    """The agent of one host. ``open_dataplane`` is called after the bridges have been found."""

    def __init__(
        self, settings: SwitchSettings, open_dataplane: Callable[[], DataPlane], ready: Ready
    ) -> None:
        self._settings = settings
        self._open_dataplane = open_dataplane
        self._ready = ready
        self._extended: list[Extended] = []
        self._db: Ovsdb
        self._reports: FlowReports
        self._last_errors: dict[str, str] = {}
        self._links: LinkChanges
        self._netlink: Netlink
        self._links_changed = asyncio.Event()
        self._saving_off: set[asyncio.Task[None]] = set()

    async def run(self, stop: asyncio.Event, keep: bool = False) -> None:
        """Extend the bridges until ``stop``, then restore them. ``keep``: leave all to the next agent.

        Raises SwitchError, DataPlaneError; nothing has changed then.
        """
        settings = self._settings
        if not settings.bridges:
            raise SwitchError("no bridge given: use --bridge NAME, or set bridges in [switch]")
        for target in settings.controllers:
            Controller.parse(target)
        async with AsyncExitStack() as stack:
            enter_locks(stack, settings.rundir, settings.name, settings.bridges)
            self._db = await watch(settings.rundir)
            stack.push_async_callback(self._close_db)
            controllers = {name: self._controllers(name) for name in settings.bridges}
            for name in settings.bridges:
                takeover.require(self._db, name)
                check_running(settings.rundir, name)
            self._links = LinkChanges()
            stack.callback(self._links.close)
            self._netlink = Netlink()
            stack.callback(self._netlink.close)
            dataplane = self._open_dataplane()
            adopted = dataplane.attached()
            try:
                await self._start(dataplane, adopted, controllers)
                await self._serve(dataplane, stop)
            finally:
                failed = not stop.is_set()
                await self._stop(dataplane, keep=keep or (failed and bool(adopted)))

    async def _close_db(self) -> None:
        await self._db.close()

    def _controllers(self, name: str) -> list[Controller]:
        """The controllers of the settings; without any, the bridge's own."""
        targets = self._settings.controllers or self._own_targets(name)
        context = partial(tls.client_context, self._settings, self._db)
        return [Controller.parse(target, context) for target in targets]

    def _own_targets(self, name: str) -> list[str]:
        _, bridge = takeover.require(self._db, name)
        if takeover.is_ours(self._db, bridge, str(self._settings.rundir)):
            found = takeover.saved_targets(bridge)
        else:
            found = takeover.targets(self._db, bridge)
        if not found:
            raise SwitchError(f"bridge {name} has no controller: use --controller tcp:HOST:PORT")
        return found

    async def _start(
        self, dataplane: DataPlane, adopted: dict[int, int], controllers: dict[str, list[Controller]]
    ) -> None:
        settings = self._settings
        self._reports = FlowReports(dataplane, settings.count == "simple", settings.idle_s)
        numbers = takeover.numbers(self._db, settings.bridges)
        ours = {number for number, _ in numbers.values()}
        strange = [ifindex for ifindex, number in adopted.items() if number not in ours]
        if kept := dataplane.detach(*strange):
            reasons = "; ".join(f"interface {ifindex}: {why}" for ifindex, why in kept.items())
            raise DataPlaneError(f"some interfaces still carry the programs: {reasons}")
        for name, (number, is_known) in numbers.items():
            _, row = takeover.require(self._db, name)
            mine = [ifindex for ifindex, owner in adopted.items() if owner == number]
            in_kernel = row["datapath_type"] != "netdev"
            ports = Ports(
                number,
                dataplane,
                mine,
                in_kernel,
                settings.port_settings,
                observes=settings.mode == "observe",
                off=takeover.is_off(row),
                switched=partial(self._save_off, name),
            )
            table = ExtensionTable(number, dataplane)
            table.adopt() if is_known else table.purge()
            bridge = Bridge(name, number, dataplane, ports, table, self._reports, settings.framing)
            self._extended.append(Extended(bridge, controllers[name], settings.rundir))
        self._sync_ports()
        for extended in self._extended:
            for proxy in extended.proxies:
                await proxy.listen()
            await self._take_over(extended)
        ports_now = [port for extended in self._extended for port in extended.bridge.ports]
        self._ready(
            sum(port.attached for port in ports_now),
            [port.link.name for port in ports_now if not port.attached],
        )

    async def _take_over(self, extended: Extended) -> None:
        settings, bridge = self._settings, extended.bridge
        uuid, _ = takeover.require(self._db, bridge.name)
        extended.noted = await takeover.take_over(
            self._db,
            bridge.name,
            extended.targets,
            str(settings.rundir),
            settings.name,
            bridge.number,
            settings.packet_ins_per_s,
            extended.noted if uuid == extended.uuid else {},
        )
        extended.uuid = uuid

    async def _serve(self, dataplane: DataPlane, stop: asyncio.Event) -> None:
        """Handle changes of Open vSwitch and of links, queue events and timers until ``stop``."""
        loop = asyncio.get_running_loop()
        loop.add_reader(dataplane.events_fd(), self._report_queue_events, dataplane)
        loop.add_reader(self._links.fd, self._links_changed.set)
        self._reports.start()
        endless = (self._follow_ovs(), self._follow_links(), self._sweep(dataplane), self._expire(dataplane))
        tasks = [asyncio.create_task(stop.wait()), *map(asyncio.create_task, endless)]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            loop.remove_reader(dataplane.events_fd())
            loop.remove_reader(self._links.fd)
            self._reports.stop()

    @contextlib.contextmanager
    def _logged(self, chore: str) -> Iterator[None]:
        """Log an error of a chore when it first occurs, not each time."""
        error_text = ""
        try:
            yield
        except (SwitchError, DataPlaneError) as error:
            error_text = str(error)
            if error_text != self._last_errors.get(chore):
                log.error("%s", error)
        self._last_errors[chore] = error_text

    async def _follow_ovs(self) -> None:
        """Follow the changes of bridges and ports. A failure is retried after RETRY_S."""
        while True:
            unfinished = any(extended.bridge.ports.unfinished for extended in self._extended)
            failed = unfinished or bool(self._last_errors.get("ovs"))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if failed else None):
                    await self._db.changed.wait()
            self._db.changed.clear()
            with self._logged("ovs"):
                await self._reconnect()
                await self._sync_bridges()
                self._sync_ports()

    async def _follow_links(self) -> None:
        """Follow the rates and queues of ports. One reading serves the changes of COLLECT_S.

        Changes that could not be read are read again after RETRY_S, with later changes.
        """
        loop = asyncio.get_running_loop()
        missed: set[int] | None = set()
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if missed == set() else RETRY_S):
                    await self._links_changed.wait()
            loop.remove_reader(self._links.fd)
            await asyncio.sleep(COLLECT_S)
            with self._logged("links"):
                before, missed = missed, None
                changed = self._links.read()
                missed = None if before is None or changed is None else before | changed
                self._update_egresses(missed)
                missed = set()
            self._links_changed.clear()
            loop.add_reader(self._links.fd, self._links_changed.set)

    def _update_egresses(self, changed: set[int] | None) -> None:
        """Read the rate and queue of the ports among the ``changed`` interfaces; None: of all ports."""
        links = [port.link for extended in self._extended for port in extended.bridge.ports]
        names = {link.ifindex: link.name for link in links if changed is None or link.ifindex in changed}
        if not names:
            return
        present = interfaces()
        if not names.keys() <= present:
            self._db.changed.set()  # _follow_ovs detaches the port of an interface that is gone
            names = {ifindex: name for ifindex, name in names.items() if ifindex in present}
        egresses = egress.read_egresses(self._netlink, names)
        for extended in self._extended:
            extended.bridge.ports.update(egresses)
            if extended.bridge.ports.check_programs(names):
                self._db.changed.set()  # _follow_ovs attaches them again

    async def _sweep(self, dataplane: DataPlane) -> None:
        """Sweep the flow table when a sweep is due."""
        while True:
            await asyncio.sleep(self._reports.sweep_every_s())
            with self._logged("sweep"):
                await self._reports.sweep()
                untracked, now_s = dataplane.untracked(), time.monotonic()
                for extended in self._extended:
                    extended.bridge.ports.distrust(untracked, now_s)

    async def _expire(self, dataplane: DataPlane) -> None:
        """Remove the rules whose timeouts have passed, and let sessions send what is due."""
        tables = {extended.bridge.number: extended.bridge.table for extended in self._extended}
        while True:
            await asyncio.sleep(EXPIRE_S)
            with self._logged("expire"):
                for number, rule, _, _ in list(dataplane.expired()):
                    if number in tables:
                        tables[number].expire(rule)
                    else:
                        dataplane.remove(number, rule)
                for extended in self._extended:
                    extended.send_due_requests()

    async def _reconnect(self) -> None:
        """Connect to OVSDB again if the connection has ended. Raises SwitchError."""
        if self._db.closed.done():
            await self._db.close()
            self._db = await watch(self._settings.rundir)
            log.info("reconnected to OVSDB")

    async def _sync_bridges(self) -> None:
        """Take over bridges that were created again, and log which settings of the agent somebody changed."""
        for extended in self._extended:
            found = takeover.find_bridge(self._db, extended.bridge.name)
            if found is None:
                continue
            uuid, row = found
            extended.bridge.ports.kernel_datapath = row["datapath_type"] != "netdev"
            if takeover.NAME not in row["external_ids"]:
                if uuid == extended.uuid:
                    log.warning("bridge %s lost the agent's external_ids: writing them again", row["name"])
                else:
                    log.warning("bridge %s was created again: taking it over", row["name"])
                    extended.bridge.table.purge()
                extended.noted_off = takeover.is_off(row)  # it stays off, and this is noted again
                await self._take_over(extended)
                continue
            self._follow_off(extended, takeover.is_off(row))
            now = takeover.targets(self._db, row)
            bypassed = set(now) != set(extended.targets)
            if bypassed and not extended.bypassed:
                log.warning(
                    "bridge %s is not extended any more: its controllers are now %s", row["name"], now
                )
            extended.bypassed = bypassed
            insecure = not takeover.is_secure(row)
            if insecure and not extended.insecure:
                log.warning(
                    "bridge %s: its fail mode is no longer secure: it loses its entries when the controller"
                    " is gone: ovs-vsctl set-fail-mode %s secure",
                    row["name"],
                    row["name"],
                )
            extended.insecure = insecure

    def _follow_off(self, extended: Extended, noted: bool) -> None:
        """OVSDB notes that the bridge is off or on. Only a change of that note decides.

        If the note has stayed the same but the ports differ, it could not be written.
        """
        if noted != extended.noted_off:
            extended.noted_off = noted
            extended.bridge.ports.switch(noted)
        elif noted != extended.bridge.ports.off:
            self._save_off(extended.bridge.name, extended.bridge.ports.off)

    def _save_off(self, name: str, off: bool) -> None:
        """Note in OVSDB that a bridge is off or on, for the next agent."""
        found = takeover.find_bridge(self._db, name)
        if found and takeover.is_off(found[1]) != off and not self._saving_off:
            task = asyncio.create_task(self._write_off(name, off))
            self._saving_off.add(task)
            task.add_done_callback(self._saving_off.discard)

    async def _write_off(self, name: str, off: bool) -> None:
        with self._logged(f"off {name}"):
            await takeover.switch_off(self._db, name, off)

    def _sync_ports(self) -> None:
        known, present = {port.link for e in self._extended for port in e.bridge.ports}, interfaces()
        links = {e.bridge.name: links_of(self._db, e.bridge.name, known, present) for e in self._extended}
        new = {link.ifindex: link.name for some in links.values() for link in some if link not in known}
        egresses = egress.read_egresses(self._netlink, new) if new else {}
        for extended in self._extended:
            extended.bridge.ports.detach_missing(links[extended.bridge.name])
        for extended in self._extended:
            extended.bridge.ports.sync(links[extended.bridge.name], egresses)

    def _report_queue_events(self, dataplane: DataPlane) -> None:
        """Report queue events to every controller of the port's bridge."""
        for event in dataplane.events():
            for extended in self._extended:
                port = extended.bridge.ports.get(event.ifindex)
                if port is not None:
                    extended.report(port, event)

    async def _stop(self, dataplane: DataPlane, keep: bool) -> None:
        for extended in self._extended:
            if not keep:
                await self._restore(extended.bridge.name)
            for proxy in extended.proxies:
                await proxy.close()
        if keep:
            dataplane.close()
        else:
            dataplane.destroy()

    async def _restore(self, name: str) -> None:
        try:
            await self._reconnect()
            await takeover.restore(self._db, name, str(self._settings.rundir))
        except SwitchError as error:
            log.error(
                "bridge %s: controllers and fail mode are not restored: %s. Run weir switch --detach",
                name,
                error,
            )


def enter_locks(stack: AsyncExitStack, rundir: Path, name: str, bridges: tuple[str, ...]) -> None:
    """Hold the locks of the data plane and of the bridges until ``stack`` closes. Raises SwitchError."""
    if not rundir.is_dir():
        raise SwitchError(f"no directory {rundir}: start Open vSwitch, or set --rundir")
    stack.enter_context(locked(lock_of_data_plane(rundir, name), f"the data plane {name}"))
    for bridge in bridges:
        stack.enter_context(locked(rundir / f"{bridge}.weir.lock", f"bridge {bridge}"))


async def watch(rundir: Path) -> Ovsdb:
    """A connection to OVSDB with a replica of the columns that the agent needs. Raises SwitchError."""
    db = await Ovsdb.connect(rundir / "db.sock")
    try:
        await db.monitor(takeover.COLUMNS)
    except SwitchError:
        await db.close()
        raise
    return db


def check_running(rundir: Path, bridge: str) -> None:
    """Raises SwitchError unless ovs-vswitchd serves ``bridge``."""
    path = rundir / f"{bridge}.mgmt"
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as probe:
        try:
            probe.connect(str(path))
        except OSError as error:
            raise SwitchError(
                f"ovs-vswitchd does not serve bridge {bridge} ({path}: {error.strerror}): start ovs-vswitchd"
            ) from error


def links_of(db: Ovsdb, bridge_name: str, known: Collection[Link], present: Collection[int]) -> list[Link]:
    """The ports of a bridge that can carry programs: with a device of their own, but not the bridge's own.

    OVSDB does not store interface numbers. When its server has restarted, they are missing until Open vSwitch
    has stated them again. Until then the ports that are ``known`` keep theirs.

    Open vSwitch may go on to state the number of an interface that is gone: 3.1.0 on Linux 6.1 does so for
    userspace ports. So only the interfaces that are ``present`` count.
    """
    found = takeover.find_bridge(db, bridge_name)
    if found is None:
        return []
    ports = (db.tables["Port"].get(uuid) for uuid in as_list(found[1]["ports"]))
    uuids = [uuid for port in ports if port for uuid in as_list(port["interfaces"])]
    rows = [row for uuid in uuids if (row := db.tables["Interface"].get(uuid))]
    numbers = {(link.name, link.ofport): link.ifindex for link in known}
    shared = _shared_devices(db)
    links = []
    for row in rows:
        name, ofport, ifindex = row["name"], row["ofport"], row["ifindex"]
        if not isinstance(ofport, int) or not 0 < ofport < _FIRST_RESERVED_OFPORT or name == bridge_name:
            continue
        if not isinstance(ifindex, int):
            ifindex = numbers.get((name, ofport), 0)
        if ifindex in present and ifindex not in shared:
            links.append(Link(ifindex, name, ofport))
    return links


def _shared_devices(db: Ovsdb) -> set[int]:
    """The devices of several ports. In the kernel datapath all tunnels of a type have one device.

    The programs could not distinguish the packets of these ports.
    """
    rows = db.tables["Interface"].values()
    ports = Counter(row["ifindex"] for row in rows if row["type"] and isinstance(row["ifindex"], int))
    return {ifindex for ifindex, count in ports.items() if count > 1}


async def detach(settings: SwitchSettings, remove_dataplane: Callable[[str], None]) -> list[str]:
    """Remove what a killed agent left behind. Returns the names of the bridges whose controllers it restored.

    Raises SwitchError if that agent still runs, or if OVSDB cannot be reached. In the second case the data
    plane is already removed.
    """
    async with AsyncExitStack() as stack:
        enter_locks(stack, settings.rundir, settings.name, ())
        remove_dataplane(settings.name)
        db = await watch(settings.rundir)
        stack.push_async_callback(db.close)
        left = [
            row["name"]
            for row in db.tables["Bridge"].values()
            if row["external_ids"].get(takeover.NAME) == settings.name
        ]
        for name in left:
            await takeover.restore(db, name, str(settings.rundir))
            for path in settings.rundir.glob(f"{name}.controller*"):
                if path.is_socket():
                    path.unlink()
            (settings.rundir / f"{name}.weir.lock").unlink(missing_ok=True)
        return left
