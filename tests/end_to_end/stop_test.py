"""Every way to stop a run on request saves and exits with 75; the same command goes on from there,
to the weights and moments of a run that was never stopped, bit by bit."""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import checkpoint_reader
import tiny_case
from live_run import half_saved, ranks_of, restarted, steps_done, usr1

STEPS = 1000000  # more than any machine does before it is told to stop
LAUNCH = os.path.abspath(os.environ.get("EQUIPOISE_LAUNCH", "scripts/launch"))


def start(line, log, restarts=False):
    """`restarts`: without what the program would otherwise set and start itself again for."""
    env = tiny_case.environment()
    if restarts:
        env.pop("GOMP_SPINCOUNT", None)
    return subprocess.Popen(line, stdout=log, stderr=log, env=env, start_new_session=True)


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


def stop_as_timeout_does(process, run_dir):
    os.kill(process.pid, signal.SIGTERM)
    os.kill(process.pid, signal.SIGCONT)


def send(pids, signal_):
    for pid in pids:
        os.kill(pid, signal_)


def stopped_soon(results, name, process, run_dir, expected):
    status, at = process.wait(timeout=300), steps_done(run_dir)
    saved = os.path.exists(f"{run_dir}/checkpoints/step-{at:08d}/index.json")
    results.check(f"{name}: saved, exit 75 after the next step", status == 75 and saved and
                  at in expected, f"exit {status} after step {at}")


def early_stop(results, folder, config):
    """SIGUSR1 to ranks that have begun but are not there yet (MPI starts, libraries are loaded)."""
    for ranks in (1, 2):
        name = f"SIGUSR1 before {ranks} ranks are ready"
        for attempt in range(20):
            run_dir = f"{folder}/early{ranks}.{attempt}"
            process = start(tiny_case.command(config, ranks, run__dir=run_dir, train__steps=STEPS),
                            subprocess.DEVNULL, restarts=True)
            pids = []
            while process.poll() is None and not (len(pids) == ranks and
                                                  all(restarted(pid) for pid in pids)):
                pids = [process.pid] if ranks == 1 else ranks_of(process.pid)
            send(pids, signal.SIGSTOP)
            seen = [usr1(pid) for pid in pids]
            if "caught" not in seen:
                break
            process.kill()  # too late: once more
            send(pids, signal.SIGKILL)
            process.wait()
        results.check(f"{name}: it is held", seen == ["held"] * ranks, str(seen))
        os.kill(process.pid, signal.SIGUSR1)
        send(pids, signal.SIGCONT)
        stopped_soon(results, name, process, run_dir, range(1, 20 if ranks == 2 else 2))


def stop_in_evaluation(results, folder, config):
    """Step 2 is followed by an evaluation that takes longer than all steps."""
    with open(f"{folder}/train.jsonl") as file:
        records = file.read()
    with open(f"{folder}/held_out.jsonl", "w") as file:
        file.write(records * 100)
    source = f"[{{annotations: {folder}/held_out.jsonl, images: {folder}/images}}]"
    run_dir = f"{folder}/evaluation"
    process = start(tiny_case.command(config, 2, run__dir=run_dir, train__steps=STEPS,
                                      data__eval=source, eval__every=2,
                                      eval__samples=1000000), subprocess.DEVNULL)
    while process.poll() is None and steps_done(run_dir) < 1:
        time.sleep(0.001)
    time.sleep(1)  # step 2, whose row comes behind its evaluation
    results.check("asked to stop in an evaluation", steps_done(run_dir) == 1)
    os.kill(process.pid, signal.SIGUSR1)
    stopped_soon(results, "stop in an evaluation", process, run_dir, (3,))


def stop_in_answers(results, folder, config):
    """After the last step: the weights are saved, and the same command answers the questions."""
    source = f"[{{annotations: {folder}/held_out.jsonl, images: {folder}/images}}]"
    run_dir = f"{folder}/answers"
    settings = dict(run__dir=run_dir, train__steps=1, eval__answers=source, eval__answer_tokens=8)
    with open(f"{folder}/answers.log", "w") as log:
        process = start(tiny_case.command(config, 2, eval__answer_samples=1000000, **settings), log)
        while process.poll() is None and not os.path.exists(
                f"{run_dir}/checkpoints/step-00000001/index.json"):
            time.sleep(0.01)
        time.sleep(1)
        results.check("asked to stop among answers", process.poll() is None)
        os.kill(process.pid, signal.SIGUSR1)
        stopped_soon(results, "stop among answers", process, run_dir, (1,))
    with open(f"{folder}/answers.log") as log:
        text = log.read()
    results.check("stop among answers: says so", "stopped on request after training" in text, text)
    results.check("no answers yet", not os.path.exists(f"{run_dir}/answers.jsonl"))
    done = tiny_case.run(config, 2, eval__answer_samples=3, **settings)
    results.check("the same command answers them", done.returncode == 0 and
                  "nothing left but answers: step 1 of 1; raise train.steps" in done.stderr and
                  os.path.exists(f"{run_dir}/answers.jsonl"), done.stderr[-300:])


