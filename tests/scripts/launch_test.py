"""scripts/launch turns signals into a request to stop, passes on arguments and exit codes, leaves
out what Open MPI says of an expected end, and removes the files of killed runs."""
import mmap
import os
import pathlib
import shutil
import signal
import socket
import sys
import time

import script_case
from script_case import FOLDER, RANK, finish, started, wait_ready


def start(*arguments, program=RANK, **environment):
    return script_case.start("scripts/launch", *arguments, RANK_STOPS_BY="SIGUSR1",
                             EQUIPOISE_PROGRAM=str(program), **environment)


def exit_codes_pass_through():
    for code in (0, 2, 5, 75):
        found = finish(start("-n", "2", f"exit{code}"))[0]
        assert found == code, (code, found)


DASHES = "-" * 74
BOX = f"""{DASHES}
prterun detected that one or more processes exited with non-zero status,
thus causing the job to be terminated. The first process to do so was:

   Process name: [prterun-vm-10119@1,0]
   Exit code:    %s
{DASHES}
"""
OTHER_BOX = f"""{DASHES}
There are not enough slots available in the system to satisfy the 4
slots that were requested by the application:
{DASHES}
"""


def the_box_of_an_expected_end_is_left_out():
    for code in (2, 3, 4, 75):
        found, _, err = finish(start("-n", "2", f"exit{code}"))
        assert (found, err) == (code, ""), (code, found, err)
    for code in (1, 5):
        _, _, err = finish(start("-n", "2", f"exit{code}"))
        assert "detected that one or more processes exited" in err, (code, err)
        assert err.count(DASHES) == 2, err


def every_other_line_is_kept():
    between = (BOX % 75).replace("\n\n", "\n\nrank 1: out of memory\n")
    unfinished = DASHES + "\n" + BOX.splitlines()[1]
    table = f"{DASHES}\nstep  loss\n{DASHES}\n"
    for said, kept in ((BOX % 75, ""), ("a\n" + BOX % 4 + "b\n", "a\nb\n"), (BOX % 5, BOX % 5),
                       (BOX % 139, BOX % 139), (OTHER_BOX, OTHER_BOX), (between, between),
                       (unfinished, unfinished + "\n"), (OTHER_BOX + BOX % 2, OTHER_BOX),
                       (table, table), (table + BOX % 75, table), ("  x\ty  \\n", "  x\ty  \\n\n"),
                       ("no end of line", "no end of line\n"), ("", "")):
        text = FOLDER / "said"
        text.write_text(said, encoding="utf-8")
        mpirun = FOLDER / "mpirun"
        script_case.write_program(mpirun, f"#!/bin/sh\ncat {text} >&2\nexit 75\n")
        code, _, err = finish(start("exit75", EQUIPOISE_MPIRUN=str(mpirun)))
        assert (code, err) == (75, kept), (said, kept, err)


def lines_come_at_once():
    mpirun = FOLDER / "mpirun"
    script_case.write_program(mpirun, "#!/bin/sh\necho step 1 >&2\nexec sleep 100\n")
    process = start("wait", EQUIPOISE_MPIRUN=str(mpirun))
    assert process.stderr.readline() == "step 1\n" and process.poll() is None
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    finish(process)


def files_of_killed_runs_are_removed():
    """As real leftovers are, but for the process that keeps one in use: mapped, or listening."""
    host = os.uname().nodename.split(".")[0]
    shm = pathlib.Path("/dev/shm")
    old, used, young, foreign = (shm / f"sm_segment.{name}.0" for name in (
        f"{host}.{os.getuid()}.old", f"{host}.{os.getuid()}.used", f"{host}.{os.getuid()}.young",
        f"{host}-elsewhere.{os.getuid() + 1}.old"))
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    closed = socket.socket()
    closed.bind(("127.0.0.1", 0))  # bound, so nobody else takes it, but not listening
    folders = {}
    for name, port in (("dead", closed), ("alive", listener)):
        folders[name] = FOLDER / "tmp" / f"ompi.{name}"
        folders[name].mkdir(parents=True)
        (folders[name] / f"pmix.{host}.tool").write_text(
            f"prterun-{host}-1@0.0;tcp4://127.0.0.1:{port.getsockname()[1]}\n5.0\n")
    (FOLDER / "tmp" / "ompi.unknown").mkdir()
    paths = [old, used, young, foreign, *folders.values(), FOLDER / "tmp" / "ompi.unknown"]
    for path in (old, used, young, foreign):
        path.write_bytes(bytes(4096))
    for path in paths:
        if path != young:
            os.utime(path, (time.time() - 60,) * 2)
    with open(used, "r+b") as file, mmap.mmap(file.fileno(), 0):
        code, _, err = finish(start("exit0"))
    left = {path.name for path in paths if path.exists()}
    for path in (used, young, foreign):
        path.unlink()
    assert code == 0 and " files of killed runs" in err, err
    assert left == {path.name for path in paths} - {old.name, "ompi.dead"}, left


def arguments_pass_through():
    finish(start("-n", "2", "-m", "--oversubscribe", "exit0", "--set", "a.b=c d", "-n", ""))
    expected = "['train', 'exit0', '--set', 'a.b=c d', '-n', '']"
    assert started() == {0: expected, 1: expected}, started()


