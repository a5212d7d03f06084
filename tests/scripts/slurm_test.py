"""scripts/slurm/train.sbatch, with stand-ins for srun and scontrol that work on this machine."""
import os
import signal
import subprocess
import sys

import script_case
from script_case import FOLDER, RANK, finish, started

BATCH = "scripts/slurm/train.sbatch"
RANKS = 2

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
    for name in ("srun", "scontrol"):
        (FOLDER / name).unlink(missing_ok=True)
    environment = dict(PATH=f"{FOLDER}/bin:{os.environ['PATH']}", SLURM_TEST=str(FOLDER),
                       SLURM_JOB_ID="42", SLURM_NTASKS=str(RANKS), SLURM_SUBMIT_DIR=os.getcwd(),
                       SLURM_NTASKS_PER_NODE=str(RANKS), SLURM_JOB_NODELIST="node[1-1]",
                       OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                       RANK_STOPS_BY="SIGUSR1 SIGTERM", REQUEUE_FAILS="")
    environment.update(extra)
    return script_case.start(BATCH, *arguments, **environment)


def calls(name):
    path = FOLDER / name
    return path.read_text(encoding="utf-8") if path.exists() else ""


def bash_reads_it():
    assert subprocess.run(["bash", "-n", BATCH], check=False).returncode == 0
    text = open(BATCH, encoding="utf-8").read()
    assert "#SBATCH --signal=B:USR1@600" in text
    # Slurm reads no option below the first command.
    assert text.rindex("\n#SBATCH") < text.index("\nset -uo")


def arguments_and_exit_codes_pass_through():
    for how in ("srun", "mpirun"):
        for code in (0, 2, 5, 75):
            found, _, err = finish(start(f"exit{code}", "--set", "a.b=c d", EQUIPOISE_START=how))
            assert found == code, (how, code, found, err)
            expected = f"['train', 'exit{code}', '--set', 'a.b=c d']"
            assert started() == {rank: expected for rank in range(RANKS)}, started()
            assert "requeue" not in calls("scontrol"), "nobody asked the job to stop"
        assert how == "mpirun" or calls("srun").startswith("--mpi=pmix ")


def a_signal_saves_and_requeues():
    for how in ("srun", "mpirun"):
        for name in (signal.SIGUSR1, signal.SIGTERM):
            process = start("wait", EQUIPOISE_START=how)
            script_case.wait_ready(RANKS)
            process.send_signal(name)
            code, _, err = finish(process)
            assert code == 75 and "saving, then stopping" in err, (how, name, code, err)
            assert "requeue 42" in calls("scontrol"), (how, err)


def a_job_that_saved_goes_on_from_there():
    """Not again from the checkpoint that its command names, but as long as nothing is saved."""
    saved = "slurm-42.saved"
    if os.path.exists(saved):
        os.unlink(saved)
    begin = ("--resume", "run/checkpoints/step-00000002", "--set", "a.b=c")
    for how, given in (("nothing saved", begin), ("nothing saved", ("--resume=x", *begin[2:]))):
        assert finish(start("exit5", *given))[0] == 5, how
        assert started()[0] == str(["train", "exit5", *given]), (how, started())
    process = start("wait", *begin)
    script_case.wait_ready(RANKS)
    process.send_signal(signal.SIGUSR1)
    assert finish(process)[0] == 75 and os.path.exists(saved)
    for given in (begin, ("--resume=x", *begin[2:]), (*begin[2:], "--resume")):
        assert finish(start("exit0", *given))[0] == 0
        assert started()[0] == "['train', 'exit0', '--set', 'a.b=c']", (given, started())
    os.unlink(saved)


def a_failed_requeue_is_told():
    process = start("wait", REQUEUE_FAILS="1")
    script_case.wait_ready(RANKS)
    process.send_signal(signal.SIGUSR1)
    code, _, err = finish(process)
    assert code == 2 and "submit it by hand" in err, (code, err)


def bad_usage_is_exit_2():
    cases = [([], {}, "no configuration"), (["c"], {"SLURM_JOB_ID": ""}, "not under Slurm"),
             (["c"], {"EQUIPOISE_PROGRAM": "/no/such"}, "/no/such is absent"),
             (["c"], {"EQUIPOISE_START": "mpirun", "SLURM_NTASKS_PER_NODE": ""},
              "no --ntasks-per-node, the ranks of a node; give it"),
             (["c"], {"EQUIPOISE_START": "ssh"}, "EQUIPOISE_START: ssh; use srun or mpirun")]
    for arguments, extra, expected in cases:
        code, out, err = finish(start(*arguments, **extra))
        assert code == 2 and expected in err and not out, (arguments, code, out, err)


def main():
    if "EQUIPOISE_MPIRUN" not in os.environ:
        print("skipped: //tests/scripts:slurm_test: no mpirun")
        return 0
    script_case.write_program(RANK, script_case.RANK_PROGRAM)
    script_case.write_program(FOLDER / "bin/srun", SRUN)
    script_case.write_program(FOLDER / "bin/scontrol", SCONTROL)
    return script_case.run_cases([
        bash_reads_it, arguments_and_exit_codes_pass_through, a_signal_saves_and_requeues,
        a_job_that_saved_goes_on_from_there, a_failed_requeue_is_told, bad_usage_is_exit_2])


if __name__ == "__main__":
    sys.exit(main())
