"""The memory of ZeRO 0 to 3, counted while a few steps are made, is that of the formula in
scripts/bench/zero, and so are the bytes that layers move. Usage: zero_bench_test.py PROGRAM."""

import os
import subprocess
import sys

BENCH = sys.argv[1]
MILLIONS = 4
MIB = 1 << 20


def most_staged(ranks, precision):
    """What is held in addition, whatever the model's size: by collectives, and in bf16 the masters
    that AdamW joins at a time."""
    joined = 0.25 if precision == "bf16" else 0
    return (0.6 + 0.25 * ranks + joined) * MIB


def measure(ranks, zero, precision):
    """[(peak, formula, moved, formula)] by rank, in bytes."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", HOME=os.environ.get("HOME", "/tmp"))
    line = [os.environ["EQUIPOISE_MPIRUN"], "-n", str(ranks), BENCH, str(zero), precision,
            str(MILLIONS)]
    done = subprocess.run(line, env=environment, stdout=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0, done.returncode
    rows = sorted([int(word) for word in row.split()] for row in done.stdout.splitlines())
    assert [row[0] for row in rows] == list(range(ranks)), rows
    return [tuple(row[1:]) for row in rows]


def formula(precision, ranks, zero):
    """Bytes of weights, gradients, masters and moments of a rank, and of the layers that are whole
    for a while."""
    trained, frozen = MILLIONS * (1_000_000 + 1_000), MILLIONS * 250_000
    element, left = (4, 0) if precision == "fp32" else (2, 2)
    over = [1 if zero < stage else ranks for stage in range(4)]
    size = element * (trained + frozen) / over[3] + 4 * trained / over[2] + \
        (left + 8) * trained / over[1]
    if zero >= 2:
        size += 4 * trained / MILLIONS * (2 + 1 / ranks)
    if zero == 3:
        size += 2 * element * (trained + frozen) / MILLIONS
    return size


def moved(precision, ranks, zero):
    trained, frozen = MILLIONS * (1_000_000 + 1_000), MILLIONS * 250_000
    element = 4 if precision == "fp32" else 2
    return (ranks - 1) / ranks * ((4 * trained if zero >= 2 else 0) +
                                  (2 * element * (trained + frozen) if zero == 3 else 0))


def main():
    passed = failed = 0
    for precision in ("fp32", "bf16"):
        for ranks, zero in ((2, 0), (2, 1), (4, 1), (2, 2), (2, 3), (4, 2), (4, 3)):
            for rank, row in enumerate(measure(ranks, zero, precision)):
                peak, expected, bytes_moved, by_formula = row
                # Padding: a layer's parts are cut into as many slices as there are ranks.
                good = abs(expected - formula(precision, ranks, zero)) <= 1 and \
                    0 <= peak - expected <= most_staged(ranks, precision) and \
                    abs(by_formula - moved(precision, ranks, zero)) <= 1 and \
                    0 <= bytes_moved - by_formula <= 1e-3 * by_formula
                passed += good
                failed += not good
                print(f"{'' if good else 'FAILED: '}{precision}, {ranks} ranks, ZeRO {zero}, rank "
                      f"{rank}: {peak / MIB:.2f} MiB, formula {expected / MIB:.2f}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(int(failed > 0))


main()
