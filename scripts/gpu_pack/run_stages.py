"""Runs the stages of a pack one after the other and writes the report; OUT/run starts it."""
import datetime
import json
import os
import pathlib
import signal
import sys
import tarfile
import time

import stages
from machine import FILE_LIMIT, Failed, Machine, Skipped, adopt_orphans

RESERVE_S = 10  # for the report
LIMIT_S = {"cuda": 570, "cpu": 7200}


def fail(text):
    print(f"run: {text}", file=sys.stderr)
    return 2


def time_of(stage, machine):
    """Seconds that a stage may take; a CPU is slower."""
    return stage.timeout_s * (1 if machine.on_gpu else 10)


def run_stage(stage, machine, end, found):
    """(status, seconds, note)"""
    begin = time.monotonic()
    if end - begin < 5:
        return "skipped", 0.0, "no time left"
    machine.end = min(begin + time_of(stage, machine), end)
    try:
        status, note = "passed", stage.work(machine, found)
    except Skipped as reason:
        status, note = "skipped", str(reason)
    except Failed as error:
        status, note = "FAILED", str(error)
    except Exception as error:  # pylint: disable=broad-except
        status, note = "FAILED", f"{type(error).__name__}: {error}"
    return status, time.monotonic() - begin, note


def cell(text):
    return " ".join(str(text).split()).replace("|", "/")


def table(rows):
    lines = ["| stage | result | s | what was seen |", "|---|---|---|---|"]
    lines += [f"| {name} | {status} | {seconds:.0f} | {cell(note)} |"
              for name, status, seconds, note in rows]
    return "\n".join(lines)


def report(machine, rows, found, title):
    text = [f"# {title}", "", table(rows), ""]
    for head, body in found.get("sections", []):
        text += [f"## {head}", "", body, ""]
    return "\n".join(text)


def pack_logs(machine):
    with tarfile.open(machine.results / "logs.tar.gz", "w:gz") as tar:
        tar.add(machine.logs, arcname="logs")
    for file in machine.results.iterdir():
        if file.stat().st_size > FILE_LIMIT:
            print(f"run: {file.name} is larger than 16 MiB and is removed", file=sys.stderr)
            file.unlink()


def chosen_stages(names):
    known = {stage.name: stage for stage in stages.STAGES}
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"EQUIPOISE_STAGES: there is no stage {unknown[0]!r}; there are "
                         + ", ".join(known))
    return [known[name] for name in names] or stages.STAGES


def main(words):
    # What was seen until then is packed, and what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    adopt_orphans()
    if len(words) != 1:
        return fail("takes no argument; see the head of the file")
    pack = pathlib.Path(words[0])
    device = os.environ.get("EQUIPOISE_DEVICE", "cuda")
    if device not in ("cpu", "cuda"):
        return fail(f"EQUIPOISE_DEVICE={device}: is cuda, the default, or cpu")
    try:
        limit = float(os.environ.get("EQUIPOISE_LIMIT_S", LIMIT_S[device]))
        chosen = chosen_stages([n for n in os.environ.get("EQUIPOISE_STAGES", "").split(",") if n])
        numbers = json.loads((pack / "pack.json").read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        return fail(str(error))
    results = pathlib.Path(os.environ.get("OUT") or pack / "results").resolve()
    results.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + limit
    machine = Machine(pack, results, device, numbers)
    if not machine.torch:
        machine.close()
        return fail("python3 has no torch; set EQUIPOISE_TORCH to LibTorch's folder")
    rows, found = [], {"sections": []}
    title = f"{datetime.date.today()}, pack of {numbers['commit'] or 'no commit'}"
    try:
        for stage in chosen:
            print(f"== {stage.name} ({time_of(stage, machine)} s at most)", flush=True)
            row = (stage.name, *run_stage(stage, machine, end - RESERVE_S, found))
            rows.append(row)
            print(f"   {row[1]} after {row[2]:.1f} s: {row[3]}", flush=True)
            # Written after each stage: whatever stops this program leaves what was seen.
            (results / "REPORT.md").write_text(
                report(machine, rows, found, found.get("device", device) + ", " + title),
                encoding="utf-8")
    finally:
        (results / "results.json").write_text(json.dumps(
            {"stages": rows, **{k: v for k, v in found.items() if k != "sections"}}, indent=1),
            encoding="utf-8")
        pack_logs(machine)
        machine.close()
    print("\n" + table(rows))
    return 1 if any(row[1] == "FAILED" for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
