"""An error that one rank alone meets ends all ranks, soon, with its reason and its exit code."""
import os
import shutil
import subprocess
import sys
import tempfile
import time

import tiny_case


def mpirun(*ranks):
    """Exit code, stderr and seconds of one job of several programs, a rank each."""
    line = [tiny_case.MPIRUN]
    for i, rank in enumerate(ranks):
        line += ([":"] if i else []) + ["-n", "1", tiny_case.EQUIPOISE, *rank]
    begin = time.monotonic()
    done = subprocess.run(line, capture_output=True, text=True, timeout=300,
                          env=tiny_case.environment())
    return done.returncode, done.stderr, time.monotonic() - begin


def cannot_write_metrics(results, config, folder):
    """Rank 0 alone writes metrics; a folder stands in the way."""
    os.makedirs(f"{folder}/blocked/metrics.jsonl")
    done = tiny_case.run(config, 3, run__dir=f"{folder}/blocked", train__global_batch=6)
    results.check("metrics that cannot be written: exit 5", done.returncode == 5,
                  str(done.returncode))
    results.check("metrics: every rank says why",
                  all(f"[rank {rank}] equipoise: " in done.stderr for rank in range(3)) and
                  done.stderr.count("metrics.jsonl: cannot be read") >= 3, done.stderr[-900:])


def other_configuration(results, config, folder):
    train = ["train", config, "--set", f"run.dir={folder}/two"]
    code, text, _ = mpirun(train, [*train, "--set", "train.lr=1"])
    results.check("two configurations: exit 2", code == 2, str(code))
    results.check("two configurations: named",
                  "the configuration of rank 1 differs from that of rank 0 "
                  "(train.lr 0.002 -> 1" in text, text[-500:])


def missing_configuration(results, config, folder):
    """Rank 1 alone lacks the file; rank 0 waits for it in its first collective."""
    train = ["train", config, "--set", f"run.dir={folder}/lacks"]
    code, text, _ = mpirun(train, ["train", f"{folder}/absent.yaml"])
    results.check("a file that one rank lacks: exit 2", code == 2, str(code))
    results.check("a file that one rank lacks: named", "absent.yaml" in text, text[-500:])


def nobody_listens(results, config, folder):
    """Rank 0 hangs in reading a pipe: rank 1 must say itself what went wrong."""
    os.mkfifo(f"{folder}/pipe.yaml")
    code, text, seconds = mpirun(["train", f"{folder}/pipe.yaml"],
                                 ["train", f"{folder}/absent.yaml"])
    results.check("nobody listens: exit 2", code == 2, str(code))
    results.check("nobody listens: ends soon", seconds < 120, f"{seconds:.1f} s")
    results.check("nobody listens: the reason stands there", "[rank 1] equipoise: " in text and
                  "absent.yaml" in text, text[-500:])


def mpi_does_not_start(results, config, folder):
    """One process, as mpirun would start it: mpirun itself may hang after such an end."""
    env = {**tiny_case.environment(), "OMPI_COMM_WORLD_SIZE": "1",
           "OMPI_MCA_pml": "absent"}  # a component that is not there
    done = subprocess.run(tiny_case.command(config, 1, run__dir=f"{folder}/no_mpi"), timeout=300,
                          capture_output=True, text=True, env=env)
    results.check("MPI does not start: exit 5", done.returncode == 5, str(done.returncode))
    told = [text for text in done.stderr.splitlines() if text.startswith("equipoise: ")]
    results.check("MPI does not start: one line, no stack", len(told) == 1 and
                  "MPI_Init" in told[0] and "terminate" not in done.stderr, done.stderr[-900:])


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="one")
    config = tiny_case.write_case(folder)
    for case in (cannot_write_metrics, other_configuration, missing_configuration, nobody_listens,
                 mpi_does_not_start):
        case(results, config, folder)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
