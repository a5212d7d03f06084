"""orders_test.py PRINT_ORDERS   the orders of the builders are those of schedules_gen.py, which was
compared with PyTorch's own schedules."""
import os
import subprocess
import sys


def text(lists, micro_batches):
    """As print_orders writes them; micro-batches that are padding are left out."""
    return [" ".join(f"{stage}{kind}{m}" for kind, stage, m in ops if m < micro_batches)
            for ops in lists]


def cases(gen):
    for ranks in range(1, 9):
        for micro_batches in range(1, 17):
            yield ("gpipe", ranks, 1, micro_batches), gen.gpipe(ranks, micro_batches)[0]
            yield ("1f1b", ranks, 1, micro_batches), gen.one_f_one_b(ranks, micro_batches)[0]
            yield ("zb_h1", ranks, 1, micro_batches), gen.zb_h1(ranks, micro_batches)[0]
            yield ("zb_v", ranks, 2, micro_batches), gen.zbv(ranks, micro_batches)[0]
            padded = -(-micro_batches // ranks) * ranks
            for chunks in (1, 2, 3, 4):
                yield (("interleaved", ranks, chunks, micro_batches),
                       gen.interleaved(ranks, padded, chunks)[0])


def main():
    fixtures = os.environ.get("EQUIPOISE_FIXTURES")
    reference = os.path.join(fixtures, "..", "research", "reference") if fixtures else ""
    if not os.path.exists(os.path.join(reference, "schedules_gen.py")):
        print("skipped: orders_test: no fixtures")
        return 0
    sys.dont_write_bytecode = True
    sys.path.insert(0, reference)
    import schedules_gen
    wanted = list(cases(schedules_gen))
    questions = "".join(" ".join(map(str, case)) + "\n" for case, _ in wanted)
    answer = subprocess.run([sys.argv[1]], input=questions, capture_output=True, text=True,
                            check=True).stdout
    blocks = answer.split("\n\n")[:-1]
    if len(blocks) != len(wanted):
        print(f"{len(blocks)} schedules for {len(wanted)} questions")
        return 1
    wrong = {}  # schedule -> sizes of which the order is another; a schedule is a case
    for (case, lists), block in zip(wanted, blocks):
        faults = wrong.setdefault(case[0], [])
        if [line.strip() for line in block.split("\n")] != text(lists, case[3]):
            faults.append(case[1:])
    failed = sum(bool(faults) for faults in wrong.values())
    for name, faults in wrong.items():
        if faults:
            print(f"{name}: another order than schedules_gen.py with {faults}")
    print(f"{len(wrong) - failed} passed, {failed} failed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
