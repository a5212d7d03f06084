"""scripts/launch turns signals into a request to stop, and passes on arguments and exit codes."""
import os
import shutil
import signal
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


def arguments_pass_through():
    finish(start("-n", "2", "-m", "--oversubscribe", "exit0", "--set", "a.b=c d", "-n", ""))
    expected = "['train', 'exit0', '--set', 'a.b=c d', '-n', '']"
    assert started() == {0: expected, 1: expected}, started()


def a_signal_becomes_a_request_to_stop():
    for name in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
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
             (["c"], {"program": "/no/such"}, "bazel build //trainer:equipoise")]
    for arguments, options, expected in cases:
        code, out, err = finish(start(*arguments, **options))
        assert code == 2 and expected in err and not out, (arguments, code, out, err)


def main():
    script_case.write_program(RANK, script_case.RANK_PROGRAM)
    return script_case.run_cases([
        exit_codes_pass_through, arguments_pass_through, a_signal_becomes_a_request_to_stop,
        the_terminals_interrupt_reaches_the_script_alone, a_second_interrupt_ends_the_run,
        a_hostfile_gives_a_rank_for_each_slot, signals_and_exit_codes_with_a_hostfile,
        a_hostfile_needs_ssh, bad_usage_is_exit_2])


if __name__ == "__main__":
    sys.exit(main())