def stop_in_long_answers(results, folder, config):
    """Before the first step, in answers that would not end for hours: they are given up."""
    source = f"[{{annotations: {folder}/held_out.jsonl, images: {folder}/images}}]"
    run_dir = f"{folder}/long"
    process = start(tiny_case.command(config, 2, run__dir=run_dir, train__steps=STEPS,
                                      eval__answers=source, eval__answer_tokens=1000000),
                    subprocess.DEVNULL)
    while process.poll() is None and not os.path.exists(f"{run_dir}/metrics.jsonl"):
        time.sleep(0.01)
    time.sleep(2)
    results.check("asked to stop in a long answer", process.poll() is None and
                  steps_done(run_dir) == 0)
    os.kill(process.pid, signal.SIGUSR1)
    stopped_soon(results, "stop in a long answer", process, run_dir, (1,))
    results.check("answers that are given up are none",
                  not os.path.exists(f"{run_dir}/answers_before.jsonl"))


def stop_in_answers_between(results, folder, config):
    """Between steps: the same command answers before it goes on, as if it had not been stopped."""
    source = f"[{{annotations: {folder}/held_out.jsonl, images: {folder}/images}}]"
    settings = dict(train__steps=4, train__schedule="constant", eval__answers=source,
                    eval__answer_tokens=8, eval__answer_every=2, checkpoint__every=1000,
                    checkpoint__best="held_out/anls")
    run_dir = f"{folder}/between"
    process = start(tiny_case.command(config, 2, run__dir=run_dir, eval__answer_samples=1000000,
                                      **settings), subprocess.DEVNULL)
    while process.poll() is None and steps_done(run_dir) < 1:
        time.sleep(0.001)
    time.sleep(1)
    results.check("asked to stop among answers between steps", steps_done(run_dir) == 1)
    os.kill(process.pid, signal.SIGUSR1)
    stopped_soon(results, "stop among answers between steps", process, run_dir, (2,))
    done = tiny_case.run(config, 2, run__dir=run_dir, eval__answer_samples=3, **settings)
    results.check("answers that are owed: given first", done.returncode == 0 and
                  "answering the questions after step 2" in done.stderr, done.stderr[-600:])
    whole = tiny_case.run(config, 2, run__dir=f"{folder}/whole", eval__answer_samples=3,
                          **settings)
    results.check("never stopped", whole.returncode == 0, whole.stderr[-300:])
    rows, expected = (
        [(row["step"], row["loss"], row.get("answers")) for row in tiny_case.metrics(each)]
        for each in (run_dir, f"{folder}/whole"))
    results.check("answers that are owed: the metrics are those of a run that was never stopped",
                  rows == expected and rows[1][2] is not None, f"{rows} {expected}")
    best = [os.readlink(f"{each}/checkpoints/best") for each in (run_dir, f"{folder}/whole")]
    results.check("answers that are owed: the best is the same", best == ["step-00000002"] * 2,
                  str(best))


def folder_removed(results, folder, config):
    """A run whose folder is removed ends at its next checkpoint, and another may take its place."""
    for ranks in (1, 2):
        run_dir = f"{folder}/removed{ranks}"
        with open(f"{folder}/removed.log", "w") as log:
            process = start(tiny_case.command(config, ranks, run__dir=run_dir, train__steps=STEPS,
                                              checkpoint__every=50), log)
            while process.poll() is None and steps_done(run_dir) < 2:
                time.sleep(0.01)
            os.rename(run_dir, f"{run_dir}_moved")
            os.mkdir(run_dir)
            status = process.wait(timeout=300)
        with open(f"{folder}/removed.log") as log:
            text = log.read()
        results.check(f"a run's folder is removed, {ranks} ranks", status == 5 and
                      text.count("the folder was removed or replaced") == 1 and
                      "checkpoints" not in os.listdir(run_dir), f"exit {status} {text[-600:]}")


