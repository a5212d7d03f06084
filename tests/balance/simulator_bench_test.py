"""A few configurations predicted and run: memory is near, time within a wide gate."""

import json
import os
import subprocess
import sys

BENCH = sys.argv[1]
# Times are those of a machine that may do other things: a factor. Memory does not depend on it.
TIME_FACTOR, MEMORY_ERROR = 10, 0.05


def main():
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1",
                       OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1",
                       GOMP_SPINCOUNT="0", HOME=os.environ.get("HOME", "/tmp"))
    line = [os.environ["EQUIPOISE_MPIRUN"], "-n", "2", BENCH, "quickstart", "1", "128", "4", "4"]
    done = subprocess.run(line, env=environment, stdout=subprocess.PIPE, text=True, timeout=800)
    assert done.returncode == 0, done.returncode
    rows = [json.loads(text) for text in done.stdout.splitlines()]
    cases = [row for row in rows if "case" in row]
    layers = [row for row in rows if "layer" in row]
    failed = 0
    for row in cases:
        time = row["predicted_step_s"] / row["step_s"]
        memory = max((predicted / peak - 1 for predicted, peak in
                      zip(row["predicted_peak_bytes"], row["peak_bytes"])), key=abs)
        good = 1 / TIME_FACTOR < time < TIME_FACTOR and abs(memory) < MEMORY_ERROR
        failed += not good
        print(f"{'' if good else 'FAILED: '}{row['case']}: time {time:.2f}, memory {memory:+.1%}")
    failed += len(cases) < 6 or len(layers) != 6
    print(f"{len(cases) - failed} passed, {failed} failed")
    sys.exit(int(failed > 0))


main()
