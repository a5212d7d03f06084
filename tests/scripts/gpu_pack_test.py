"""scripts/gpu-pack: a short pack, moved to another place, passes every stage but the GPU's in a dry
run: no network at all, another Python, LibTorch behind a link, two ranks as root."""
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time
from concurrent import futures

from PIL import Image

import prepared_set
from script_case import DEADLINE_S, FOLDER, run_cases

SCRIPT = os.path.abspath("scripts/gpu-pack")
PACK, ELSEWHERE = FOLDER / "made/pack", FOLDER / "else where/pack"
STAMPS = FOLDER / "stamps"
# Of these runs alone: what another pack does in /dev/shm at the same time is no fault of theirs.
SCRATCH = FOLDER / "scratch"
# Of the system: it has no torch, and is not the environment's.
OTHER_PYTHON = "/usr/bin/python3"
OF_GPUS = {"gpu_parity_test"}
OF_TORCH = {"bench_ops", "transformers"}


def make_stamps():
    letters = random.Random(0)
    for i in range(64):
        picture = Image.new("RGB", (40 + i % 7, 30), (i * 3 % 251, i % 13, 7))
        picture.putpixel((3, 4), (255 - i, i, 200))
        name = " ".join("".join(letters.choices("abcdefghijklmnoprstuvw", k=6)) for _ in range(2))
        prepared_set.save_stamp(str(STAMPS), f"kind/stamp{i:03}", picture, f"A {name}.\n")


def run(*command, **environment):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=DEADLINE_S, env=environment, check=False)
    return done.returncode, done.stdout, done.stderr


def torch_folder():
    import importlib.util  # without the seconds that an import takes
    return pathlib.Path(importlib.util.find_spec("torch").origin).parent


def environment(out, **more):
    return {"PATH": "/usr/bin:/bin", "HOME": str(FOLDER), "OUT": str(out),
            "EQUIPOISE_SCRATCH": str(SCRATCH), "EQUIPOISE_DEVICE": "cpu", **more}


