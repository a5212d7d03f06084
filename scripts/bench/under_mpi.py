"""How benches start programs of this repository: one rank or several, one thread each."""

import os
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
EQUIPOISE = os.path.join(ROOT, "bazel-bin/trainer/equipoise")


def environment():
    return dict(os.environ, OMP_NUM_THREADS="1", GOMP_SPINCOUNT="0", OMPI_ALLOW_RUN_AS_ROOT="1",
                OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def mpirun(ranks, bind=False):
    """The command's beginning. bind: a core for each rank and its communication thread, where there
    are enough; two ranks that wait without a pause take turns of 8 ms on one."""
    mpirun_ = os.environ.get("EQUIPOISE_MPIRUN", os.path.join(ROOT, ".venv/bin/mpirun"))
    line = [mpirun_, "-n", str(ranks)]
    if bind:
        line += ["--bind-to", "core" if ranks <= len(os.sched_getaffinity(0)) else "none"]
    return line


def run(command):
    """Runs to the end; its stdout, or the whole program's end with what went wrong."""
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), cwd=ROOT)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def build(target):
    """Builds `//folder:name`; the program's path."""
    subprocess.run(["bazel", "build", target], cwd=ROOT, check=True)
    return os.path.join(ROOT, "bazel-bin", target.removeprefix("//").replace(":", "/"))


def with_settings(settings):
    """`--set` options; a value of None is left as it is."""
    pairs = [f"{key}={value}" for key, value in settings.items() if value is not None]
    return [word for pair in pairs for word in ("--set", pair)]
