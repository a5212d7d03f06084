"""The MPI backend under mpirun: conformance, and what the others say when a rank goes wrong."""

import os
import re
import signal
import subprocess
import sys
import time
from concurrent import futures

CONFORMANCE, FAULT = sys.argv[1:3]
# Seconds. A rank that is silent for half of it counts as stopped, also on a busy machine.
TIMEOUT = "4"
ENVIRONMENT = dict(
    os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
    OMP_NUM_THREADS="1", HOME=os.environ.get("HOME", "/tmp"))


def mpirun(ranks, *command):
    """Exit code and output of both streams."""
    done = subprocess.run(
        [os.environ["EQUIPOISE_MPIRUN"], "-n", str(ranks), *command],
        env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=600)
    return done.returncode, done.stdout


def errors_by_rank(output):
    found = re.findall(r"^error: (rank (\d+): .*)$", output, re.M)
    return {int(rank): line for line, rank in found}


def conformance(ranks, *options):
    code, output = mpirun(ranks, CONFORMANCE, *options)
    assert code == 0, output
    assert output.count("passed: ") == 13, output


def alone():
    """Started by hand, a program is a world of one."""
    plain = {k: v for k, v in ENVIRONMENT.items() if not k.startswith(("OMPI_COMM", "PMIX"))}
    done = subprocess.run([CONFORMANCE], env=plain, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and done.stdout.count("passed: ") == 13, done


def names_culprit(how, verdict):
    code, output = mpirun(4, FAULT, "3", how, TIMEOUT)
    errors = errors_by_rank(output)
    assert code == 5, (code, output)
    # Every other rank: its own operation, group, number and peer, and the faulty_rank.
    for rank, operation in [
            (0, "all_reduce #2 in group data (1.0 MiB)"),
            (1, "recv from rank 3 #1 in group world (1.0 MiB): no answer from rank 3 for "),
            (2, "recv from rank 1 #1 in group world (1.0 MiB): no answer from rank 1 for ")]:
        assert errors.get(rank, "").startswith(f"rank {rank}: {operation}"), output
        assert re.search(verdict, errors[rank]), output
    return output


def stopped_rank():
    output = names_culprit("stop", r"rank 3 has stopped: no sign of life for \d+\.\d s")
    for pid in re.findall(r"pid of rank \d: (\d+)", output):
        assert gone(int(pid)), f"process {pid} is left over\n{output}"


def computing_rank():
    """A rank that computes past the deadline is told when it waits next."""
    code, output = mpirun(4, FAULT, "3", "late", TIMEOUT)
    assert code == 5, (code, output)
    assert re.search(r"error: rank 0: all_reduce #2 in group data \(1\.0 MiB\): rank 3 has "
                     r"stopped: no sign of life for \d\.\d s \(rank \d gave up first\)",
                     output), output


def paused_run():
    """All ranks stopped for longer than the deadline, as by a debugger: nobody is to blame."""
    with subprocess.Popen(
            [os.environ["EQUIPOISE_MPIRUN"], "-n", "4", FAULT, "3", "pause", TIMEOUT],
            env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as run:
        pids, lines = [], []
        while len(pids) < 4 or "wrong" not in "".join(lines):
            lines.append(run.stderr.readline())
            assert lines[-1], lines
            pids += map(int, re.findall(r"pid of rank \d: (\d+)", lines[-1]))
        for sent in (signal.SIGSTOP, signal.SIGCONT):
            for pid in pids:
                os.kill(pid, sent)
            if sent == signal.SIGSTOP:
                time.sleep(1.5 * int(TIMEOUT))
        rest = run.stderr.read()
        assert run.wait(timeout=300) == 0, lines + [rest]


def sleeping_rank():
    names_culprit("sleep", r"rank 3 is running and has not entered it; the last it entered was "
                           r"all_reduce #1 in group data \(1\.0 MiB\)")


def killed_rank():
    """mpirun names it and ends the others, before a deadline of 300 seconds makes them speak."""
    code, output = mpirun(4, FAULT, "3", "kill", "300")
    seconds = time.time() - float(re.search(r"wrong at (\S+)", output)[1])
    assert code == 137 and not errors_by_rank(output), (code, output)
    assert re.search(r"process rank 3 with PID \d+ on node \S+ exited on\s+signal 9", output), \
        output
    print(f"a killed rank ended the run after {seconds:.2f} s")


def failing_rank():
    """One rank's own failure is told to all, and is the exit code of all."""
    code, output = mpirun(4, FAULT, "3", "throw", "300")
    assert code == 4, (code, output)
    assert "error: train.jsonl:7: broken" in output, output
    errors = errors_by_rank(output)
    for rank in range(3):
        assert "rank 3 failed: train.jsonl:7: broken" in errors.get(rank, ""), output


def gone(pid, patience_s=20):
    """Whether a process ends; one that was killed takes a moment on a busy machine."""
    until = time.monotonic() + patience_s
    while alive(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


# Those that mostly wait for deadlines come first, two at a time.
TESTS = {
    "a rank that computes meanwhile is told too": computing_rank,
    "a pause of the whole run is forgiven": paused_run,
    "a stopped rank is named on every other rank": stopped_rank,
    "a rank that does not enter is named on every other rank": sleeping_rank,
    "a killed rank ends the run at once": killed_rank,
    "a failing rank is named and sets the exit code": failing_rank,
    **{f"conformance on {n} ranks": lambda n=n: conformance(n) for n in (8, 4, 3, 2, 1)},
    "conformance, synchronous and in pieces": lambda: conformance(3, "--strict"),
    "a world of one": alone,
}


def passes(name):
    start = time.monotonic()
    try:
        TESTS[name]()
    except (AssertionError, subprocess.TimeoutExpired) as error:
        print(f"FAILED: {name}: {error}", flush=True)
        return False
    print(f"passed: {name} ({time.monotonic() - start:.1f} s)", flush=True)
    return True


def main():
    with futures.ThreadPoolExecutor(max_workers=2) as pool:
        passed = sum(pool.map(passes, TESTS))
    print(f"{passed} passed, {len(TESTS) - passed} failed")
    sys.exit(passed < len(TESTS))


main()
