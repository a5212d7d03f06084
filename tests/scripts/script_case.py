"""What tests of scripts share: a folder, programs that stand in for others, running and waiting."""
import os
import pathlib
import subprocess
import tempfile
import textwrap
import time
import traceback

DEADLINE_S = 300
FOLDER = pathlib.Path(tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR")))
RANK = FOLDER / "rank"

# In place of the trainer: says that it is ready, then does what its first argument names. The
# signals in RANK_STOPS_BY ask it to stop.
RANK_PROGRAM = """
    #!/usr/bin/python3
    import os, signal, sys, time
    what, asked = sys.argv[2], []
    for name in os.environ["RANK_STOPS_BY"].split():
        signal.signal(getattr(signal, name), lambda *_: asked.append(1))
    rank = os.environ["OMPI_COMM_WORLD_RANK"]
    ready = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "ready." + rank)
    open(ready, "w").write(repr(sys.argv[1:]))
    if what.startswith("exit"):
        sys.exit(int(what[4:]))
    end = time.time() + 200
    while time.time() < end and (what == "stubborn" or not asked):
        time.sleep(0.02)
    sys.exit(75 if asked else 1)
"""


def write_program(path, text):
    path.parent.mkdir(exist_ok=True)
    path.write_text(textwrap.dedent(text).lstrip(), encoding="utf-8")
    path.chmod(0o755)


def start(*command, **environment):
    """Runs a script, RANK being the trainer, in a process group of its own, as a terminal would."""
    for path in FOLDER.glob("ready.*"):
        path.unlink()
    temporary = FOLDER / "tmp"  # short-lived files of mpirun, which scripts/launch also removes
    temporary.mkdir(exist_ok=True)
    environment = {"HOME": str(FOLDER), **os.environ, "EQUIPOISE_PROGRAM": str(RANK),
                   "TMPDIR": str(temporary), **environment}
    return subprocess.Popen([str(part) for part in command], env=environment,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            start_new_session=True)


def started():
    """The arguments of each rank that has started, by rank."""
    return {int(path.suffix[1:]): path.read_text(encoding="utf-8")
            for path in FOLDER.glob("ready.*")}


def wait_ready(ranks):
    end = time.time() + DEADLINE_S
    while set(started()) != set(range(ranks)):
        if time.time() > end:
            raise TimeoutError("the ranks did not start")
        time.sleep(0.05)
    time.sleep(0.2)


def finish(process):
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out, err


def run_cases(cases):
    """Runs functions that raise where something is wrong; the exit code of the test."""
    failed = 0
    for case in cases:
        try:
            case()
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            place = traceback.extract_tb(error.__traceback__)[-1]
            print(f"FAILED {case.__name__}: {error!r}, line {place.lineno}: {place.line}")
    print(f"{len(cases) - failed} passed, {failed} failed")
    return 1 if failed else 0
