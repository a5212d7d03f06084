"""scripts/bundle packs what runs with nothing of this machine's environment but LibTorch."""
import glob
import json
import mmap
import os
import pathlib
import re
import shutil
import subprocess
import sys

from script_case import DEADLINE_S, FOLDER, run_cases, write_program

BUNDLE, PROGRAM = sys.argv[1], os.path.realpath(sys.argv[2])
TARGET = FOLDER / "a bundle"


def torch_folder():
    text = subprocess.run(["ldd", PROGRAM], capture_output=True, text=True, check=True).stdout
    return pathlib.Path(re.search(r"=> (/\S+)/lib/libtorch_cpu.so", text).group(1))


TORCH = torch_folder()


def run(*command, torch=TORCH, **extra):
    """Runs a command with an environment of nothing but what is named."""
    environment = {"HOME": str(FOLDER), "PATH": "/usr/bin:/bin",
                   "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", **extra}
    if torch:
        environment["EQUIPOISE_TORCH"] = str(torch)
    done = subprocess.run([str(part) for part in command], env=environment, capture_output=True,
                          text=True, timeout=DEADLINE_S, check=False)
    return done.returncode, done.stdout, done.stderr


def is_sanitized():
    with open(PROGRAM, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        return text.find(b"__asan_init") >= 0


def it_fits():
    code, _, err = run(BUNDLE, TARGET, "--program", PROGRAM)
    if is_sanitized():
        assert code != 0 and "is larger than 64 MiB" in err, err
        print("skipped: bundle_test, size: a program with the sanitizers is larger")
        return
    assert code == 0, err
    size = sum(path.stat().st_size for path in TARGET.rglob("*") if path.is_file())
    assert size <= 64 << 20, size
    assert not list(TARGET.rglob("libtorch*")) and not list(TARGET.rglob("libc.so*"))


def it_loads_nothing_else():
    """Every library comes from the bundle, from LibTorch's folders or from the system's loader."""
    tokenizer = FOLDER / "model"
    tokenizer.mkdir()
    letters = {chr(c): c - 97 for c in range(97, 123)}
    (tokenizer / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True,
                          "trim_offsets": True},
        "model": {"type": "BPE", "vocab": letters, "merges": []}}), encoding="utf-8")
    command = f"echo cab | '{TARGET}/equipoise' data {tokenizer} tokenize"
    code, out, err = run("/bin/sh", "-c", command,
                         LD_DEBUG="libs", LD_DEBUG_OUTPUT=str(FOLDER / "loader"))
    assert code == 0 and json.loads(out) == [2, 0, 1], (code, out, err)
    loaded = set()
    for log in glob.glob(f"{FOLDER}/loader.*"):
        text = pathlib.Path(log).read_text(encoding="utf-8", errors="replace")
        loaded |= set(re.findall(r"calling init: (\S.*\.so.*)", text))
    names = [path for path in loaded if path.startswith(str(TARGET))]
    assert any("libmpi.so" in path for path in names), loaded
    torch_parts = (str(TORCH), os.path.realpath(TORCH), os.path.realpath(TORCH / "../nvidia"))
    for path in loaded - set(names):
        real = os.path.realpath(path)
        if path.startswith(torch_parts) or real.startswith(torch_parts):
            continue
        assert re.match(r"/(usr/)?lib(64|32)?/", path), f"{path} is not of the bundle"


def ranks_start():
    code, out, err = run(TARGET / "bin/mpirun", "-n", "2", TARGET / "equipoise", "train", "--help")
    assert code == 0 and out.count("Usage:") == 1, (code, out, err)


def a_copy_runs_elsewhere_with_torch_beside_it():
    other = FOLDER / "other/bundle"
    shutil.copytree(TARGET, other)
    (other.parent / "torch").symlink_to(TORCH)
    code, out, err = run(other / "equipoise", "check", "--help", torch=None)
    assert code == 0 and "INPUTS" in out, (code, out, err)


def an_older_glibc_is_named():
    tools = FOLDER / "tools"
    for version in ("2.4", "2.35"):  # by numbers, not by letters
        write_program(tools / "getconf", f"#!/bin/sh\necho glibc {version}\n")
        code, _, err = run(TARGET / "equipoise", "check", "--help", PATH=f"{tools}:/usr/bin:/bin")
        assert code == 2 and err.count("\n") == 1, (code, err)
        assert f"glibc {version} is older than the 2.36 that it needs" in err, err
    write_program(tools / "getconf", "#!/bin/sh\necho glibc 2.100\n")
    code, _, err = run(TARGET / "equipoise", "check", "--help", PATH=f"{tools}:/usr/bin:/bin")
    assert code == 0, err


def wrong_folders_are_named():
    empty = FOLDER / "empty"
    wrong = FOLDER / "wrong"
    (wrong / "lib").mkdir(parents=True)
    (wrong / "lib/libtorch_cpu.so").touch()
    (wrong / "version.py").write_text("__version__ = '1.2.3+cpu'\n", encoding="utf-8")
    cases = [(None, "EQUIPOISE_TORCH: not set"), (empty, f"{empty} holds no lib/libtorch_cpu.so"),
             (wrong, f"{wrong} is LibTorch 1.2.3; this program needs ")]
    for torch, expected in cases:
        code, _, err = run(TARGET / "equipoise", "check", "--help", torch=torch)
        assert code == 2 and expected in err and err.count("\n") == 1, (code, err)
    cases = [([], "usage:"), ([TARGET, "--program", PROGRAM], "is not an empty folder"),
             ([FOLDER / "new", "--program"], "usage:"),
             ([FOLDER / "new", "--program", PROGRAM, "--program", PROGRAM], "the same name"),
             ([FOLDER / "new", "--program", "/no/such"], "bazel build //trainer:equipoise"),
             ([FOLDER / "new", "--program", "/bin/true"], "give the trainer")]
    for arguments, expected in cases:
        code, _, err = run(BUNDLE, *arguments)
        assert code == 2 and expected in err, (arguments, code, err)


if __name__ == "__main__":
    sys.exit(run_cases([it_fits, it_loads_nothing_else, ranks_start,
                        a_copy_runs_elsewhere_with_torch_beside_it, an_older_glibc_is_named,
                        wrong_folders_are_named]))
