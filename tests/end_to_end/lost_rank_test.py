"""A rank that hangs is named by all others, which exit 5; a rank that is killed ends the job."""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import tiny_case
from live_run import ranks_of, steps_done

RANKS = 4
TIMEOUT = 6  # a rank that is silent for half of it counts as stopped, also on a busy machine


def start(config, run_dir, log, **settings):
    settings = {"parallel__timeout_s": TIMEOUT, **settings}
    line = tiny_case.command(config, RANKS, run__dir=run_dir, train__steps=1000000,
                             checkpoint__every=1000000, **settings)
    with open(log, "w") as out:
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=out,
                                   env=tiny_case.environment(), start_new_session=True)
    while process.poll() is None and steps_done(run_dir) < 5:
        time.sleep(0.02)
    return process


def rank_of(pid):
    with open(f"/proc/{pid}/environ", "rb") as file:
        found = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", file.read())
    return int(found.group(1))


def read(path):
    with open(path) as file:
        return file.read()


def wake_when_named(process, victim, log):
    """Resumes the process `victim` as soon as another rank has spoken."""
    while process.poll() is None and "equipoise: " not in read(log):
        time.sleep(0.002)
    if process.poll() is None:
        os.kill(victim, signal.SIGCONT)  # mpirun does so too, when it ends the job


def hit(results, config, folder, signal_, victim, wake=False, **settings):
    run_dir = tempfile.mkdtemp(dir=folder)
    log = f"{run_dir}.log"
    process = start(config, run_dir, log, **settings)
    pids = {rank_of(pid): pid for pid in ranks_of(process.pid)}
    results.check(f"{RANKS} ranks train", sorted(pids) == list(range(RANKS)), str(pids))
    os.kill(pids[victim], signal_)
    if wake:
        wake_when_named(process, pids[victim], log)
    try:
        status = process.wait(timeout=120)
    except subprocess.TimeoutExpired:
        status = "none: it hangs"
        os.killpg(process.pid, signal.SIGKILL)
    return status, read(log)


def stuck_in_a_pass(results, config, folder):
    """A pipeline rank that hangs: its neighbour says at which op of the schedule, and its layers.
    Nearly all of a step is passes; the stop that falls between two is tried again."""
    at_op = re.compile(r"rank 1 has stopped.*; it was at 1[FBIW]\d+, [a-z_.]+[\w. ]*"
                       r" \(at \d[FBIW]\d+, [a-z_.]+[\w. ]*\)")
    for _ in range(8):
        status, stderr = hit(results, config, folder, signal.SIGSTOP, 1, parallel__pipeline=4,
                             train__global_batch=8)
        results.check("a pipeline rank hangs: named, exit 5",
                      status == 5 and "rank 1 has stopped" in stderr, f"{status} {stderr[-900:]}")
        if at_op.search(stderr):
            break
    results.check("and its op and layers", at_op.search(stderr) is not None, stderr[-900:])


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="lost_rank")
    config = tiny_case.write_case(folder)
    for victim, wake in ((1, False), (1, True), (0, True)):
        status, stderr = hit(results, config, folder, signal.SIGSTOP, victim, wake)
        name = f"rank {victim} hangs{', and comes back to hear of it' if wake else ''}"
        results.check(f"{name}: exit 5", status == 5, f"exit {status}")
        for rank in range(RANKS):
            told = [text for text in stderr.splitlines()
                    if text.startswith(f"[rank {rank}] equipoise: ")]
            if rank == victim:
                results.check(f"{name}: it says nothing", not told, str(told))
                continue
            results.check(f"{name}: rank {rank} names it, with operation and group, in one line",
                          len(told) == 1 and f"rank {victim} has stopped" in told[0]
                          and re.search(r"#\d+ in group \w+", told[0]) is not None, str(told))
    stuck_in_a_pass(results, config, folder)
    for victim in (1, 0):
        # Long before a deadline, after which the others would speak.
        status, stderr = hit(results, config, folder, signal.SIGKILL, victim,
                             parallel__timeout_s=600)
        results.check(f"rank {victim} is killed: mpirun ends the job with 137", status == 137
                      and "equipoise: " not in stderr, f"exit {status} {stderr[-300:]}")
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
