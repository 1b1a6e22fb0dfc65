"""The stack that BPF programs use, read from their object file.

A program and the functions that it calls share 512 bytes. Linux before 6.9 rounds each frame up to 32 bytes,
and later versions to 16. So the running kernel may load a program that an older one refuses.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from elftools.elf.elffile import ELFFile

MOST_BYTES = 512  # MAX_BPF_STACK of the kernel
FRAME_STEP_BYTES = 32

_INSTRUCTION = struct.Struct("<BBhi")  # code, registers, offset, constant
_LOAD_IMMEDIATE, _CALL, _MOV_REGISTER, _ADD_CONSTANT = 0x18, 0x85, 0xBF, 0x07
# The class of an instruction is the last three bits of its code.
_LD, _LDX, _ST, _STX, _ALU, _ALU64 = 0, 1, 2, 3, 4, 7
_FRAME_POINTER = 10
_TO_FUNCTION = 1  # the source register of a call of a function; 0 is a helper of the kernel

Instructions = list[tuple[int, int, int, int]]


class Place(NamedTuple):
    """Where a function begins: the number of its section, and the offset in it."""

    section: int
    offset: int


class Function(NamedTuple):
    name: str
    frame_bytes: int
    calls: frozenset[Place]


class Chain(NamedTuple):
    """Functions that call each other, the first one first, with their frames as the object has them."""

    frames: tuple[tuple[str, int], ...]

    @property
    def stack_bytes(self) -> int:
        """What the kernel counts."""
        return sum(-(-max(size, 1) // FRAME_STEP_BYTES) * FRAME_STEP_BYTES for _, size in self.frames)


def deepest_chains(path: Path) -> dict[str, Chain]:
    """The chain of calls with the most stack of each program of an object file."""
    with path.open("rb") as file:
        elf = ELFFile(file)
        functions = _functions(elf)
        text = elf.get_section_index(".text")
    return {
        function.name: _deepest(functions, place)
        for place, function in functions.items()
        if place.section != text
    }


def _deepest(functions: dict[Place, Function], place: Place) -> Chain:
    """BPF has no recursion."""
    function = functions[place]
    below = [_deepest(functions, called) for called in function.calls]
    deepest = max(below, key=lambda chain: chain.stack_bytes, default=Chain(()))
    return Chain(((function.name, function.frame_bytes), *deepest.frames))


def _functions(elf: ELFFile) -> dict[Place, Function]:
    relocated = _relocations(elf)
    text = elf.get_section_index(".text")
    found = {}
    for symbol in elf.get_section_by_name(".symtab").iter_symbols():
        if symbol["st_info"]["type"] != "STT_FUNC" or not symbol["st_size"]:
            continue
        place = Place(symbol["st_shndx"], symbol["st_value"])
        code = elf.get_section(place.section).data()[place.offset : place.offset + symbol["st_size"]]
        instructions = list(_INSTRUCTION.iter_unpack(code))
        called = {to for to in _calls(instructions, place, relocated) if to.section == text}
        found[place] = Function(symbol.name, _frame_bytes(instructions), frozenset(called))
    return found


def _relocations(elf: ELFFile) -> dict[Place, Place]:
    """For each place that refers to a symbol: where the symbol is."""
    symbols = elf.get_section_by_name(".symtab")
    found = {}
    for section in elf.iter_sections("SHT_REL"):
        for relocation in section.iter_relocations():
            symbol = symbols.get_symbol(relocation["r_info_sym"])
            at = Place(section["sh_info"], relocation["r_offset"])
            found[at] = Place(symbol["st_shndx"], symbol["st_value"])
    return found


def _frame_bytes(instructions: Instructions) -> int:
    """How far below the frame pointer the function stores, loads, or lets others do so."""
    deepest = 0
    copies: set[int] = set()  # registers that hold the frame pointer
    for code, registers, offset, constant in instructions:
        target, source, kind = registers & 15, registers >> 4, code & 7
        address = source if kind == _LDX else target
        if kind in (_LDX, _ST, _STX) and address == _FRAME_POINTER:
            deepest = min(deepest, offset)
        if code == _MOV_REGISTER and source == _FRAME_POINTER:
            copies.add(target)
        elif code == _ADD_CONSTANT and target in copies:
            deepest = min(deepest, constant)
        elif kind in (_LD, _LDX, _ALU, _ALU64):
            copies.discard(target)
    return -deepest


def _calls(instructions: Instructions, place: Place, relocated: dict[Place, Place]) -> Iterator[Place]:
    """The functions whose call, or whose address as a callback, is in the code."""
    for index, (code, registers, _, constant) in enumerate(instructions):
        at = Place(place.section, place.offset + index * _INSTRUCTION.size)
        symbol = relocated.get(at)
        if code == _CALL and registers >> 4 == _TO_FUNCTION:
            section, offset = symbol or (at.section, at.offset + _INSTRUCTION.size)
            relative = constant + 1 if symbol else constant
            yield Place(section, offset + relative * _INSTRUCTION.size)
        elif code == _LOAD_IMMEDIATE and symbol:
            yield Place(symbol.section, symbol.offset + constant)
