"""scripts/slurm/train.sbatch, with stand-ins for srun and scontrol that work on this machine."""
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

BATCH = "scripts/slurm/train.sbatch"
FOLDER = tempfile.mkdtemp()
DEADLINE_S = 120
RANKS = 2

# In place of the trainer: as in launch_test.
RANK = """
    import os, signal, sys, time
    folder, what = os.environ["SLURM_TEST"], sys.argv[2]
    asked = []
    for name in (signal.SIGUSR1, signal.SIGTERM):
        signal.signal(name, lambda *_: asked.append(1))
    open(f"{folder}/ready.{os.environ['OMPI_COMM_WORLD_RANK']}", "w").write(repr(sys.argv[1:]))
    if what.startswith("exit"):
        sys.exit(int(what[4:]))
    end = time.time() + 60
    while time.time() < end and not asked:
        time.sleep(0.02)
    sys.exit(75 if asked else 1)
"""

# As srun does, it starts the job's tasks, here all on this machine, and passes signals on.
SRUN = """
    #!/usr/bin/env bash
    echo "$*" > "$SLURM_TEST/srun"
    while [[ $1 == --* ]]; do shift; done
    exec "$EQUIPOISE_MPIRUN" -n "$SLURM_NTASKS" "$@"
"""
SCONTROL = """
    #!/usr/bin/env bash
    echo "$*" >> "$SLURM_TEST/scontrol"
    case $1 in
      show) echo localhost ;;
      requeue) [ -z "$REQUEUE_FAILS" ] ;;
    esac
"""


def start(*arguments, **extra):
    for name in os.listdir(FOLDER):
        if name.startswith(("ready", "srun.", "scontrol.")) or name in ("srun", "scontrol"):
            os.remove(f"{FOLDER}/{name}")
    environment = dict(os.environ, PATH=f"{FOLDER}/bin:{os.environ['PATH']}", SLURM_TEST=FOLDER,
                       SLURM_JOB_ID="42", SLURM_NTASKS=str(RANKS), SLURM_SUBMIT_DIR=os.getcwd(),
                       SLURM_NTASKS_PER_NODE=str(RANKS), SLURM_JOB_NODELIST="node[1-1]",
                       EQUIPOISE_PROGRAM=f"{FOLDER}/rank", HOME=os.environ.get("HOME", FOLDER),
                       OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       REQUEUE_FAILS="")
    environment.update(extra)
    return subprocess.Popen([BATCH, *arguments], env=environment, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True, start_new_session=True)


def wait_ready():
    end = time.time() + DEADLINE_S
    while not all(os.path.exists(f"{FOLDER}/ready.{rank}") for rank in range(RANKS)):
        if time.time() > end:
            raise TimeoutError("the ranks did not start")
        time.sleep(0.05)
    time.sleep(0.2)


def finish(process):
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out, err


def calls(name):
    path = f"{FOLDER}/{name}"
    return open(path, encoding="utf-8").read() if os.path.exists(path) else ""


def bash_reads_it():
    assert subprocess.run(["bash", "-n", BATCH], check=False).returncode == 0
    text = open(BATCH, encoding="utf-8").read()
    assert "#SBATCH --signal=B:USR1@120" in text
    # Slurm reads no option below the first command.
    assert text.rindex("\n#SBATCH") < text.index("\nset -uo")


def arguments_and_exit_codes_pass_through():
    for how in ("srun", "mpirun"):
        for code in (0, 2, 5, 75):
            found, _, err = finish(start(f"exit{code}", "--set", "a.b=c d", EQUIPOISE_START=how))
            assert found == code, (how, code, found, err)
            for rank in range(RANKS):
                assert calls(f"ready.{rank}") == f"['train', 'exit{code}', '--set', 'a.b=c d']"
            assert "requeue" not in calls("scontrol"), "nobody asked the job to stop"
        assert how == "mpirun" or calls("srun").startswith("--mpi=pmix ")


def a_signal_saves_and_requeues():
    for how in ("srun", "mpirun"):
        for name in (signal.SIGUSR1, signal.SIGTERM):
            process = start("wait", EQUIPOISE_START=how)
            wait_ready()
            process.send_signal(name)
            code, _, err = finish(process)
            assert code == 75 and "saving, then stopping" in err, (how, name, code, err)
            assert "requeue 42" in calls("scontrol"), (how, err)


def a_failed_requeue_is_told():
    process = start("wait", REQUEUE_FAILS="1")
    wait_ready()
    process.send_signal(signal.SIGUSR1)
    code, _, err = finish(process)
    assert code == 2 and "submit it by hand" in err, (code, err)


def bad_usage_is_exit_2():
    cases = [([], {}, "no configuration"), (["c"], {"SLURM_JOB_ID": ""}, "not under Slurm"),
             (["c"], {"EQUIPOISE_PROGRAM": "/no/such"}, "/no/such is absent"),
             (["c"], {"EQUIPOISE_START": "ssh"}, "EQUIPOISE_START: ssh; use srun or mpirun")]
    for arguments, extra, expected in cases:
        code, out, err = finish(start(*arguments, **extra))
        assert code == 2 and expected in err and not out, (arguments, code, out, err)


def write_program(path, text):
    with open(path, "w", encoding="utf-8") as program:
        program.write(textwrap.dedent(text).lstrip())
    os.chmod(path, 0o755)


def main():
    if "EQUIPOISE_MPIRUN" not in os.environ:
        print("skipped: //tests/scripts:slurm_test: no mpirun")
        return 0
    os.mkdir(f"{FOLDER}/bin")
    write_program(f"{FOLDER}/rank", "#!/usr/bin/python3\n" + textwrap.dedent(RANK))
    write_program(f"{FOLDER}/bin/srun", SRUN)
    write_program(f"{FOLDER}/bin/scontrol", SCONTROL)
    tests = [bash_reads_it, arguments_and_exit_codes_pass_through, a_signal_saves_and_requeues,
             a_failed_requeue_is_told, bad_usage_is_exit_2]
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
