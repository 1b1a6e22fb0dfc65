"""Keys and certificates for TLS between the agent and a controller, made by openssl."""

from __future__ import annotations

import subprocess
from pathlib import Path


def certify(folder: Path, name: str, authority: str = "ca", hosts: str = "") -> tuple[Path, Path]:
    """Make a key and a certificate for ``name``. The authority signs its own.

    ``hosts``: alternative names, such as ``IP:127.0.0.1,DNS:localhost``.
    """
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
    argv += ["-days", "2", "-subj", f"/CN={name}", "-keyout", str(key), "-out", str(certificate)]
    if hosts:
        argv += ["-addext", f"subjectAltName={hosts}"]
    if name != authority:
        argv += ["-CA", f"{folder}/{authority}.pem", "-CAkey", f"{folder}/{authority}.key"]
    subprocess.run(argv, check=True, capture_output=True)
    return key, certificate
