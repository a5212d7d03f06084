"""SIGKILL of one rank or of all, 32 times at random moments, half of them during a save; resume
goes on bit-equal to a run that never stopped."""
import glob
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import tiny_case

STEPS = 120
KILLS = 32


def ranks_of(mpirun):
    """Process ids of the ranks of a running mpirun."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as stat:
                text = stat.read()
            with open(os.path.join(os.path.dirname(path), "cmdline"), "rb") as cmdline:
                program = cmdline.read().split(b"\0")[0]
        except OSError:
            continue
        parent = int(text.rsplit(")", 1)[1].split()[1])
        if parent == mpirun and program.endswith(b"equipoise"):
            found.append(int(text.split()[0]))
    return found


def saving(run_dir):
    return bool(glob.glob(f"{run_dir}/checkpoints/.tmp-*"))


def lines(run_dir):
    try:
        with open(f"{run_dir}/metrics.jsonl", "rb") as file:
            return file.read().count(b"\n")
    except OSError:
        return 0


def start(config, run_dir, log):
    line = tiny_case.command(config, 2, run__dir=run_dir, train__steps=STEPS, checkpoint__every=3)
    return subprocess.Popen(
        line, stdout=log, stderr=log, env=tiny_case.environment(), start_new_session=True
    )


def wait_for_moment(process, run_dir, rng, in_save):
    """Returns True when it is time to kill, False when the run has ended by itself."""
    begin = lines(run_dir)
    want = begin + rng.randrange(1, 6)
    while process.poll() is None:
        if lines(run_dir) >= want and (not in_save or saving(run_dir)):
            time.sleep(rng.random() * (0.004 if in_save else 0.03))
            return process.poll() is None
        time.sleep(0.0005)
    return False


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="kill")
    config = tiny_case.write_case(folder)
    reference, run_dir = f"{folder}/reference", f"{folder}/killed"
    with open(f"{folder}/log", "w") as log:
        done = start(config, reference, log).wait(timeout=600)
        results.check("the run that is never stopped", done == 0)
        rng, killed, in_saves, statuses = random.Random(7), 0, 0, set()
        deadline = time.monotonic() + 900
        while killed < KILLS and time.monotonic() < deadline:
            process = start(config, run_dir, log)
            in_save = killed % 2 == 0
            if not wait_for_moment(process, run_dir, rng, in_save):
                break
            was_saving = saving(run_dir)
            ranks = ranks_of(process.pid)
            victims = (
                ranks if rng.random() < 0.5 else ranks[:1] if rng.random() < 0.5 else ranks[1:]
            )
            for pid in victims:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            began = time.monotonic()
            statuses.add(process.wait(timeout=60))
            if time.monotonic() - began > 10:
                results.check(
                    "mpirun ends soon after a kill", False, f"{time.monotonic() - began:.1f} s"
                )
            killed, in_saves = killed + bool(victims), in_saves + was_saving
        results.check(
            f"{KILLS} kills",
            killed == KILLS,
            f"{killed}, {in_saves} while a save was under way, "
            f"mpirun returned {sorted(statuses)}",
        )
        results.check(
            "a third of the kills or more hit a save", in_saves >= KILLS // 3, str(in_saves)
        )
        results.check("no kill looks like success", 0 not in statuses)
        done = start(config, run_dir, log).wait(timeout=600)
        results.check("the run ends after all kills", done == 0)
    expected, got = tiny_case.metrics(reference), tiny_case.metrics(run_dir)
    results.check("each step stands once", [r["step"] for r in got] == list(range(1, STEPS + 1)))
    worst = [
        r["step"]
        for r, e in zip(got, expected)
        if (r["loss"], r["grad_norm"], r["tokens"]) != (e["loss"], e["grad_norm"], e["tokens"])
    ]
    results.check(
        "losses and norms are bit-equal to the run that was never stopped",
        not worst,
        f"differ at {worst[:5]}",
    )
    if results.failed:
        with open(f"{folder}/log") as log:
            print(log.read()[-4000:])
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
