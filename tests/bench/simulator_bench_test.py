"""The memory of a few configurations, predicted and run, in fp32 and bf16; scripts/bench/simulator
compares times as well."""

import json
import os
import subprocess
import sys

BENCH = sys.argv[1]
LARGEST_ERROR = 0.05
EVERY = {"fp32": 6, "bf16": 16}  # of the configurations; some CPUs emulate bf16


def main():
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1",
                       GOMP_SPINCOUNT="0", HOME=os.environ.get("HOME", "/tmp"))
    passed = failed = 0
    for precision, every in EVERY.items():
        line = [os.environ["EQUIPOISE_MPIRUN"], "-n", "2", BENCH, "quickstart", "1", "128", "4",
                str(every), precision]
        done = subprocess.run(line, env=environment, stdout=subprocess.PIPE, text=True,
                              timeout=1700)
        assert done.returncode == 0, done.returncode
        cases = [row for row in map(json.loads, done.stdout.splitlines()) if "case" in row]
        assert len(cases) == -(-30 // every), len(cases)
        for row in cases:
            error = max((predicted / peak - 1 for predicted, peak in
                         zip(row["predicted_peak_bytes"], row["peak_bytes"])), key=abs)
            good = abs(error) <= LARGEST_ERROR
            passed += good
            failed += not good
            print(f"{'' if good else 'FAILED: '}{precision}, {row['case']}: memory {error:+.1%}")
    print(f"{passed} passed, {failed} failed")
    sys.exit(int(failed > 0))


main()
