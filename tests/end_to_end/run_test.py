"""What a run leaves behind: trace, metrics, held-out loss, quarantine, report."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

import tiny_case


def spans_by_rank(run_dir):
    with open(f"{run_dir}/trace.json") as file:
        events = [e for e in json.load(file)["traceEvents"] if e["ph"] == "X"]
    measured, predicted = {}, {}
    for event in events:  # two processes a rank
        kind = predicted if event["pid"] % 2 else measured
        kind.setdefault(event["pid"] // 2, []).append(event)
    return measured, predicted


def named(events, beginning):
    return sorted((e for e in events if e["name"].startswith(beginning)), key=lambda e: e["ts"])


def check_trace(results, run_dir, ranks):
    """Buckets are reduced in one order on all ranks, and begin while backward is under way."""
    by_rank, predicted = spans_by_rank(run_dir)
    results.check("the trace has every rank, measured and predicted",
                  sorted(by_rank) == sorted(predicted) == list(range(ranks)))
    for rank in range(ranks):
        results.check(f"rank {rank}: the same passes are measured and predicted",
                      all([e["name"] for e in named(by_rank[rank], kind)] ==
                          [e["name"] for e in named(predicted[rank], kind)] for kind in
                          ("0F", "0B")))
    orders = []
    for rank, events in sorted(by_rank.items()):
        backward = named(events, "0B")[-1]
        begin, end = backward["ts"], backward["ts"] + backward["dur"]
        reductions = [e for e in events if "reduce" in e["name"] and begin <= e["ts"]]
        during = [e for e in reductions if e["ts"] < end]
        results.check(f"rank {rank}: reductions begin during the last backward", len(during) >= 2,
                      f"{len(during)} of {len(reductions)}")
        forward = named(events, "0F")
        results.check(f"rank {rank}: every micro-batch goes forward, then backward",
                      [e["name"][2:] for e in forward] ==
                      [e["name"][2:] for e in named(events, "0B")])
        orders.append([e["name"] for e in sorted(reductions, key=lambda e: e["ts"])])
    results.check("one order of reductions on all ranks", all(o == orders[0] for o in orders))


def check_kernels(results, run_dir, ranks, first, last):
    """Operators of a CPU's steps, backward's too: a Chrome trace of each rank, a table of all."""
    steps = last - first + 1
    with open(f"{run_dir}/kernels.txt") as file:
        tables = file.read().split("\n\n")
    results.check("kernels.txt has a table of each rank", len(tables) == ranks, str(len(tables)))
    for rank, table in enumerate(tables):
        with open(f"{run_dir}/kernels.{rank}.json") as file:
            events = [e for e in json.load(file)["traceEvents"] if e.get("cat") == "cpu_op"]
        names = {e["name"] for e in events}
        results.check(f"rank {rank}: operators of forward and backward are traced",
                      {"aten::mm", "aten::gelu", "aten::gelu_backward"} <= names, str(names))
        head, _, *rows, end = table.strip().split("\n")
        rows = [row.split(maxsplit=3) for row in rows]
        results.check(f"rank {rank}: the table is of steps {first} to {last}",
                      head == f"rank {rank}, steps {first} to {last}", head)
        results.check(f"rank {rank}: and has all of the trace, the longest first",
                      {row[3] for row in rows} == {name[:120] for name in names} and
                      sum(int(row[0]) for row in rows) == len(events) and
                      rows == sorted(rows, key=lambda row: -float(row[1])), table)
        shares = sum(float(row[2]) for row in rows)
        results.check(f"rank {rank}: shares add up", abs(shares - 100) < 0.01 * len(rows), table)
        told = re.match(r"busy (\S+) ms per step, idle (\S+) ms per step: thread", end)
        busy, idle = map(float, told.groups() if told else (0, 0))
        span = max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)
        results.check(f"rank {rank}: busy and idle are within the steps",
                      busy > 0 and idle >= 0 and busy + idle < span / 1000 / steps + 0.01, end)


def check_metrics(results, run_dir, left_out):
    rows = tiny_case.metrics(run_dir)
    wanted = ["step", "epoch", "loss", "grad_norm", "lr", "tokens", "samples", "images", "step_s",
              "tokens_per_s", "mem_peak_bytes", "rss_peak_bytes", "data_wait_s", "pad_ratio",
              "fill_share", "dist_ratio_vision", "dist_ratio_text", "skipped_samples"]
    results.check("each step has the keys that are known",
                  all([k for k in row if k not in ("eval_loss", "pause_s", "checkpoint_s")] ==
                      wanted for row in rows), str(rows[0]))
    results.check("all steps but the first have the pause before them, and a checkpoint in it",
                  all(("pause_s" in row) == ("checkpoint_s" in row) == (row is not rows[0])
                      for row in rows) and
                  all(row["pause_s"] >= row["checkpoint_s"] >= 0 for row in rows[1:]) and
                  [row["step"] for row in rows[1:] if row["checkpoint_s"] > 0] == [6], str(rows))
    trained, of = 0, 60  # usable records
    for row in rows:
        trained += row["samples"]
        results.check(f"step {row['step']}: samples so far as epochs",
                      abs(row["epoch"] - trained / of) < 1e-6, str(row["epoch"]))
    results.check("held-out loss every 4 steps and at the end",
                  [row["step"] for row in rows if "eval_loss" in row] == [4, 8, 10])
    held_out = [row["eval_loss"] for row in rows if "eval_loss" in row]
    results.check("and it falls", held_out[-1] < held_out[0], str(held_out))
    results.check("packs have no padding; fill_share is what tokens fill of them",
                  all(row["pad_ratio"] == 0 and
                      abs(row["fill_share"] - row["tokens"] / (8 * 128)) < 1e-8 for row in rows))
    results.check("records left out are counted",
                  all(row["skipped_samples"] == left_out for row in rows))


def add_bad_records(folder):
    """Three records that the index sees to be bad; returns their lines."""
    bad = ['{"id": "torn"', json.dumps({"id": "gone", "image": "gone.png", "conversations": [
        {"from": "human", "value": "<image>\nWhat is it?"}, {"from": "gpt", "value": "a disc"}]}),
           json.dumps({"id": "empty", "conversations": []})]
    with open(f"{folder}/train.jsonl") as file:
        good = file.read().splitlines()
    with open(f"{folder}/mixed.jsonl", "w") as file:
        file.write("\n".join(good[:10] + bad + good[10:]) + "\n")
    with open(f"{folder}/held_out.jsonl", "w") as file:
        file.write("\n".join(good[:20]) + "\n")


def check_run(results, folder, config):
    source = f"[{{annotations: {folder}/mixed.jsonl, images: {folder}/images}}]"
    held_out = f"[{{annotations: {folder}/held_out.jsonl, images: {folder}/images}}]"
    done = tiny_case.run(config, 2, train__steps=10, run__trace_steps=2, eval__every=4,
                         run__kernel_trace=1, data__train=source, data__eval=held_out,
                         eval__answers=held_out, eval__answer_samples=4,
                         parallel__bucket_bytes=4096,
                         train__deterministic="true")
    results.check("a run with bad records ends well", done.returncode == 0, done.stderr[-500:])
    results.check("and prints nothing on standard output", done.stdout == "", done.stdout)
    results.check("nor what libraries think of the machine", "ERROR:" not in done.stderr,
                  done.stderr)
    last = -1
    for line in ("2 ranks on cpu, fp32, 1 thread each", "600 s for a wait at most, deterministic",
                 "drawing random weights, seed 1", "probe: none, ",
                 "micro-batches an epoch (what a rank computes",
                 "packs by isf+, at most ", " tiles (chosen) and 128 tokens (data.max_tokens)",
                 "2 data ranks wait ", "; with random micro-batches of ",
                 "training: steps 1 to 10", "step 1/10  epoch ", "step 10/10  epoch ",
                 "done: 10 steps in "):
        at = done.stderr.find(line)
        results.check(f"says so in its turn: {line}", at > last, done.stderr[-900:])
        last = max(last, at)
    if done.returncode:
        return
    run_dir = f"{folder}/run"
    check_trace(results, run_dir, 2)
    check_kernels(results, run_dir, 2, 3, 3)
    check_metrics(results, run_dir, left_out=3)
    with open(f"{run_dir}/quarantine.jsonl") as file:
        lines = [json.loads(line) for line in file]
    results.check("the quarantine names the bad records", [line["line"] for line in lines] ==
                  [11, 12, 13], str(lines))
    with open(f"{run_dir}/report.html") as file:
        page = file.read()
    results.check("the report shows curves, pictures, quarantine and configuration",
                  all(text in page for text in ("<svg", "data:image/", "gone.png", "eval:")))
    results.check("and date, command, machine, plan, balance, memory by rank, answers by role",
                  all(text in page for text in (
                      " UTC", "equipoise train ", os.uname().nodename, "data 2 x pipeline 1",
                      "(pad)", "Memory by rank", "<td>1</td>", "Held out (data.eval)")))
    results.check("with a forecast for each rank", "<td>0</td><td>-</td>" not in page)
    for name in ("config.yaml", "trace.json", "checkpoints/latest", "log/rank-00001.log",
                 "answers.jsonl", "tensorboard"):
        results.check(f"{name} is there", os.path.exists(f"{run_dir}/{name}"))


def check_settings(results, config):
    settings = {"model.preset": "quickstart", "train.stepz": "5"}
    for key, value in settings.items():
        done = tiny_case.run(config, 2, "train", "--set", f"{key}={value}")
        told = [line for line in done.stderr.splitlines() if line.startswith("equipoise: ")]
        results.check(f"{key}={value} is refused by rank 0 alone", done.returncode == 2 and
                      len(told) == 1 and key in told[0], done.stderr[-300:])


def check_waiting_threads(results, folder):
    """The program starts itself again with the setting that libgomp reads when it is loaded."""
    line = [tiny_case.EQUIPOISE, "data", f"{folder}/model", "tokenize"]
    env = {k: v for k, v in tiny_case.environment().items()
           if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    found, deadline = False, time.monotonic() + 300
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                          env=env) as program:
        while not found and time.monotonic() < deadline and program.poll() is None:
            with open(f"/proc/{program.pid}/environ", "rb") as file:
                found = b"GOMP_SPINCOUNT=0" in file.read().split(b"\0")
            time.sleep(0.01)
        program.stdin.close()
        status = program.wait(timeout=300)
    results.check("waiting compute threads sleep", found and status == 0, f"exit {status}")


def check_starts(results, folder):
    """Only for settings that are missing: a start costs as much as most runs of a test."""
    line = [tiny_case.EQUIPOISE, "data", f"{folder}/model", "tokenize"]
    given = {**tiny_case.environment(), "GOMP_SPINCOUNT": "0",
             "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128"}
    missing = {k: v for k, v in given.items() if k != "GOMP_SPINCOUNT"}
    for env, name in ((given, "equipoise"), (missing, "exe")):  # of /proc/self/exe
        with subprocess.Popen(line, stdin=subprocess.DEVNULL, env=env) as program:
            os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)
            with open(f"/proc/{program.pid}/comm") as file:
                found = file.read().strip()
        results.check(f"starts itself again only where it must: {name}", found == name, found)


def check_version(results):
    done = tiny_case.execute([tiny_case.EQUIPOISE, "--version"])
    results.check("--version names the build", done.returncode == 0 and
                  re.fullmatch(r"equipoise, program [0-9a-f]{16}, LibTorch \d.*\n", done.stdout),
                  done.stdout + done.stderr)


def check_one_process(results, folder):
    line = [tiny_case.MPIRUN, "-n", "2", tiny_case.EQUIPOISE, "export", f"{folder}/run", "--out",
            f"{folder}/exported"]
    done = subprocess.run(line, capture_output=True, text=True, timeout=300,
                          env=tiny_case.environment())
    results.check("export under mpirun is refused", done.returncode == 2 and
                  done.stderr.count("without mpirun") == 1, done.stderr[-300:])
    results.check("and writes nothing", not os.path.exists(f"{folder}/exported"))


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="run")
    config = tiny_case.write_case(folder)
    add_bad_records(folder)
    check_run(results, folder, config)
    check_settings(results, config)
    check_one_process(results, folder)
    check_version(results)
    check_waiting_threads(results, folder)
    check_starts(results, folder)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
