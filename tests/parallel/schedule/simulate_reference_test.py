"""simulate_reference_test.py SIMULATE   times, activations and validity of known orders,
zero-bubble ones too, are those that schedules_gen.py finds."""
import json
import os
import random
import subprocess
import sys


def orders(gen):
    """(name, lists, stages, stage -> rank, chunks, micro-batches)"""
    for ranks in (1, 2, 3, 4, 6):
        for micro_batches in (1, 2, 3, 4, 6, 8, 12):
            for name, make, chunks in (("gpipe", gen.gpipe, 1), ("1f1b", gen.one_f_one_b, 1),
                                       ("zb_h1", gen.zb_h1, 1), ("zb_h2", gen.zb_h2, 1),
                                       ("zb_v", gen.zbv, 2)):
                yield (name, *make(ranks, micro_batches), chunks, micro_batches)
            if micro_batches % ranks == 0:
                for chunks in (2, 3):
                    yield ("interleaved", *gen.interleaved(ranks, micro_batches, chunks), chunks,
                           micro_batches)


def question(order, draw):
    _, lists, stages, rank_of, chunks, micro_batches = order
    seconds = {kind: [draw.uniform(0.5, 2) for _ in range(stages)] for kind in "FIW"}
    seconds["B"] = [i + w for i, w in zip(seconds["I"], seconds["W"])]
    # Shorter than any op: then no two transfers meet on a link, and waiting for a link, which the
    # reference does not know, does not happen.
    latency = draw.choice((0, draw.uniform(0, 0.5)))
    return {"rank_of": [rank_of(s) for s in range(stages)], "micro_batches": micro_batches,
            "ranks": lists, "seconds": seconds, "latency": latency, "kept": 1 / chunks}


def differences(gen, order, asked, answer):
    _, lists, stages, _, chunks, _ = order
    wanted = gen.simulate(lists, stages, lambda kind, s: asked["seconds"][kind][s],
                          comm=asked["latency"])
    close = lambda a, b: abs(a - b) <= 1e-9 * max(1, abs(b))
    if wanted["dead"] or answer["fault"]:
        yield f"dead {wanted['dead']}, fault {answer['fault']!r}"
    if not close(answer["step"], wanted["T"]):
        yield f"step {answer['step']}, wanted {wanted['T']}"
    for rank, ops in enumerate(lists):
        for op, end in zip(ops, answer["end"][rank]):
            if not close(end, wanted["end"][tuple(op)]):
                yield f"{op} ends at {end}, wanted {wanted['end'][tuple(op)]}"
        if not close(answer["busy"][rank], wanted["busy"][rank]):
            yield f"rank {rank} busy {answer['busy'][rank]}, wanted {wanted['busy'][rank]}"
    for rank, (kept, peak) in enumerate(zip(answer["peak"], gen.peak_inflight(lists, chunks))):
        if not close(kept, peak):
            yield f"rank {rank} keeps {kept}, wanted {peak}"


def main():
    fixtures = os.environ.get("EQUIPOISE_FIXTURES")
    reference = os.path.join(fixtures, "..", "research", "reference") if fixtures else ""
    if not os.path.exists(os.path.join(reference, "schedules_gen.py")):
        print("skipped: simulate_reference_test: no fixtures")
        return 0
    sys.dont_write_bytecode = True
    sys.path.insert(0, reference)
    import schedules_gen as gen
    draw = random.Random(5)
    asked = [(order, question(order, draw)) for order in orders(gen)]
    lines = "".join(json.dumps(q) + "\n" for _, q in asked)
    answers = subprocess.run([sys.argv[1]], input=lines, capture_output=True, text=True,
                             check=True).stdout.splitlines()
    if len(answers) != len(asked):
        print(f"{len(answers)} answers to {len(asked)} questions")
        return 1
    faults = {}  # schedule -> how many of its sizes differ; a schedule is a case
    for (order, q), line in zip(asked, answers):
        found = list(differences(gen, order, q, json.loads(line)))
        faults[order[0]] = faults.get(order[0], 0) + bool(found)
        for text in found[:3]:
            print(f"{order[0]} of {len(order[1])} ranks, {order[5]} micro-batches: {text}")
    failed = sum(count > 0 for count in faults.values())
    print(f"{len(faults) - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
