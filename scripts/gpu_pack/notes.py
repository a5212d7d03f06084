"""What stages share: tables, losses beside others, notes."""
import subprocess

from machine import Failed

# How far losses may be from those of another device or mesh, relative: the first one, before any
# step, and all of them. AdamW's first steps go by the sign of a gradient, so that rounding spreads:
# 30 steps of the quickstart in bf16 are 2e-5 and 2e-3 from those in fp32.
BOUNDS = {"fp32": (1e-5, 5e-3), "bf16": (2e-3, 2e-2)}


def markdown(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows])


def losses_of(rows):
    return [rows[step]["loss"] for step in sorted(rows)]


def apart(losses, expected):
    """The largest relative differences: of the first loss, of all."""
    pairs = list(zip(losses, expected))
    every = [abs(a - b) / max(abs(b), 1e-12) for a, b in pairs]
    return every[0], max(every)


def compare(name, losses, expected, precision, wrong):
    """Words for the note; what is outside the bounds is added to `wrong`."""
    if len(losses) != len(expected):
        wrong.append(f"{name}: {len(losses)} steps, not {len(expected)}")
        return f"{name}: {len(losses)} steps"
    first, largest = apart(losses, expected)
    if not (first <= BOUNDS[precision][0] and largest <= BOUNDS[precision][1]):
        wrong.append(f"{name}: losses are off by {first:.1e} and {largest:.1e}")
    return f"{name}: {first:.1e}, {largest:.1e}"


def finish(notes, wrong):
    if wrong:
        raise Failed("; ".join(wrong) + (f" ({'; '.join(notes)})" if notes else ""))
    return "; ".join(notes)


def answer(*command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        return (done.stdout + done.stderr).strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{command[0]}: {error}"
