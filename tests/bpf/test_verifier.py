"""The kernel's verifier checks each program in a part of the instructions that it checks at most.

Other kernels, and other versions of clang, need more instructions for a program. A program near the limit
of 1,000,000 does not load there. It also takes seconds to load, and an agent waits for it. A program and what
it calls have 512 bytes of stack, of which older kernels use more than this one.
"""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path

import pytest

from openflow_ext.switch.dataplane.kernel import KernelDataPlane
from tests.support.data_plane import stack
from weir_base.paths import artifact

pytestmark = pytest.mark.beside_others

MOST_INSTRUCTIONS = 300_000
MOST_INSTRUCTIONS_OF_OLDER = 500_000
"""Linux 6.1 checks more ways through a program than later versions."""
PROGRAMS = (
    "weir_ingress",
    "weir_ingress_tc",
    "weir_egress",
    "weir_enqueue",
    "weir_dequeue",
    "weir_sweep",
    "weir_move",
)


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_verifier_checks_a_part_of_its_limit(plane: KernelDataPlane, program: str) -> None:
    shown = Path(f"/proc/{os.getpid()}/fdinfo/{plane.program(program)}").read_text()
    found = re.search(r"^verified_insns:\s*(\d+)$", shown, re.MULTILINE)
    assert found, "Linux shows this number from version 5.16 on"
    major, minor = (int(part) for part in platform.release().split(".")[:2])
    most = MOST_INSTRUCTIONS if (major, minor) >= (6, 12) else MOST_INSTRUCTIONS_OF_OLDER
    assert 0 < int(found[1]) <= most


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_stack_suffices_on_linux_6_1(program: str) -> None:
    chain = stack.deepest_chains(artifact("weir.bpf.o"))[program]
    assert chain.stack_bytes <= stack.MOST_BYTES, chain.frames
