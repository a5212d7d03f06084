"""SIGKILL of one rank or of all, 32 times at random moments, half of them during a save; resume
goes on from a checkpoint, and ends with the bits of a run that never stopped: losses, weights,
moments."""
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import checkpoint_reader
import tiny_case
from live_run import half_saved, ranks_of, steps_done

KILLS = 32
RUNS = 2  # side by side, as most of the time passes in starting and ending them


class KilledRun:
    """A run that is killed again and again, and started again each time."""

    def __init__(self, config, run_dir, seed):
        self.config, self.run_dir = config, run_dir
        self.rng = random.Random(seed)
        self.kills, self.in_saves, self.statuses = 0, 0, set()
        self.resumes = 0  # starts that find a checkpoint

    def start(self, steps):
        # The learning rate knows no end, so that a run does not depend on how far it shall go.
        line = tiny_case.command(self.config, 2, run__dir=self.run_dir, train__steps=steps,
                                 train__schedule="constant", checkpoint__every=3)
        self.resumes += os.path.islink(f"{self.run_dir}/checkpoints/latest")
        with open(f"{self.run_dir}.log", "a") as log:
            return subprocess.Popen(line, stdout=log, stderr=log, env=tiny_case.environment(),
                                    start_new_session=True)

    def kill(self, kills):
        while self.kills < kills:
            stale = half_saved(self.run_dir)
            process = self.start(steps=1000000)
            if not self.kill_once(process, stale, in_save=self.kills % 2 == 0):
                break
            self.kills += 1
            self.statuses.add(process.wait(timeout=300))

    def kill_once(self, process, stale, in_save):
        """Whether it came to a kill before the run ended by itself."""
        def saving():
            return bool(half_saved(self.run_dir).items() - stale.items())

        want = steps_done(self.run_dir) + self.rng.randrange(1, 6)
        while process.poll() is None:
            time.sleep(0.0005)
            if steps_done(self.run_dir) < want or (in_save and not saving()):
                continue
            time.sleep(self.rng.random() * (0.004 if in_save else 0.03))
            ranks = ranks_of(process.pid)
            send(ranks, signal.SIGSTOP)  # what is seen now holds at the kill
            was_saving = saving()
            if in_save and not was_saving:
                send(ranks, signal.SIGCONT)
                continue
            send(self.rng.choice([ranks, ranks, ranks[:1], ranks[1:]]), signal.SIGKILL)
            send(ranks, signal.SIGCONT)
            self.in_saves += was_saving
            return True
        return False


def send(pids, signal_):
    for pid in pids:
        try:
            os.kill(pid, signal_)
        except ProcessLookupError:
            pass


def compare(results, run, reference, expected):
    with open(f"{run.run_dir}.log") as log:
        told = log.read().count("going on from")
    results.check("each start that found a checkpoint went on from it",
                  told == run.resumes >= KILLS // RUNS // 2, f"{told} of {run.resumes}")
    newest = [f"{r.run_dir}/checkpoints/step-{expected[-1]['step']:08d}" for r in (run, reference)]
    results.check("it has weights and moments", checkpoint_reader.has_moments(newest[0]))
    differing = checkpoint_reader.differing(*newest)
    results.check("weights and moments have the bits of the run that was never stopped",
                  not differing, f"{len(differing)} differ, such as {differing[:3]}")
    got = tiny_case.metrics(run.run_dir)
    results.check("each step stands once", [r["step"] for r in got] ==
                  [r["step"] for r in expected])
    keys = ("loss", "grad_norm", "tokens")
    worst = [r["step"] for r, e in zip(got, expected) if any(r[k] != e[k] for k in keys)]
    results.check("losses and norms are bit-equal to the run that was never stopped", not worst,
                  f"differ at {worst[:5]}")


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="kill")
    config = tiny_case.write_case(folder)
    runs = [KilledRun(config, f"{folder}/killed{i}", seed=7 + i) for i in range(RUNS)]
    threads = [threading.Thread(target=run.kill, args=[KILLS // RUNS]) for run in runs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    statuses = set().union(*(run.statuses for run in runs))
    results.check(f"{KILLS} kills", sum(run.kills for run in runs) == KILLS,
                  f"mpirun returned {sorted(statuses)}")
    results.check("half of them hit a save", sum(run.in_saves for run in runs) >= KILLS // 2,
                  str([run.in_saves for run in runs]))
    results.check("no kill looks like success", 0 not in statuses)
    last = max(steps_done(run.run_dir) for run in runs) + 3
    reference = KilledRun(config, f"{folder}/reference", seed=0)
    for run in [reference, *runs]:
        results.check("the run ends when nobody kills it", run.start(last).wait(timeout=600) == 0)
    expected = tiny_case.metrics(reference.run_dir)
    results.check("the reference has every step", len(expected) == last, str(last))
    for run in runs:
        compare(results, run, reference, expected)
    if results.failed:
        for run in runs:
            with open(f"{run.run_dir}.log") as log:
                print(log.read()[-4000:])
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