def stop_in_save(results, folder, config):
    run_dir = f"{folder}/save"
    process = start(tiny_case.command(config, 2, run__dir=run_dir, train__steps=STEPS,
                                      checkpoint__every=1), subprocess.DEVNULL)
    pids = []
    while process.poll() is None:
        if not half_saved(run_dir):
            continue
        pids = ranks_of(process.pid)
        send(pids, signal.SIGSTOP)
        if half_saved(run_dir):
            break
        send(pids, signal.SIGCONT)
    at = steps_done(run_dir)
    results.check("asked to stop in a save", len(pids) == 2, f"after step {at}")
    send(pids, signal.SIGUSR1)
    send(pids, signal.SIGCONT)
    stopped_soon(results, "stop in a save", process, run_dir, (at, at + 1))


def same_as_undisturbed(results, folder, config, ends, settings):
    """`ends`: of each run that was stopped and went on, its ranks and its last step."""
    for ranks in {ranks for ranks, _ in ends.values()}:
        run_dir = f"{folder}/undisturbed{ranks}"
        last = max(step for r, step in ends.values() if r == ranks)
        done = tiny_case.run(config, ranks, run__dir=run_dir, **{
            **settings, "train__steps": last, "checkpoint__every": 1, "checkpoint__keep": last})
        results.check(f"{ranks} ranks, never stopped", done.returncode == 0, done.stderr[-300:])
        for stopped, (r, step) in ends.items():
            if r != ranks:
                continue
            name = f"checkpoints/step-{step:08d}"
            differing = checkpoint_reader.differing(f"{stopped}/{name}", f"{run_dir}/{name}")
            results.check(f"{os.path.basename(stopped)}: weights and moments have the same bits",
                          not differing, str(differing[:3]))


def stop_on_request(results, folder, config):
    # A learning rate that does not depend on how far the run shall go.
    settings = dict(train__steps=STEPS, checkpoint__every=1000, train__schedule="constant")
    ends = {}
    ways = [("stop file, 2 ranks", stop_by_stop_file, 2, False),
            ("stop file, one process", stop_by_stop_file, 1, False),
            ("SIGTERM and SIGCONT, one process", stop_as_timeout_does, 1, False),
            ("SIGUSR1 to mpirun", stop_by_usr1_to_mpirun, 2, False),
            ("SIGTERM to the ranks", stop_by_sigterm_to_ranks, 2, False),
            ("SIGTERM to scripts/launch", stop_by_sigterm_to_launch, 2, True),
            ("SIGINT to scripts/launch", stop_by_sigint_to_launch, 2, True)]
    with open(f"{folder}/log", "w") as log:
        for name, stop, ranks, through_launch in ways:
            run_dir = f"{folder}/{name.replace(' ', '_').replace('/', '_').replace(',', '')}"
            line = tiny_case.command(config, ranks, run__dir=run_dir, **settings)
            if through_launch:
                at = line.index(tiny_case.EQUIPOISE)
                line = [LAUNCH, "-n", str(ranks), *line[at + 2:]]  # it says `train` itself
            process = start(line, log)
            while process.poll() is None and steps_done(run_dir) < 5:
                time.sleep(0.01)
            stop(process, run_dir)
            status = process.wait(timeout=300)
            stopped_at = steps_done(run_dir)
            results.check(
                f"{name}: exit 75", status == 75, f"exit {status}, after step {stopped_at}"
            )
            saved = os.path.exists(f"{run_dir}/checkpoints/step-{stopped_at:08d}/index.json")
            results.check(f"{name}: the last step is saved", saved and stopped_at < STEPS)
            done = tiny_case.run(config, ranks, run__dir=run_dir,
                                 **{**settings, "train__steps": stopped_at + 3})
            ends[run_dir] = (ranks, stopped_at + 3)
            steps = [row["step"] for row in tiny_case.metrics(run_dir)]
            results.check(
                f"{name}: goes on",
                done.returncode == 0 and steps == list(range(1, stopped_at + 4)) and
                f"going on from {run_dir}" in done.stderr,
                done.stderr[-300:],
            )
    same_as_undisturbed(results, folder, config, ends, settings)


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="stop")
    config = tiny_case.write_case(folder)
    for case in (stop_on_request, early_stop, stop_in_evaluation, stop_in_answers,
                 stop_in_long_answers, stop_in_answers_between, stop_in_save,
                 folder_removed):
        case(results, folder, config)
    if results.failed:
        with open(f"{folder}/log") as log:
            print(log.read()[-4000:])
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
