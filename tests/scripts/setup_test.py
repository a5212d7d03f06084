"""scripts/setup is silent when there is nothing to do, and shows progress when there is."""
import hashlib
import os
import pty
import shutil
import subprocess
import sys

from script_case import DEADLINE_S, FOLDER, run_cases, write_program

CLONE = FOLDER / "clone"
CACHE = FOLDER / "cache"
TOOLS = FOLDER / "tools"
NOTE = FOLDER / "installed"  # apt-get's stand-in has run


def prepare():
    """A clone, an environment that is complete, and stand-ins for Debian's tools."""
    (CLONE / "scripts").mkdir(parents=True)
    for name in ("setup", "debian-packages.txt", "requirements.txt"):
        shutil.copy(f"scripts/{name}", CLONE / "scripts" / name)
    wanted = (CLONE / "scripts/requirements.txt").read_bytes()
    environment = CACHE / ("env-" + hashlib.sha256(wanted).hexdigest()[:12])
    environment.mkdir(parents=True)
    (environment / "complete").touch()
    write_program(TOOLS / "dpkg-query", f"""
        #!/bin/sh
        [ -z "$MISSING" ] || [ -e {NOTE} ] || exit 1
        echo install ok installed
    """)
    write_program(TOOLS / "apt-get", f"""
        #!/bin/sh
        [ "$1" = install ] || exit 0
        /bin/sleep "$MISSING"
        [ -z "$BROKEN" ] || {{ echo "E: no such package"; exit 100; }}
        touch {NOTE}
    """)
    write_program(TOOLS / "id", "#!/bin/sh\necho 0\n")
    # A minute lasts less than a second.
    write_program(TOOLS / "sleep", "#!/bin/sh\nexec /bin/sleep 0.01\n")


def setup(terminal=False, **environment):
    """(exit code, what it printed). `terminal`: standard error is one."""
    environment = {"HOME": str(FOLDER), "PATH": f"{TOOLS}:{os.environ['PATH']}",
                   "EQUIPOISE_CACHE": str(CACHE), **environment}
    output, write = pty.openpty() if terminal else os.pipe()
    process = subprocess.Popen([CLONE / "scripts/setup"], env=environment, stdout=write,
                               stderr=write, stdin=subprocess.DEVNULL)
    os.close(write)
    said = b""
    while True:
        try:
            part = os.read(output, 4096)
        except OSError:  # a terminal that nobody writes to any more
            part = b""
        if not part:
            break
        said += part
    os.close(output)
    return process.wait(timeout=DEADLINE_S), said.decode()


def nothing_to_do_is_silent():
    setup()  # links .venv
    for terminal in (False, True):
        assert setup(terminal) == (0, ""), setup(terminal)
    assert (CLONE / ".venv").readlink().parent == CACHE


def installing_says_so_once_a_minute():
    code, said = setup(MISSING="3")
    NOTE.unlink()
    lines = said.splitlines()
    assert code == 0 and lines[0].startswith("setup: installing Debian packages: "), said
    assert len(lines) > 1 and "apt-get: 60 s, " in lines[1], said
    assert all(line.startswith("setup: apt-get: ") and "0 s, " in line for line in lines[1:]), said
    assert "\r" not in said


def a_terminal_has_one_line_that_changes():
    code, said = setup(terminal=True, MISSING="1")
    NOTE.unlink()
    parts = said.split("\r")
    assert code == 0 and any("apt-get: 7 s, " in part for part in parts), said
    assert parts[-1] == "\033[K" and said.count("\n") == 1, repr(said)


def a_failure_shows_why():
    code, said = setup(MISSING="0", BROKEN="1")
    assert code == 1 and "E: no such package" in said and "apt-get failed" in said, said


def wrong_folders_are_named():
    """In one line, before anything is installed; right ones are taken without a word."""
    setup()
    for variable, paths in (("EQUIPOISE_TORCH", ["include/ATen/core/Tensor.h",
                                                 "lib/libtorch_cpu.so"]),
                            ("EQUIPOISE_CUDA", ["bin/nvcc"]),
                            ("EQUIPOISE_MPI", ["include/mpi.h", "lib/libmpi.so", "bin/mpirun"])):
        folder = FOLDER / variable.lower()
        for path in paths:
            for given in (folder, FOLDER / "nowhere" if path == paths[0] else folder):
                code, said = setup(MISSING="0", **{variable: str(given)})
                assert code == 1 and said.count("\n") == 1, said
                assert f"{variable}={given}: there is no {path} in it; give" in said, said
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).touch()
        assert setup(**{variable: str(folder)}) == (0, ""), variable
        assert not NOTE.exists()
    code, said = setup(EQUIPOISE_CACHE="cache")
    assert code == 1 and said.count("\n") == 1 and "absolute path" in said, said
    code, said = setup(EQUIPOISE_CUDA=os.path.relpath(FOLDER / "equipoise_cuda", CLONE))
    assert code == 1 and said.count("\n") == 1 and "absolute path" in said, said
    setup()


def links_to_folders_may_have_spaces():
    (FOLDER / "c d").mkdir()
    code, said = setup(EQUIPOISE_CACHE=str(FOLDER / "c d"))
    assert code == 1 and said.count("\n") == 1 and "path with a space" in said, said
    spaced = FOLDER / "a b"
    spaced.symlink_to(CACHE)
    assert setup(EQUIPOISE_CACHE=str(spaced)) == (0, "")
    lines = (CLONE / ".bazelrc.local").read_text(encoding="utf-8").splitlines()
    assert lines[0] == f'build --disk_cache="{spaced}/bazel"', lines
    setup()


def main():
    prepare()
    return run_cases([nothing_to_do_is_silent, installing_says_so_once_a_minute,
                      a_terminal_has_one_line_that_changes, a_failure_shows_why,
                      wrong_folders_are_named, links_to_folders_may_have_spaces])


if __name__ == "__main__":
    sys.exit(main())
