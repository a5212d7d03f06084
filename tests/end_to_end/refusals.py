"""Runs that the program has to refuse."""
import subprocess
import time

import tiny_case

DEADLINE = 300  # seconds that a refusal may take on a machine that does much else


def our_lines(stderr):
    """What the program itself said: no log lines, nothing of mpirun's banner."""
    lines, in_banner = [], False
    for line in stderr.splitlines():
        if line.startswith("-----"):
            in_banner = not in_banner
        elif not in_banner and line.strip() and not (line[2:3] == ":" and line[5:6] == ":"):
            lines.append(line)
    return lines


class Cases:
    def __init__(self, results):
        self.results = results

    def refused(self, name, line, code, *words, **options):
        """Runs `line`; it has to end with `code` and one line that holds all `words`."""
        began = time.monotonic()
        try:
            done = tiny_case.execute(line, DEADLINE, stdin=subprocess.DEVNULL, **options)
        except subprocess.TimeoutExpired:
            self.results.check(name, False, f"still running after {DEADLINE} s")
            return
        ours = our_lines(done.stderr)
        faults = []
        if done.returncode != code:
            faults.append(f"exit {done.returncode}, not {code}")
        if len(ours) != 1 or not ours[0].removeprefix("[rank 0] ").startswith("equipoise: "):
            faults.append(f"{len(ours)} lines")
        faults += [f"'{word}' is not named" for word in words if word not in "\n".join(ours)]
        if done.stdout:
            faults.append(f"on stdout: {done.stdout[:80]!r}")
        faults += [f"'{sign}' is shown" for sign in ("c10::", "Exception raised", "frame #",
                                                     "terminate called", "/usr/include")
                   if sign in done.stderr]
        shown = "; ".join(faults) + "\n" + done.stderr[-1500:] if faults else \
            f"({time.monotonic() - began:.1f} s) {ours[0][:150]}"
        self.results.check(name, not faults, shown)
