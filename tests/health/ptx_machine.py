"""Runs PTX text thread by thread, as far as our one program needs it: no GPU is here to run it on.

Registers are Python numbers, memory is bytes from address 0. An instruction that it does not know is an error.
"""

import re
import struct
from dataclasses import dataclass, field

_LINE = re.compile(r"^(?:@%(?P<guard>\w+)\s+)?(?P<word>[a-z][\w.]*)\s*(?P<operands>[^;]*);$")
_WORD = 0xFFFFFFFF


@dataclass
class PtxMachine:
    """One program with the memory that it works on."""

    text: str
    memory: bytearray
    lines: list[str] = field(init=False)
    labels: dict[str, int] = field(init=False)

    def __post_init__(self) -> None:
        body = self.text[self.text.index("{") + 1 : self.text.index("}")]
        self.lines, self.labels = [], {}
        for line in filter(None, (line.strip() for line in body.splitlines())):
            if line.endswith(":"):
                self.labels[line[:-1]] = len(self.lines)
            elif not line.startswith("."):
                self.lines.append(line)

    def launch(self, blocks: int, threads: int, **parameters: int) -> None:
        """Run all threads, one after the other."""
        for block in range(blocks):
            for thread in range(threads):
                special = {"%ctaid.x": block, "%tid.x": thread, "%ntid.x": threads, "%nctaid.x": blocks}
                self._run({**special}, parameters)

    def _run(self, registers: dict[str, float], parameters: dict[str, int]) -> None:
        at = 0
        while True:
            found = _LINE.match(self.lines[at])
            assert found, f"no instruction: {self.lines[at]}"
            at += 1
            if found["guard"] and not registers[f"%{found['guard']}"]:
                continue
            word = found["word"]
            operands = [operand.strip() for operand in found["operands"].split(",")]
            if word == "ret":
                return
            if word == "bra":
                at = self.labels[operands[0]]
            else:
                self._step(word, operands, registers, parameters)

    def _step(self, word: str, operands: list[str], registers: dict[str, float], parameters: dict[str, int]) -> None:
        if word == "st.global.u32":
            struct.pack_into("<I", self.memory, int(registers[operands[0].strip("[]")]), int(registers[operands[1]]))
            return
        target, *sources = operands
        if word.startswith("ld.param."):
            registers[target] = parameters[sources[0].strip("[]")]
        elif word == "ld.global.u32":
            (registers[target],) = struct.unpack_from("<I", self.memory, int(registers[sources[0].strip("[]")]))
        else:
            registers[target] = _computed(word, [_value(source, registers) for source in sources])


def _value(operand: str, registers: dict[str, float]) -> float:
    if operand.startswith("0f"):
        (value,) = struct.unpack(">f", bytes.fromhex(operand[2:]))
        return float(value)
    return registers[operand] if operand.startswith("%") else int(operand)


def _computed(word: str, values: list[float]) -> float:
    whole = [int(value) for value in values]
    match word:
        case "mov.u32" | "cvta.to.global.u64" | "cvt.rn.f32.u32":
            return values[0]
        case "cvt.rzi.u32.f32":
            return int(values[0])
        case "mad.lo.u32":
            return (whole[0] * whole[1] + whole[2]) & _WORD
        case "mul.lo.u32":
            return (whole[0] * whole[1]) & _WORD
        case "mul.wide.u32":
            return whole[0] * whole[1]
        case "add.u32":
            return (whole[0] + whole[1]) & _WORD
        case "add.u64":
            return whole[0] + whole[1]
        case "and.b32":
            return whole[0] & whole[1]
        case "xor.b32":
            return whole[0] ^ whole[1]
        case "fma.rn.f32":
            (rounded,) = struct.unpack("<f", struct.pack("<f", values[0] * values[1] + values[2]))
            return float(rounded)
        case "setp.ge.u32":
            return whole[0] >= whole[1]
        case "setp.lt.u32":
            return whole[0] < whole[1]
    raise AssertionError(f"unknown instruction {word}")
