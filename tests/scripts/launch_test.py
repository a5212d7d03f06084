"""scripts/launch turns signals into a request to stop, and passes on arguments and exit codes."""
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

LAUNCH = "scripts/launch"
FOLDER = tempfile.mkdtemp()
DEADLINE_S = 300

# In place of the trainer: says that it is ready, then does what its first argument names.
RANK = """
    import os, signal, sys, time
    folder, what = os.environ["LAUNCH_TEST"], sys.argv[2]
    asked = []
    signal.signal(signal.SIGUSR1, lambda *_: asked.append(1))
    open(f"{folder}/ready.{os.environ['OMPI_COMM_WORLD_RANK']}", "w").write(repr(sys.argv[1:]))
    if what.startswith("exit"):
        sys.exit(int(what[4:]))
    end = time.time() + 200
    while time.time() < end and (what == "stubborn" or not asked):
        time.sleep(0.02)
    sys.exit(75 if asked else 1)
"""


def start(*arguments, program=None):
    """Runs scripts/launch in a process group of its own, as a terminal would."""
    for name in os.listdir(FOLDER):
        if name.startswith("ready"):
            os.remove(f"{FOLDER}/{name}")
    environment = dict(os.environ, LAUNCH_TEST=FOLDER, HOME=os.environ.get("HOME", FOLDER),
                       EQUIPOISE_PROGRAM=program or f"{FOLDER}/rank")
    return subprocess.Popen([LAUNCH, *arguments], env=environment, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_ready(ranks):
    end = time.time() + DEADLINE_S
    while time.time() < end:
        if all(os.path.exists(f"{FOLDER}/ready.{rank}") for rank in range(ranks)):
            time.sleep(0.2)
            return
        time.sleep(0.05)
    raise TimeoutError("the ranks did not start")


def finish(process):
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out, err


def exit_codes_pass_through():
    for code in (0, 2, 5, 75):
        found = finish(start("-n", "2", f"exit{code}"))[0]
        assert found == code, (code, found)


def arguments_pass_through():
    finish(start("-n", "2", "-m", "--oversubscribe", "exit0", "--set", "a.b=c d", "-n", ""))
    for rank in range(2):
        found = open(f"{FOLDER}/ready.{rank}").read()
        assert found == "['train', 'exit0', '--set', 'a.b=c d', '-n', '']", found
    assert not os.path.exists(f"{FOLDER}/ready.2")


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
    hosts = f"{FOLDER}/hosts"
    with open(hosts, "w", encoding="utf-8") as file:
        file.write("localhost slots=4\n")
    for options, ranks in (([], 4), (["-n", "3"], 3)):
        code, _, err = finish(start("--hostfile", hosts, *options, "exit0"))
        found = sorted(name for name in os.listdir(FOLDER) if name.startswith("ready"))
        assert code == 0 and found == [f"ready.{rank}" for rank in range(ranks)], (found, err)


def signals_and_exit_codes_with_a_hostfile():
    process = start("--hostfile", f"{FOLDER}/hosts", "wait")
    wait_ready(4)
    process.send_signal(signal.SIGTERM)
    code, _, err = finish(process)
    assert code == 75, (code, err)


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
    with open(f"{FOLDER}/rank", "w", encoding="utf-8") as program:
        program.write("#!/usr/bin/python3\n" + textwrap.dedent(RANK))
    os.chmod(f"{FOLDER}/rank", 0o755)
    tests = [exit_codes_pass_through, arguments_pass_through, a_signal_becomes_a_request_to_stop,
             the_terminals_interrupt_reaches_the_script_alone, a_second_interrupt_ends_the_run,
             a_hostfile_gives_a_rank_for_each_slot, signals_and_exit_codes_with_a_hostfile,
             bad_usage_is_exit_2]
    failed = 0
    for test in tests:
        try:
            test()
        except Exception as error:  # pylint: disable=broad-except
            failed += 1
            print(f"FAILED {test.__name__}: {error!r}")
    print(f"{len(tests) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