# Sets the loopback interface up, as every machine has it, and runs the rest of the command line.
WITH_LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket() as any_socket:
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sH22x", b"lo", 0x41))
os.execvp(sys.argv[1], sys.argv[1:])
"""


def without_network():
    """The beginning of a command in a network namespace of its own: loopback and nothing else."""
    command = ["unshare", "--user", "--map-root-user", "--net", OTHER_PYTHON, "-c", WITH_LOOPBACK]
    code, _, err = run(*command, "true", **environment(FOLDER))
    if code == 0:
        return command
    print(f"skipped: gpu_pack_test, no network: {err.strip().splitlines()[-1:]}")
    return []


def stages_of(out):
    with open(out / "results.json", encoding="utf-8") as file:
        return {row[0]: row[1:] for row in json.load(file)["stages"]}


def a_pack_is_made():
    make_stamps()
    code, _, err = run(sys.executable, "-B", SCRIPT, PACK, "--short", "--bin", ".", "--stamps",
                       STAMPS, **os.environ)
    assert code == 0, err
    assert float(re.search(r": ([0-9.]+) MiB", err.splitlines()[-1])[1]) <= 64, err
    assert len(list(PACK.rglob("libmpi.so.40"))) == 1 and not list(PACK.rglob("libtorch*"))
    ELSEWHERE.parent.mkdir()
    shutil.move(PACK, ELSEWHERE)


def every_stage_passes_but_the_gpus():
    link, out = FOLDER / "torch of this machine", FOLDER / "out"
    link.symlink_to(torch_folder())
    code, text, err = run(*without_network(), ELSEWHERE / "run",
                          **environment(out, EQUIPOISE_TORCH=str(link),
                                        EQUIPOISE_PYTHON3=OTHER_PYTHON))
    print(text)
    assert code == 0, text + err
    stages = stages_of(out)
    skipped = {name for name, row in stages.items() if row[0] == "skipped"}
    assert all(row[0] in ("passed", "skipped") for row in stages.values()), stages
    assert skipped == OF_GPUS | OF_TORCH and stages["gpu_parity_test"][2] == "no GPU", stages
    assert "killed and resumed: same bits" in stages["quickstart"][2], stages
    assert all(name in stages["ranks"][2] for name in ("data 2", "1f1b", "zb_v", "tensor 2"))
    assert stages["methods"][2] == "3 ways measured", stages
    files = list(out.iterdir())
    assert len(files) <= 8 and all(file.stat().st_size < 16 << 20 for file in files), files
    report = (out / "REPORT.md").read_text(encoding="utf-8")
    assert all(f"| {name} |" in report for name in stages), report
    assert "| gpu_parity_test | skipped |" in text, text


def stages_of_python_pass_where_it_has_torch():
    out = FOLDER / "out of python"
    code, text, err = run(ELSEWHERE / "run", **environment(
        out, EQUIPOISE_PYTHON3=sys.executable, EQUIPOISE_STAGES="bench_ops,transformers"))
    assert code == 0, text + err
    assert {name: row[0] for name, row in stages_of(out).items()} == dict.fromkeys(
        sorted(OF_TORCH), "passed"), text


def a_failure_stops_nothing():
    broken, out = FOLDER / "broken", FOLDER / "out of broken"
    shutil.copytree(ELSEWHERE, broken)
    (broken / "configs/quickstart.yaml").write_text("nothing: 1\n", encoding="utf-8")
    (broken / "bundle/nccl_library_test").write_text("#!/bin/sh\nsleep 100\n", encoding="utf-8")
    code, text, err = run(broken / "run", **environment(
        out, EQUIPOISE_TORCH=str(torch_folder()), EQUIPOISE_PYTHON3=OTHER_PYTHON,
        EQUIPOISE_STAGES="profile,nccl_library_test,machine", EQUIPOISE_LIMIT_S="20"))
    assert code == 1, text + err
    stages = stages_of(out)
    assert stages["profile"][0] == "FAILED" and "nothing" in stages["profile"][2], stages
    assert stages["nccl_library_test"][0] == "FAILED", stages
    assert "no time left" in stages["nccl_library_test"][2], stages
    assert len(stages) == 3 and (out / "logs.tar.gz").exists()


def a_run_that_is_ended_leaves_its_report():
    out = FOLDER / "out of ended"
    with subprocess.Popen([ELSEWHERE / "run"], stdout=subprocess.DEVNULL, env=environment(
            out, EQUIPOISE_TORCH=str(torch_folder()), EQUIPOISE_PYTHON3=OTHER_PYTHON,
            EQUIPOISE_STAGES="machine,quickstart")) as process:
        end = time.time() + DEADLINE_S
        while not (out / "REPORT.md").exists() and time.time() < end:
            time.sleep(0.1)
        process.terminate()
        code = process.wait(timeout=DEADLINE_S)
        assert code == 143, code
    assert stages_of(out)["machine"][0] == "passed" and (out / "logs.tar.gz").exists()


def dry_runs():
    """Side by side, as most of the time passes in starting programs."""
    SCRATCH.mkdir()
    with futures.ThreadPoolExecutor() as pool:
        calls = (every_stage_passes_but_the_gpus, stages_of_python_pass_where_it_has_torch,
                 a_failure_stops_nothing, a_run_that_is_ended_leaves_its_report)
        for done in [pool.submit(call) for call in calls]:
            done.result()
    left = [str(path) for path in SCRATCH.rglob("*")]
    assert not left, left


def bad_input_is_one_line():
    python = {"EQUIPOISE_PYTHON3": OTHER_PYTHON, "EQUIPOISE_TORCH": str(torch_folder())}
    cases = [(["more"], {}, "takes no argument"), ([], {"EQUIPOISE_DEVICE": "tpu"}, "is cuda"),
             ([], {"EQUIPOISE_STAGES": "nothing"}, "there is no stage 'nothing'"),
             ([], {"EQUIPOISE_TORCH": ""}, "set EQUIPOISE_TORCH")]
    for arguments, more, expected in cases:
        code, _, err = run(ELSEWHERE / "run", *arguments,
                           **environment(FOLDER / "never", **{**python, **more}))
        assert code == 2 and expected in err and err.count("\n") == 1, (code, err)
    cases = [([ELSEWHERE], "is not an empty folder"),
             ([FOLDER / "new", "--stamps", "/no/such"], "--stamps: /no/such"),
             ([FOLDER / "new", "--bin", "/no/such"], "--bin: /no/such"),
             ([FOLDER / "new", "--bin", "/usr/bin"], "bazel build //trainer:equipoise")]
    for arguments, expected in cases:
        words = arguments if "--stamps" in arguments else [*arguments, "--stamps", STAMPS]
        code, _, err = run(sys.executable, "-B", SCRIPT, *words, **os.environ)
        assert code == 2 and expected in err and err.count("\n") == 1, (arguments, code, err)


if __name__ == "__main__":
    STATUS = run_cases([a_pack_is_made, dry_runs, bad_input_is_one_line])
    shutil.rmtree(FOLDER, ignore_errors=True)
    sys.exit(STATUS)
