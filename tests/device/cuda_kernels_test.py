"""Every operation that training asks of a GPU has a kernel in LibTorch's library for CUDA."""
import subprocess
import sys

OPS, KERNELS = sys.argv[1:]
CPU_ALONE = "aten::_scaled_dot_product_flash_attention_for_cpu"


def main():
    ops = subprocess.run([OPS], check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    asked = subprocess.run([KERNELS], input="\n".join([*ops, CPU_ALONE]) + "\n",
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if asked.returncode == 3:
        print(f"skipped: {asked.stderr}\n0 passed, 0 failed, 1 skipped")
        return
    answers = dict(line.split(" ") for line in asked.stdout.splitlines())
    # The question itself: what has no such kernel is told.
    right = {"an operation of the CPU alone has none": answers.pop(CPU_ALONE) == "no",
             "training asks for many": len(ops) > 50,
             "flash attention is among them": "aten::_flash_attention_backward" in ops}
    right.update({op: answers.get(op) == "yes" for op in ops})
    for name, passed in right.items():
        if not passed:
            print(f"FAIL {name}")
    print(f"{sum(right.values())} passed, {len(right) - sum(right.values())} failed")
    sys.exit(not all(right.values()))


main()
