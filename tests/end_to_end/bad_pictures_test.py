"""Pictures that fail only when decoded: some are borne, a step of nothing else is skipped on all
ranks alike, and too many end the run with exit 4."""
import glob
import json
import shutil
import sys
import tempfile

import tiny_case


def case(folder, spoilt, keep_texts=True):
    """A case whose first `spoilt` records with pictures have pictures that are cut short."""
    config = tiny_case.write_case(folder)
    with open(f"{folder}/train.jsonl") as file:
        records = [json.loads(line) for line in file]
    if not keep_texts:
        records = [r for r in records if "image" in r]
        with open(f"{folder}/train.jsonl", "w") as file:
            file.writelines(json.dumps(r) + "\n" for r in records)
    for record in [r for r in records if "image" in r][:spoilt]:
        for path in glob.glob(f"{folder}/images/{int(record['id'][1:]):04d}_*"):
            with open(path, "rb") as file:
                data = file.read()
            with open(path, "wb") as file:
                file.write(data[:len(data) * 6 // 10])
    return config


def some(results, folder):
    config = case(folder, spoilt=2)
    rows = {}
    for ranks in (1, 2):
        done = tiny_case.run(config, ranks, run__dir=f"{folder}/run{ranks}", train__steps=12,
                             data__max_bad_share=0.2)
        results.check(f"two bad pictures, {ranks} ranks: the run ends well", done.returncode == 0,
                      done.stderr[-500:])
        rows[ranks] = tiny_case.metrics(f"{folder}/run{ranks}")
    results.check("they are counted", rows[1][-1]["skipped_samples"] >= 2, str(rows[1][-1]))
    worst = max(abs(a["loss"] - b["loss"]) / a["loss"] for a, b in zip(rows[1], rows[2]))
    results.check("both numbers of ranks have the same losses", worst <= 1e-5, f"{worst:.2e}")
    with open(f"{folder}/run2/quarantine.jsonl") as file:
        results.check("each stands in the quarantine once", len(file.readlines()) == 2)
    done = tiny_case.run(config, 2, run__dir=f"{folder}/strict", data__max_bad_share=0.01)
    results.check("more than data.max_bad_share: exit 4", done.returncode == 4,
                  str(done.returncode))
    says = all(text in done.stderr for text in ("data.max_bad_share", "quarantine.jsonl"))
    results.check("more than data.max_bad_share: says so", says, done.stderr[-500:])


def all_of_them(results, folder):
    config = case(folder, spoilt=1000, keep_texts=False)
    settings = dict(train__steps=4, train__global_batch=2, checkpoint__every=2,
                    data__max_bad_share=1)
    done = tiny_case.run(config, 2, run__dir=f"{folder}/run", **settings)
    results.check("no picture decodes, all allowed: the run ends", done.returncode == 0,
                  done.stderr[-500:])
    rows = tiny_case.metrics(f"{folder}/run")
    results.check("a skipped step has no loss and no norm",
                  all("loss" not in row and "grad_norm" not in row for row in rows), str(rows[0]))
    results.check("it has its learning rate", rows[1]["lr"] > 0, str(rows[1]))
    results.check("all its samples are counted",
                  rows[-1]["skipped_samples"] == sum(row["samples"] for row in rows))
    with open(f"{folder}/run/checkpoints/latest/index.json") as file:
        state = json.load(file)["state"]
    results.check("the optimizer has made no step",
                  (state["step"], state["optimizer_step"]) == (4, 0), str(state))
    settings["data__max_bad_share"] = 0.05
    done = tiny_case.run(config, 2, run__dir=f"{folder}/stops", **settings)
    results.check("no picture decodes: exit 4", done.returncode == 4, str(done.returncode))


def main():
    results = tiny_case.Results()
    for name, run in (("some", some), ("all", all_of_them)):
        folder = tempfile.mkdtemp(prefix=name)
        run(results, folder)
        shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
