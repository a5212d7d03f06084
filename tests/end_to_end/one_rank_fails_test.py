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
    done = subprocess.run(line, capture_output=True, text=True, timeout=90,
                          env=tiny_case.environment())
    return done.returncode, done.stderr, time.monotonic() - begin


def cannot_write_metrics(results, config, folder):
    """Rank 0 alone writes metrics; a folder stands in the way."""
    os.makedirs(f"{folder}/blocked/metrics.jsonl")
    done = tiny_case.run(config, 3, run__dir=f"{folder}/blocked", train__global_batch=6, timeout=90)
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
    results.check("nobody listens: ends soon", seconds < 30, f"{seconds:.1f} s")
    results.check("nobody listens: the reason stands there", "[rank 1] equipoise: " in text and
                  "absent.yaml" in text, text[-500:])


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="one")
    config = tiny_case.write_case(folder)
    for case in (cannot_write_metrics, other_configuration, missing_configuration, nobody_listens):
        case(results, config, folder)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
