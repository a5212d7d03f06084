"""What nvcc made of the program's own kernels: code for every architecture, PTX for later ones, no
spilled register, and blocks of 256 threads that fill a multiprocessor.
Usage: kernel_image_test.py IMAGE PTXAS_LOG [IMAGE PTXAS_LOG]..."""

import re
import struct
import sys

ARCHITECTURES = {80, 90, 100}
PTX, ELF = 1, 2
REGISTERS = 64  # of a thread: above, 4 blocks of 256 threads no longer share a multiprocessor

passed = failed = 0


def check(what, good, detail=""):
    global passed, failed
    passed += bool(good)
    failed += not good
    print(f"{'' if good else 'FAILED: '}{what} {detail}")


def parts(image):
    """(kind, architecture) of each part of a fatbin."""
    magic, _, header, size = struct.unpack_from("<IHHQ", image)
    assert magic == 0xBA55ED50, hex(magic)
    at, end = header, header + size
    while at < end:
        kind, _, header, size = struct.unpack_from("<HHIQ", image, at)
        yield kind, struct.unpack_from("<I", image, at + 28)[0]
        at += header + size


def kernels(log):
    """(name, architecture, bytes of stack, of stores and loads that spill, registers)"""
    pattern = (r"entry function '(\w+)' for 'sm_(\d+)'.*?(\d+) bytes stack frame, "
               r"(\d+) bytes spill stores, (\d+) bytes spill loads.*?Used (\d+) registers")
    for name, *numbers in re.findall(pattern, log, re.DOTALL):
        yield name, *map(int, numbers)


for image, log in zip(sys.argv[1::2], sys.argv[2::2]):
    with open(image, "rb") as file:
        found = list(parts(file.read()))
    check("code for", {arch for kind, arch in found if kind == ELF} == ARCHITECTURES, found)
    check("PTX of the newest",
          [arch for kind, arch in found if kind == PTX] == [max(ARCHITECTURES)])
    with open(log, encoding="utf-8") as file:
        rows = list(kernels(file.read()))
    names = {row[0] for row in rows}
    check("every kernel on every architecture",
          names and len(rows) == len(names) * len(ARCHITECTURES), len(rows))
    for name, arch, stack, stores, loads, registers in rows:
        check(f"{name} sm_{arch}", stack == stores == loads == 0 and 0 < registers <= REGISTERS,
              f"{registers} registers, {stores + loads} bytes spilled, stack {stack}")
print(f"{passed} passed, {failed} failed")
sys.exit(int(failed > 0))
