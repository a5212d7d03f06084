"""What training gives a GPU to do, counted by LibTorch for CUDA over recording libraries."""
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1", "libcudart.so.13", "libcublasLt.so.13",
             "libcublas.so.13")


def build():
    targets = ["//tests/bench:gpu_count"] + [f"//tests/recording_cuda:{name}" for name in LIBRARIES]
    subprocess.run(["bazel", "build", *targets], cwd=ROOT, check=True)


def count(what, options):
    """The JSON of `what`, "layers" or "step"."""
    folder = ROOT / "bazel-bin/tests/recording_cuda"
    environment = dict(os.environ, LD_PRELOAD=":".join(str(folder / name) for name in LIBRARIES),
                       PYTORCH_ALLOC_CONF="expandable_segments:True")  # as the program sets it
    line = [str(ROOT / "bazel-bin/tests/bench/gpu_count"), what, *options]
    done = subprocess.run(line, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.returncode)
    return json.loads(done.stdout)