def options_of_mpirun():
    """No rank is bound to a core, unless it is asked for; other machines have the variables of the
    program, NCCL and CUDA, and no others."""
    mpirun = FOLDER / "mpirun"
    script_case.write_program(mpirun, f'#!/bin/sh\necho "$*" > {FOLDER}/options\n')
    (FOLDER / "hosts").write_text("localhost slots=4\n", encoding="utf-8")
    here = {"HF_HOME": "/h", "NCCL_DEBUG": "INFO", "HF_TOKEN": "secret"}
    for given, wanted in (([], "--bind-to none "),
                          (["-m", "--bind-to", "-m", "core"], "--bind-to core "),
                          (["--hostfile", FOLDER / "hosts"],
                           f"--hostfile {FOLDER}/hosts --bind-to none -x HF_HOME -x NCCL_DEBUG ")):
        finish(start(*given, "exit0", EQUIPOISE_MPIRUN=str(mpirun), **here))
        options = (FOLDER / "options").read_text(encoding="utf-8")
        assert options.removeprefix("-n 1 ").startswith(f"{wanted}{RANK} train"), options
    (FOLDER / "bin").mkdir(exist_ok=True)
    mpirun.rename(FOLDER / "bin/mpirun")
    (FOLDER / "options").unlink()
    finish(start("exit0", EQUIPOISE_MPIRUN="", EQUIPOISE_MPI=str(FOLDER)))
    assert (FOLDER / "options").exists(), "EQUIPOISE_MPI's mpirun"


def a_signal_becomes_a_request_to_stop():
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
        process = start("-n", "2", "wait")
        wait_ready(2)
        process.send_signal(name)
        code, _, err = finish(process)
        assert code == 75, (name, code, err)
        assert "saving, then stopping" in err, err


def the_terminals_interrupt_reaches_the_script_alone():
    process = start("-n", "2", "wait")
    wait_ready(2)
    os.killpg(process.pid, signal.SIGINT)
    code, _, err = finish(process)
    assert code == 75, (code, err)


def a_second_interrupt_ends_the_run():
    process = start("-n", "2", "stubborn")
    wait_ready(2)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    assert process.poll() is None
    began = time.time()
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code not in (0, 75), (code, err)
    assert time.time() - began < 100, "the ranks were not killed"


def a_hostfile_gives_a_rank_for_each_slot():
    hosts = FOLDER / "hosts"
    hosts.write_text("localhost slots=4\n", encoding="utf-8")
    for options, ranks in (([], 4), (["-n", "3"], 3)):
        code, _, err = finish(start("--hostfile", hosts, *options, "exit0"))
        assert code == 0 and sorted(started()) == list(range(ranks)), (started(), err)


def signals_and_exit_codes_with_a_hostfile():
    process = start("--hostfile", FOLDER / "hosts", "wait")
    wait_ready(4)
    process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 75, (code, err)


def a_hostfile_needs_ssh():
    tools = FOLDER / "tools"
    tools.mkdir()
    for name in ("bash", "dirname"):
        (tools / name).symlink_to(shutil.which(name))
    code, _, err = finish(start("--hostfile", FOLDER / "hosts", "exit0", PATH=str(tools)))
    assert code == 2 and "install openssh-client" in err, (code, err)


def bad_usage_is_exit_2():
    cases = [([], {}, "usage:"), (["-n", "2"], {}, "usage:"), (["-z", "c"], {}, "usage:"),
             (["-n", "0", "c"], {}, "-n 0: give a number"), (["-n", "x", "c"], {}, "-n x: give"),
             (["-n"], {}, "usage:"), (["--hostfile"], {}, "usage:"),
             (["--hostfile", "/no/such", "c"], {}, "--hostfile /no/such: cannot be read"),
             (["c"], {"program": "/no/such"}, "bazel build //trainer:equipoise"),
             (["c"], {"EQUIPOISE_MPIRUN": "/no/mpirun"},
              "EQUIPOISE_MPIRUN=/no/mpirun: no such program; give the path of an mpirun"),
             (["c"], {"EQUIPOISE_MPIRUN": str(FOLDER)}, f"EQUIPOISE_MPIRUN={FOLDER}: no such")]
    for arguments, options, expected in cases:
        code, out, err = finish(start(*arguments, **options))
        assert code == 2 and expected in err and not out, (arguments, code, out, err)


def main():
    script_case.write_program(RANK, script_case.RANK_PROGRAM)
    return script_case.run_cases([
        exit_codes_pass_through, the_box_of_an_expected_end_is_left_out, every_other_line_is_kept,
        lines_come_at_once, files_of_killed_runs_are_removed, arguments_pass_through,
        options_of_mpirun, a_signal_becomes_a_request_to_stop,
        the_terminals_interrupt_reaches_the_script_alone,
        a_second_interrupt_ends_the_run, a_hostfile_gives_a_rank_for_each_slot,
        signals_and_exit_codes_with_a_hostfile, a_hostfile_needs_ssh, bad_usage_is_exit_2])


if __name__ == "__main__":
    sys.exit(main())
