"""`parallel.schedule: FILE`: a right one trains like one process, evaluation included; a broken one
is refused in one line, without a hang."""
import os
import shutil
import subprocess
import sys
import tempfile
import time

import tiny_case
from live_run import steps_done

RIGHT = """micro_batches 4
stage 0 rank 0 next 1
stage 1 rank 1
rank 0: 0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3
rank 1: 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3
"""
FOLDED = """micro_batches 4
stage 0 rank 0 next 1
stage 1 rank 1 next 2
stage 2 rank 1 next 3
stage 3 rank 0
rank 0: 0F0 0F1 0F2 0F3 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 0B0 0B1 0B2 0B3
rank 1: 1F0 2F0 1F1 2F1 1F2 2F2 1F3 2F3 2I0 1B0 2I1 1B1 2I2 1B2 2I3 1B3 2W0 2W1 2W2 2W3
"""
BROKEN = {  # what is replaced, by what, what is said
    "an op is missing": (" 0B2", "", "0B2 is missing"),
    "backwards do not ascend": ("0B0 0F2 0B1", "0B1 0F2 0B0", "ascend"),
    "a deadlock": ("1F0 1B0", "1B0 1F0", "deadlocks"),
    "an unknown op": ("0F2", "0Q2", ":4:21:"),
    "a stage that is not there": ("1F3 1B3", "1F3 1B3 1000000F0", "there is no 1000000F0"),
    "a micro-batch that is not there": ("1F3 1B3", "1F3 1B3 1F4", "there is no 1F4"),
    "half a backward": ("0B0 0F2", "0I0 0F2", "0W0 is missing"),
    "another number of micro-batches": ("micro_batches 4", "micro_batches 5", "5 micro-batches"),
}


def write(path, text):
    with open(path, "w") as out:
        out.write(text)


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="schedule_file")
    config = tiny_case.write_case(folder)
    source = f"[{{annotations: {folder}/train.jsonl, images: {folder}/images}}]"
    settings = dict(train__steps=2, train__global_batch=4, data__eval=source)
    done = tiny_case.run(config, 1, run__dir=f"{folder}/one", **settings)
    results.check("one process", done.returncode == 0, done.stderr[-300:])

    path = f"{folder}/schedule.txt"
    settings.update(parallel__pipeline=2, parallel__schedule=path)
    write(path, RIGHT)
    done = tiny_case.run(config, 2, run__dir=f"{folder}/right", **settings)
    results.check("a schedule from a file", done.returncode == 0, done.stderr[-500:])
    results.check("the same losses", tiny_case.losses(f"{folder}/right") ==
                  tiny_case.losses(f"{folder}/one"))
    write(path, RIGHT.replace("0B1 0F3 0B2", "0I1 0F3 0I2 0W1 0W2").replace("1B3", "1I3 1W3"))
    done = tiny_case.run(config, 2, run__dir=f"{folder}/halves", **settings)
    results.check("backwards in halves", done.returncode == 0, done.stderr[-500:])
    results.check("the same losses in halves", tiny_case.losses(f"{folder}/halves") ==
                  tiny_case.losses(f"{folder}/one"))
    write(path, FOLDED)
    done = tiny_case.run(config, 2, run__dir=f"{folder}/folded", **settings, parallel__chunks=2)
    results.check("two stages a rank, dealt as a V", done.returncode == 0, done.stderr[-500:])
    results.check("the same losses as a V", tiny_case.losses(f"{folder}/folded") ==
                  tiny_case.losses(f"{folder}/one"))
    write(path, RIGHT)
    for number, (name, (old, new, said)) in enumerate(BROKEN.items()):
        write(path, RIGHT.replace(old, new))
        run_dir = f"{folder}/broken{number}"
        done = tiny_case.run(config, 2, timeout=100, run__dir=run_dir, **settings)
        lines = [x for x in done.stderr.splitlines() if "equipoise: " in x]
        results.check(f"{name}: one line with the file's name, exit 2", done.returncode == 2 and
                      len(lines) == 1 and said in lines[0] and f"equipoise: {path}:" in lines[0],
                      f"exit {done.returncode} {lines}")

    # The file is read once: it may change, or go away, beneath a run.
    write(path, RIGHT)
    with subprocess.Popen(
            tiny_case.command(config, 2, run__dir=f"{folder}/gone",
                              **{**settings, "train__steps": 60}),
            stderr=subprocess.PIPE, text=True, env=tiny_case.environment()) as going:
        while going.poll() is None and steps_done(f"{folder}/gone") < 2:
            time.sleep(0.02)
        os.remove(path)
        stderr = going.communicate(timeout=300)[1]
    results.check("a file that goes away beneath a run", going.returncode == 0, stderr[-500:])
    for number, name in enumerate((path, folder)):
        done = tiny_case.run(config, 2, timeout=100, run__dir=f"{folder}/none{number}",
                             **{**settings, "parallel__schedule": name})
        lines = [x for x in done.stderr.splitlines() if "equipoise: " in x]
        results.check(f"no file, {number}: one line that names the key, exit 2",
                      done.returncode == 2 and len(lines) == 1 and
                      f"parallel.schedule: '{name}' is neither" in lines[0],
                      f"exit {done.returncode} {lines}")
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
