"""scripts/schedule-picture: a step of a run, measured above predicted, from its trace."""

import json
import os
import re
import subprocess
import sys
import tempfile

# Two ranks; step 2 from 100 to 200 us, step 3 behind it.
SPANS = [  # process, lane, name, start and duration in us
    (0, "step", "step 2", 100, 100), (0, "compute", "0V0", 100, 30), (0, "compute", "1F0", 130, 40),
    (0, "wait", "wait 1R0<0", 170, 10), (0, "compute", "OPT", 190, 10),
    (0, "step", "step 3", 200, 100), (0, "compute", "1F0", 200, 90),
    (1, "compute", "0V0", 110, 20), (1, "compute", "1F0", 130, 40),
    (2, "compute", "2B0", 140, 50), (3, "compute", "2B0", 150, 40)]


def trace():
    lanes = {pid: sorted({lane for p, lane, *_ in SPANS if p == pid}) for pid in range(4)}
    events = [{"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": lane}}
              for pid, names in lanes.items() for tid, lane in enumerate(names)]
    events += [{"ph": "X", "name": name, "pid": pid, "tid": lanes[pid].index(lane), "ts": ts,
                "dur": dur} for pid, lane, name, ts, dur in SPANS]
    return {"traceEvents": events}


def main():
    with tempfile.TemporaryDirectory() as folder:
        with open(f"{folder}/trace.json", "w") as file:
            json.dump(trace(), file)
        command = [sys.executable, os.path.abspath("scripts/schedule-picture"), f"{folder}/out.svg"]
        done = subprocess.run([*command, "--trace", f"{folder}/trace.json", "2"],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        with open(f"{folder}/out.svg") as file:
            picture = file.read()
        assert subprocess.run(command, capture_output=True).returncode == 2
        # Step 3 has no predicted work; a run resumed behind a step does not hold it.
        for step, words in ((1, "step 1 is not in it; it holds steps 2 to 3, those since"),
                            (3, "step 3 has no predicted work; choose another step")):
            done = subprocess.run([*command, "--trace", f"{folder}/trace.json", str(step)],
                                  capture_output=True, text=True)
            assert done.returncode == 1, done
            assert done.stderr.startswith(f"{folder}/trace.json: {words}"), done.stderr
            assert len(done.stderr.splitlines()) == 1, done.stderr
    # Each panel begins at its first span; 100 us are 940 wide.
    assert re.findall(r'class="t">([^<]*)<', picture) == ["measured: 0.00 s", "predicted: 0.00 s"]
    drawn = re.findall(r'<rect x="([0-9.]+)" y="\d+" width="([0-9.]+)" height="17" fill="(#\w+)"',
                       picture)
    spans = [(float(x), float(width), fill) for x, width, fill in drawn if fill != "#eef1f5"]
    expected = [(60.0, 281.5, "#0d9488"), (342.0, 375.5, "#2563eb"), (906.0, 93.5, "#64748b"),
                (436.0, 469.5, "#d9480f"), (60.0, 187.5, "#0d9488"), (248.0, 375.5, "#2563eb"),
                (436.0, 375.5, "#d9480f")]
    assert spans == expected, spans
    print("1 passed, 0 failed")


main()
