"""Bad records do not stop a run: those that show at once are left out, a picture that fails when it
is decoded keeps its shape, all stand once in quarantine.jsonl; above a set share the run ends."""
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib

import tiny_case
from refusals import Cases

STEPS = 15
UNDECODABLE = (1, 6)  # records with one JPEG and one PNG: the head is whole, the body is cut


def talk(question, answer="red"):
    return [{"from": "human", "value": question}, {"from": "gpt", "value": answer}]


def png_head(width, height):
    body = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + body + struct.pack(">I", zlib.crc32(body))


def add_bad_records(folder):
    """Appends records that the index has to leave out; id -> a word of the expected reason."""
    images = f"{folder}/images"
    with open(f"{images}/bomb.png", "wb") as out:
        out.write(png_head(60000, 60000))
    with open(f"{images}/0001_0.jpg", "rb") as good, open(f"{images}/short.jpg", "wb") as out:
        out.write(good.read(30))
    with open(f"{images}/text.png", "w") as out:
        out.write("no picture")
    shutil.copy(f"{images}/0000_0.png", f"{folder}/outside.png")
    one = talk("<image>\nWhat is it?")
    records = {
        "types": ({"image": 7, "conversations": one}, "image"),
        "turns": ({"image": "0000_0.png", "conversations": "hello"}, "conversations"),
        "short": ({"image": "short.jpg", "conversations": one}, "short.jpg"),
        "bomb": ({"image": "bomb.png", "conversations": one}, "bomb.png"),
        "text": ({"image": "text.png", "conversations": one}, "text.png"),
        "missing": ({"image": "missing.png", "conversations": one}, "missing.png"),
        "outside": ({"image": "../outside.png", "conversations": one}, "../outside.png"),
        "absolute": ({"image": f"{folder}/outside.png", "conversations": one}, "outside.png"),
        "places": ({"image": "0000_0.png", "conversations": talk("<image> <image> <image> What?")},
                   "<image>"),
        "untrained": ({"conversations": talk("Hello? " * 400)}, "no answer"),
        "unanswered": ({"conversations": [{"from": "human", "value": "Hello?"}]}, "answer"),
    }
    with open(f"{folder}/train.jsonl", "a") as out:
        for name, (record, _) in records.items():
            out.write(json.dumps({"id": name, **record}) + "\n")
        out.write('{"id": "broken", "conversations": [{"from": \n')
    return {name: word for name, (_, word) in records.items()}


