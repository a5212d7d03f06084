"""Random modality patterns on random meshes under mpirun: no step hangs, and every one gives what
one process gives."""
import os
import subprocess
import sys

FUZZ = sys.argv[1]
CELLS = {2: 30, 4: 30, 8: 30}  # by ranks; four steps each
ENVIRONMENT = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                   OMP_NUM_THREADS="1", GOMP_SPINCOUNT="0", HOME=os.environ.get("HOME", "/tmp"))


def main():
    failed = 0
    for ranks, cells in CELLS.items():
        done = subprocess.run(
            [os.environ["EQUIPOISE_MPIRUN"], "-n", str(ranks), FUZZ, str(cells), str(ranks)],
            env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=800)
        print(done.stdout, flush=True)
        right = done.returncode == 0 and done.stdout.count("passed: ") == cells
        failed += not right
        print(f"{'ok  ' if right else 'FAIL'} {cells} cells, mpirun -n {ranks}", flush=True)
    print(f"{len(CELLS) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
