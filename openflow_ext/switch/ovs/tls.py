"""TLS to controllers (``ssl:HOST[:PORT]``) with the certificates of Open vSwitch.

Open vSwitch reaches the agent over a Unix socket that only its own user may open. No TLS is needed there.
"""

from __future__ import annotations

import ssl
from pathlib import Path

from openflow_ext.switch.config import SwitchSettings
from openflow_ext.switch.errors import SwitchError
from openflow_ext.switch.ovs.ovsdb import Ovsdb


def client_context(settings: SwitchSettings, db: Ovsdb) -> ssl.SSLContext:
    """The TLS context for controllers, from the files of [switch], else from ovs-vsctl set-ssl.

    The CA must have signed the controller's certificate. With files of [switch] it must also name the host
    or address of the controller; ``check_host_names`` overrides that. Raises SwitchError.
    """
    private_key, certificate, ca_certificate = _files(settings, db)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    own_files = settings.private_key is not None
    context.check_hostname = own_files if settings.check_host_names is None else settings.check_host_names
    try:
        context.load_verify_locations(ca_certificate)
        context.load_cert_chain(certificate, private_key)
    except (OSError, ssl.SSLError) as error:
        names = f"{private_key}, {certificate}, {ca_certificate}"
        raise SwitchError(f"TLS: {names}: {error.strerror or error}") from error
    return context


def _files(settings: SwitchSettings, db: Ovsdb) -> tuple[Path, Path, Path]:
    """The private key, the certificate, and the CA's certificate."""
    key, certificate, authority = settings.private_key, settings.certificate, settings.ca_certificate
    if key and certificate and authority:
        return key, certificate, authority
    if key or certificate or authority:
        raise SwitchError("TLS needs all three of private_key, certificate and ca_certificate in [switch]")
    for row in db.tables.get("SSL", {}).values():
        return Path(row["private_key"]), Path(row["certificate"]), Path(row["ca_cert"])
    raise SwitchError(
        "a controller requires TLS: set private_key, certificate and ca_certificate in [switch],"
        " or run ovs-vsctl set-ssl"
    )