def cut(path):
    with open(path, "rb") as file:
        data = file.read()
    with open(path, "wb") as file:
        file.write(data[:len(data) * 7 // 10])


def drop_id(path, index):
    """Records need no id."""
    with open(path) as file:
        lines = file.readlines()
    record = json.loads(lines[index])
    del record["id"]
    lines[index] = json.dumps(record) + "\n"
    with open(path, "w") as file:
        file.writelines(lines)


def quarantine(run_dir):
    with open(f"{run_dir}/quarantine.jsonl") as lines:
        return [json.loads(line) for line in lines]


def shape(run_dir):
    return [(r["tokens"], r["samples"], r["images"]) for r in tiny_case.metrics(run_dir)]


def at_terminal(line):
    """What a run writes to standard error where that is a terminal."""
    terminal, stderr = os.openpty()
    with subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
                          env=tiny_case.environment()):
        os.close(stderr)
        text = b""
        try:
            while piece := os.read(terminal, 4096):
                text += piece
        except OSError:  # the last writer has gone
            pass
    os.close(terminal)
    return text


def check_index_defects(results, folder, config, reasons):
    run_dir = f"{folder}/index"
    done = tiny_case.run(config, 1, run__dir=run_dir, train__steps=STEPS)
    results.check("training goes on beside bad records", done.returncode == 0, done.stderr[-400:])
    told = [line for line in done.stderr.splitlines() if "left out" in line]
    results.check("one line tells how many are left out and where they are named", len(told) == 1
                  and f"{len(reasons) + 1} of {60 + len(reasons) + 1} records" in told[0]
                  and f"{run_dir}/quarantine.jsonl" in told[0], str(told))
    rows = quarantine(run_dir)
    by_id = {row["id"]: row for row in rows}
    for name, word in reasons.items():
        row = by_id.get(name)
        results.check(f"quarantined: {name}", row is not None and word in row["reason"]
                      and "step" not in row, str(row and row["reason"]))
    lines = [row["line"] for row in rows]
    results.check("the broken line too, and nothing else", len(rows) == len(reasons) + 1
                  and lines == list(range(61, 61 + len(rows))), str(lines))
    results.check("the metrics count them", {row["skipped_samples"] for row in
                                             tiny_case.metrics(run_dir)} == {len(rows)})
    done = subprocess.run([tiny_case.EQUIPOISE, "data", config, "check"], capture_output=True,
                          text=True, env=tiny_case.environment())
    results.check("`data check` lists them on stdout",
                  done.returncode == 0 and all(f":{line}" in done.stdout for line in lines),
                  done.stdout[-300:])
    return shape(run_dir)


def check_decode_failures(results, folder, config, planned, left_out):
    curves = {}
    for ranks in (1, 2, 4):
        run_dir = f"{folder}/decode{ranks}"
        done = tiny_case.run(config, ranks, run__dir=run_dir, train__steps=STEPS)
        results.check(f"{ranks} ranks: undecodable pictures do not stop it", done.returncode == 0,
                      done.stderr[-400:])
        curves[ranks] = tiny_case.metrics(run_dir)
        if ranks == 1:  # others may tell of theirs in their logs alone
            told = [f"train.jsonl:{i + 1}: {name}{i:04d}_0."
                    for i, name in zip(UNDECODABLE, ("r1: ", ""))]
            results.check("each is told with its id, where it has one",
                          all(place in done.stderr for place in told), done.stderr[-400:])
        results.check(f"{ranks} ranks: shapes are those planned", shape(run_dir) == planned)
        met = [row for row in quarantine(run_dir) if "step" in row]
        lines = sorted(row["line"] for row in met)
        results.check(f"{ranks} ranks: each stands once in the quarantine, with picture and step",
                      lines == [i + 1 for i in UNDECODABLE]
                      and all(f"{row['line'] - 1:04d}_0." in row["reason"] for row in met),
                      str(met))
    skipped = {ranks: [row["skipped_samples"] for row in rows] for ranks, rows in curves.items()}
    results.check("skipped_samples counts every meeting, on all ranks alike",
                  skipped[1] == skipped[2] == skipped[4] and
                  skipped[1][-1] > left_out + len(UNDECODABLE)
                  and skipped[1] == sorted(skipped[1]), str(skipped[1]))
    for ranks in (2, 4):
        worst = max(abs(a["loss"] - b["loss"]) / b["loss"]
                    for a, b in zip(curves[ranks], curves[1]))
        results.check(f"{ranks} ranks: losses equal those of one", worst <= 1e-5, f"{worst:.1e}")
    # The stage in the middle decodes no picture and knows of none that cannot be.
    run_dir = f"{folder}/decode_pipeline"
    done = tiny_case.run(config, 3, run__dir=run_dir, train__steps=STEPS, parallel__pipeline=3)
    results.check("3 pipeline ranks: bit-equal losses, the same quarantine",
                  done.returncode == 0 and tiny_case.losses(run_dir) ==
                  [row["loss"] for row in curves[1]]
                  and sorted(row["line"] for row in quarantine(run_dir)) ==
                  sorted(row["line"] for row in quarantine(f"{folder}/decode1")),
                  done.stderr[-300:])
    # Going on does not enter them again.
    run_dir = f"{folder}/decode2"
    before = quarantine(run_dir)
    done = tiny_case.run(config, 2, run__dir=run_dir, train__steps=STEPS + 10)
    results.check("after a resume they still stand once", done.returncode == 0
                  and quarantine(run_dir) == before, done.stderr[-300:])


def check_share(results, folder, config, index_bad):
    cases = Cases(results)
    records = 60 + index_bad
    low = (index_bad - 0.5) / records
    cases.refused("too many defects in the index",
                  tiny_case.command(config, 1, run__dir=f"{folder}/low",
                                    data__max_bad_share=low), 4,
                  f"{index_bad} of {records}", "data.max_bad_share")
    between = (index_bad + 0.5) / records
    for ranks in (1, 2):
        cases.refused(f"too many once pictures fail to decode, {ranks} ranks",
                      tiny_case.command(config, ranks, run__dir=f"{folder}/between{ranks}",
                                        data__max_bad_share=between), 4,
                      f"{index_bad + 1} of {records}", "data.max_bad_share", "quarantine.jsonl")
    text = at_terminal(tiny_case.command(config, 1, run__dir=f"{folder}/terminal",
                                         data__max_bad_share=between))
    results.check("at a terminal the refusal takes the live line's place",
                  b"step 1/" in text and b"\r\033[Kequipoise: " in text, str(text[-300:]))
    with open(f"{folder}/train.jsonl") as file:
        lines = file.readlines()
    with open(f"{folder}/all_bad.jsonl", "w") as out:
        out.writelines(lines[60:])
    source = f"[{{annotations: {folder}/all_bad.jsonl, images: {folder}/images}}]"
    for ranks in (1, 2):
        cases.refused(f"no usable record at all, {ranks} ranks",
                      tiny_case.command(config, ranks, run__dir=f"{folder}/none{ranks}",
                                        data__train=source, data__max_bad_share=1), 4,
                      "no record can be used")


def main():
    results = tiny_case.Results()
    folder = os.path.realpath(tempfile.mkdtemp(prefix="bad_data"))
    config = tiny_case.write_case(folder)
    drop_id(f"{folder}/train.jsonl", UNDECODABLE[1])
    reasons = add_bad_records(folder)
    with open(config) as file:
        text = file.read()
    with open(config, "w") as file:
        file.write(text.replace("max_tokens: 128", "max_tokens: 128\n  max_bad_share: 0.4"))
    planned = check_index_defects(results, folder, config, reasons)
    for i in UNDECODABLE:
        cut(f"{folder}/images/{i:04d}_0.{'jpg' if i % 2 else 'png'}")
    check_decode_failures(results, folder, config, planned, len(reasons) + 1)
    check_share(results, folder, config, len(reasons) + 1)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
