"""Every way to stop a run on request saves, exits with 75, and the run then goes on bit-equal."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import tiny_case
from kill_test import lines, ranks_of

STEPS = 400
LAUNCH = os.path.abspath(os.environ.get("EQUIPOISE_LAUNCH", "scripts/launch"))


def start(line, log):
    return subprocess.Popen(
        line, stdout=log, stderr=log, env=tiny_case.environment(), start_new_session=True
    )


def stop_by_stop_file(process, run_dir):
    open(f"{run_dir}/stop", "w").close()


def stop_by_usr1_to_mpirun(process, run_dir):
    os.kill(process.pid, signal.SIGUSR1)


def stop_by_sigterm_to_ranks(process, run_dir):
    for pid in ranks_of(process.pid):
        os.kill(pid, signal.SIGTERM)


def stop_by_sigterm_to_launch(process, run_dir):
    os.kill(process.pid, signal.SIGTERM)


def stop_by_sigint_to_launch(process, run_dir):
    os.kill(process.pid, signal.SIGINT)


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="stop")
    config = tiny_case.write_case(folder)
    settings = dict(train__steps=STEPS, checkpoint__every=1000)
    ways = [("stop file, 2 ranks", stop_by_stop_file, 2, False),
            ("stop file, one process", stop_by_stop_file, 1, False),
            ("SIGUSR1 to mpirun", stop_by_usr1_to_mpirun, 2, False),
            ("SIGTERM to the ranks", stop_by_sigterm_to_ranks, 2, False),
            ("SIGTERM to scripts/launch", stop_by_sigterm_to_launch, 2, True),
            ("SIGINT to scripts/launch", stop_by_sigint_to_launch, 2, True)]
    with open(f"{folder}/log", "w") as log:
        for name, stop, ranks, through_launch in ways:
            run_dir = f"{folder}/{name.replace(' ', '_').replace('/', '_')}"
            line = tiny_case.command(config, ranks, run__dir=run_dir, **settings)
            if through_launch:
                at = line.index(tiny_case.EQUIPOISE)
                line = [LAUNCH, "-n", str(ranks), *line[at + 2:]]  # it says `train` itself
            process = start(line, log)
            while process.poll() is None and lines(run_dir) < 5:
                time.sleep(0.01)
            stop(process, run_dir)
            status = process.wait(timeout=60)
            stopped_at = lines(run_dir)
            results.check(
                f"{name}: exit 75", status == 75, f"exit {status}, after step {stopped_at}"
            )
            saved = os.path.exists(f"{run_dir}/checkpoints/step-{stopped_at:08d}/index.json")
            results.check(f"{name}: the last step is saved", saved and stopped_at < STEPS)
            done = tiny_case.run(config, ranks, run__dir=run_dir, train__steps=stopped_at + 3,
                                 checkpoint__every=1000)
            steps = [row["step"] for row in tiny_case.metrics(run_dir)]
            results.check(
                f"{name}: goes on",
                done.returncode == 0 and steps == list(range(1, stopped_at + 4)),
                done.stderr[-300:],
            )
    if results.failed:
        with open(f"{folder}/log") as log:
            print(log.read()[-4000:])
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
