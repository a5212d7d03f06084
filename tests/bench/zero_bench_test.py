"""The memory of ZeRO 0 and 1, counted while a few steps are made, is that of the formula in
scripts/bench/zero. Usage: zero_bench_test.py PROGRAM."""

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
    """[(peak, formula)] by rank, in bytes."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", HOME=os.environ.get("HOME", "/tmp"))
    line = [os.environ["EQUIPOISE_MPIRUN"], "-n", str(ranks), BENCH, str(zero), precision,
            str(MILLIONS)]
    done = subprocess.run(line, env=environment, stdout=subprocess.PIPE, text=True, timeout=300)
    assert done.returncode == 0, done.returncode
    rows = sorted([int(word) for word in row.split()] for row in done.stdout.splitlines())
    assert [row[0] for row in rows] == list(range(ranks)), rows
    return [tuple(row[1:]) for row in rows]


def formula(precision, shards):
    """Bytes of weights, gradients, masters and moments of a rank."""
    trained, frozen = MILLIONS * (1_000_000 + 1_000), MILLIONS * 250_000
    if precision == "fp32":
        return 4 * (trained + frozen) + 4 * trained + 8 * trained / shards
    return 2 * (trained + frozen) + 4 * trained + (2 + 8) * trained / shards


def main():
    passed = failed = 0
    for precision in ("fp32", "bf16"):
        for ranks, zero in ((2, 0), (2, 1), (4, 1)):
            for rank, (peak, expected) in enumerate(measure(ranks, zero, precision)):
                good = expected == round(formula(precision, ranks if zero else 1)) and \
                    0 <= peak - expected <= most_staged(ranks, precision)
                passed += good
                failed += not good
                print(f"{'' if good else 'FAILED: '}{precision}, {ranks} ranks, ZeRO {zero}, rank "
                      f"{rank}: {peak / MIB:.2f} MiB, formula {expected / MIB:.2f}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(int(failed > 0))


main()
