"""Where stages run: folders, environment, programs under a deadline."""
import ctypes
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

FILE_LIMIT = 16 << 20  # a larger result may not come back from another machine


class Failed(Exception):
    """A stage that did not do what it should; the text is for the table."""


class Skipped(Exception):
    """A stage that cannot run here; the text says why."""


def descendants(pid):
    """Processes below one, mpirun's ranks too, which are in process groups of their own."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    parents[int(entry)] = int(file.read().rsplit(")", 1)[1].split()[1])
            except (OSError, IndexError, ValueError):
                continue
    found = [pid]
    for process in found:
        found += [child for child, parent in parents.items() if parent == process]
    return found


def kill(process):
    """SIGKILL to a program, if it still runs, and to all that it has started."""
    if process.poll() is not None:
        return
    for pid in descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    process.wait()


def adopt_orphans():
    """Makes this process the parent of those of its descendants whose own parent ends before them:
    ranks outlive their mpirun."""
    PR_SET_CHILD_SUBREAPER = 36  # pylint: disable=invalid-name
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def end_descendants(seconds=30):
    """SIGKILL to all that this process has started, until nothing of it is left."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for pid in descendants(os.getpid())[1:]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            while os.waitpid(-1, os.WNOHANG)[0] != 0:
                pass
        except ChildProcessError:
            return
        time.sleep(0.02)


def last_line(text):
    """What a program said at last, its own error rather than what mpirun says of that."""
    lines = [line.strip() for line in text.splitlines() if line.strip(" -=\t")]
    errors = [line[line.index("equipoise: "):] for line in lines if "equipoise: " in line]
    return (errors or lines or ["no output"])[-1][:200]


def is_lines(path, count):
    """Whether a file has so many lines."""
    try:
        return pathlib.Path(path).read_bytes().count(b"\n") >= count
    except OSError:
        return False


class Machine:
    """One run of the pack. `end`: when the stage that is running has to be over."""

    def __init__(self, pack, results, device, numbers):
        self.pack, self.results, self.device, self.numbers = pack, results, device, numbers
        memory = os.environ.get("EQUIPOISE_SCRATCH") or (
            "/dev/shm" if os.access("/dev/shm", os.W_OK) else None)
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="equipoise-gpu-pack-", dir=memory))
        self.logs = self.scratch / "logs"
        self.logs.mkdir()
        self.end = time.monotonic() + 600
        self.torch = self.find_torch()
        self.environment = self.make_environment()

    @property
    def on_gpu(self):
        return self.device == "cuda"

    @property
    def python_has_torch(self):
        return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True,
                              check=False).returncode == 0

    def find_torch(self):
        """LibTorch's folder; empty: there is none, which the first stage says."""
        given = os.environ.get("EQUIPOISE_TORCH", "")
        if given:
            return given
        done = subprocess.run(
            [sys.executable, "-c", "import torch, os; print(os.path.dirname(torch.__file__))"],
            capture_output=True, text=True, check=False)
        return done.stdout.strip() if done.returncode == 0 else ""

    def make_environment(self):
        environment = dict(os.environ, EQUIPOISE_TORCH=self.torch, OMPI_ALLOW_RUN_AS_ROOT="1",
                           OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", TMPDIR=str(self.scratch),
                           PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1",
                           HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
        environment.setdefault("HOME", str(self.scratch))
        if self.on_gpu:
            environment.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
            environment.setdefault("PYTORCH_ALLOC_CONF", "expandable_segments:True")
        else:
            environment["CUDA_VISIBLE_DEVICES"] = ""
        return environment

    def close(self):
        """Removes the scratch folder, once nothing that was started can write there any more."""
        end_descendants()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def program(self, name):
        return str(self.pack / "bundle" / name)

    def mpirun(self, ranks):
        # Not bound to a core each: loader threads need others.
        return [self.program("bin/mpirun"), "-n", str(ranks), "--bind-to", "none"]

    def tool(self, name, *arguments):
        return [sys.executable, str(self.pack / "tools" / name), *map(str, arguments)]

    def start(self, name, command, **environment):
        """Begins a program whose output goes to logs/NAME.log; its process and that path."""
        log = self.logs / (name + ".log")
        with open(log, "a", encoding="utf-8") as out:
            out.write("$ " + " ".join(map(str, command)) + "\n")
            out.flush()
            process = subprocess.Popen([str(word) for word in command], stdout=out, stderr=out,
                                       stdin=subprocess.DEVNULL, cwd=self.pack,
                                       env={**self.environment, **environment},
                                       start_new_session=True)
        return process, log

    def run(self, name, command, check=True, until=None, **environment):
        """Runs a program to its end, or until `until()` holds, when it is killed; its exit code
        (None: killed so) and output. The stage's end kills it too, and fails the stage."""
        process, log = self.start(name, command, **environment)
        done = False
        try:
            while process.poll() is None:
                if time.monotonic() > self.end:
                    raise Failed(f"{name}: no time left: "
                                 + last_line(log.read_text(errors="replace")))
                done = until is not None and until()
                if done:
                    break
                time.sleep(0.02)
        finally:
            kill(process)
        text = log.read_text(encoding="utf-8", errors="replace")
        if done:
            return None, text
        if check and process.returncode != 0:
            raise Failed(f"{name}: exit {process.returncode}: {last_line(text)}")
        return process.returncode, text

    def profile(self, folder, name, config, sweeps, **settings):
        """Measures layers into folder/profile-NAME.json; the rows of that file."""
        out = folder / f"profile-{name}.json"
        command = [self.program("equipoise"), "profile", f"configs/{config}.yaml", "--out", out,
                   "--sweeps", sweeps, "--set", f"train.device={self.device}"]
        for key, value in settings.items():
            command += ["--set", f"{key.replace('__', '.')}={value}"]
        self.run(f"profile-{name}", command)
        return json.loads(out.read_text(encoding="utf-8"))["layers"]

    def train(self, name, config, ranks=1, until=None, keep=False, **settings):
        """Trains with settings (__ for the dots); rows of metrics by step, and the output.
        keep: the run folder stays, for another run of the same name."""
        folder = self.scratch / name.split("+")[0]
        command = (self.mpirun(ranks) if ranks > 1 else []) + [
            self.program("equipoise"), "train", f"configs/{config}.yaml"]
        settings = {"run__dir": folder, "run__probe": "true", "train__device": self.device,
                    "data__cache": self.scratch / "cache", **settings}
        for key, value in settings.items():
            command += ["--set", f"{key.replace('__', '.')}={value}"]
        try:
            code, text = self.run(name, command, until=until and (lambda: until(folder)))
            if code is None:
                text += "\n(killed on purpose)"
            rows = {}
            for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
                try:
                    row = json.loads(line)
                    rows[row["step"]] = row
                except ValueError:  # cut off by a kill
                    continue
            (self.logs / f"{name}.metrics.json").write_text(json.dumps(list(rows.values())),
                                                            encoding="utf-8")
            if (folder / "trace.json").exists() and config == "shape":
                shutil.copy(folder / "trace.json", self.results / "trace.json")
            return rows, text
        finally:
            if not keep:
                shutil.rmtree(folder, ignore_errors=True)
