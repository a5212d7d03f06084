"""What can be seen of a run from outside, while it is going on."""
import glob
import os
import signal


def ranks_of(mpirun):
    """Process ids of the ranks of a running mpirun."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        try:
            with open(path) as stat:
                text = stat.read()
            with open(os.path.join(os.path.dirname(path), "cmdline"), "rb") as cmdline:
                program = cmdline.read().split(b"\0")[0]
        except OSError:
            continue
        parent = int(text.rsplit(")", 1)[1].split()[1])
        if parent == mpirun and program.endswith(b"equipoise"):
            found.append(int(text.split()[0]))
    return found


def steps_done(run_dir):
    try:
        with open(f"{run_dir}/metrics.jsonl", "rb") as file:
            return file.read().count(b"\n")
    except OSError:
        return 0


def half_saved(run_dir):
    """The folders of saves that are under way or were cut off, with the time of their last file."""
    found = {}
    for path in glob.glob(f"{run_dir}/checkpoints/.tmp-*"):
        try:
            found[path] = os.stat(path).st_ctime_ns
        except OSError:
            pass
    return found


def restarted(pid):
    """Whether the program has begun anew with the settings that it needs from the start."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return b"GOMP_SPINCOUNT=0" in file.read().split(b"\0")
    except OSError:
        return False


def usr1(pid):
    """What a SIGUSR1 meets: "held" (it waits), "caught" (a handler), or "deadly"."""
    with open(f"/proc/{pid}/status") as file:
        fields = dict(line.split(":", 1) for line in file)
    bit = 1 << (signal.SIGUSR1 - 1)
    if int(fields["SigCgt"], 16) & bit:
        return "caught"
    return "held" if int(fields["SigBlk"], 16) & bit else "deadly"
