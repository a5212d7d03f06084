#!/usr/bin/env python3
"""Prices of ATen's kernels: what the trainer's operations are composed of beside what could be.

    python3 bench_ops.py [--device cuda] [--short] [--out FILE]

Prints lines `bench TAB operation TAB variant TAB microseconds TAB note`, and writes them as JSON. A
variant that this LibTorch or device does not have keeps its error as the note.
"""
import argparse
import dataclasses
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F

ATEN = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Sizes:
    rows: int
    hidden: int
    inner: int
    heads: int
    key_heads: int
    head: int
    segments: int
    tiles: int
    tile_rows: int
    tile_heads: int
    vocabulary: int
    trained: int
    chunks: tuple
    parameters: int
    square: int
    picture: int
    launches: int


# InternVL2-2B, a pack of 8,192 tokens with 20 tiles.
REAL = Sizes(8192, 2048, 8192, 16, 8, 128, 5, 20, 1025, 16, 92553, 2048, (256, 1024, 2048),
             200_000_000, 8192, 448, 2000)
SHORT = Sizes(64, 32, 64, 4, 2, 8, 3, 2, 17, 4, 101, 40, (8, 40), 4096, 64, 28, 20)


class Bench:
    def __init__(self, device, sizes, rounds):
        self.device, self.sizes, self.rounds = device, sizes, rounds
        self.rows = []

    def tensor(self, *shape, dtype=torch.bfloat16, grad=False):
        made = torch.randn(shape, device=self.device, dtype=torch.float32).to(dtype)
        return made.requires_grad_() if grad else made

    def seconds(self, work):
        """The median of some rounds, after two that warm up."""
        work()
        work()
        times = []
        for _ in range(self.rounds):
            if self.device == "cuda":
                begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
                torch.cuda.synchronize()
                begin.record()
                work()
                end.record()
                torch.cuda.synchronize()
                times.append(begin.elapsed_time(end) / 1e3)
            else:
                begin = time.perf_counter()
                work()
                times.append(time.perf_counter() - begin)
        return statistics.median(times)

    def add(self, operation, variant, work, flops=0, moved=0):
        """`work` makes what it needs and gives the function that is timed."""
        micros, note = None, ""
        try:
            seconds = self.seconds(work())
            micros = seconds * 1e6
            if flops:
                note = f"{flops / seconds / 1e12:.1f} TFLOP/s"
            if moved:
                note = f"{moved / seconds / 1e9:.0f} GB/s"
        except Exception as error:  # pylint: disable=broad-except
            note = f"{type(error).__name__}: " + (str(error).splitlines() or [""])[0][:90]
        if self.device == "cuda":
            torch.cuda.empty_cache()
        self.rows.append({"operation": operation, "variant": variant, "us": micros, "note": note})
        shown = "-" if micros is None else f"{micros:.1f}"
        print(f"bench\t{operation}\t{variant}\t{shown}\t{note}", flush=True)


def products(b):
    s = b.sizes

    def product(n, k, m):
        x, w = b.tensor(n, k), b.tensor(m, k)
        return lambda: x @ w.t()
    n = s.square
    b.add("product", f"{n} x {n} x {n}", lambda: product(n, n, n), flops=2 * n**3)
    for k, m in ((s.hidden, 2 * s.inner), (s.inner, s.hidden), (s.hidden, 2 * s.hidden)):
        b.add("product", f"{s.rows} x {k} x {m}", lambda k=k, m=m: product(s.rows, k, m),
              flops=2 * s.rows * k * m)

    def weight_gradient(variant):
        g, x = b.tensor(s.rows, s.inner), b.tensor(s.rows, s.hidden)
        total = b.tensor(s.inner, s.hidden, dtype=torch.float32)
        if variant == "bf16 product, added":
            return lambda: total.add_(g.t() @ x)
        if variant == "addmm.dtype_out":
            return lambda: ATEN.addmm.dtype_out(total, g.t(), x, torch.float32, out=total)
        return lambda: total.add_(ATEN.mm.dtype(g.t(), x, torch.float32))
    for variant in ("bf16 product, added", "addmm.dtype_out", "fp32 product, added"):
        b.add("weight gradient", variant, lambda v=variant: weight_gradient(v),
              flops=2 * s.rows * s.inner * s.hidden)


def norms(b):
    s = b.sizes
    x, g, w = b.tensor(s.rows, s.hidden), b.tensor(s.rows, s.hidden), b.tensor(s.hidden)
    moved = x.numel() * 2

    def composed():
        y = x.float()
        scale = y.square().mean(-1, True).add_(1e-6).rsqrt_()
        return y.mul(scale).to(x.dtype).mul(w)

    def composed_backward():
        y, grad = x.float(), g.float()
        scale = y.square().mean(-1, True).add_(1e-6).rsqrt_()
        normed = y.mul(scale)
        weighted = grad.mul(w.float())
        along = weighted.mul(normed).mean(-1, True)
        gradient = weighted.sub_(normed.mul(along)).mul_(scale).to(x.dtype)
        return gradient, grad.mul_(normed).sum(0)

    def fused_backward():
        scale = ATEN._fused_rms_norm(x, [s.hidden], w, 1e-6)[1]
        return lambda: ATEN._fused_rms_norm_backward(g, x, [s.hidden], scale, w, [True, True])
    b.add("RMSNorm", "composed in fp32", lambda: composed, moved=2 * moved)
    b.add("RMSNorm", "_fused_rms_norm",
          lambda: lambda: ATEN._fused_rms_norm(x, [s.hidden], w, 1e-6), moved=2 * moved)
    b.add("RMSNorm backward", "composed in fp32", lambda: composed_backward, moved=3 * moved)
    b.add("RMSNorm backward", "_fused_rms_norm_backward", fused_backward, moved=3 * moved)


def rotary(b):
    s = b.sizes
    heads = s.heads + s.key_heads
    joined = b.tensor(s.rows, heads * s.head)
    angles = torch.rand(s.rows, s.head // 2, device=b.device)
    cos, sin = angles.cos(), angles.sin()
    c, n = cos.unsqueeze(1), sin.unsqueeze(1)
    moved = 2 * 2 * joined.numel()

    def halves(t):
        pairs = t.view(s.rows, -1, 2, s.head // 2)
        return pairs.select(2, 0), pairs.select(2, 1)

    def composed(part):
        y = torch.empty_like(part)
        first, second = (half.float() for half in halves(part))
        low, high = halves(y)
        low.copy_(first.mul(c).sub_(second.mul(n)))
        high.copy_(second.mul(c).add_(first.mul(n)))
        return y

    def promoted(part):
        y = torch.empty_like(part)
        first, second = halves(part)
        low, high = halves(y)
        low.copy_(torch.addcmul(first.mul(c), second, n, value=-1))
        high.copy_(torch.addcmul(second.mul(c), first, n))
        return y
    q, k = (joined.narrow(1, 0, s.heads * s.head).contiguous(),
            joined.narrow(1, s.heads * s.head, s.key_heads * s.head).contiguous())
    b.add("rotary", "q, k, in fp32", lambda: lambda: (composed(q), composed(k)), moved=moved)
    b.add("rotary", "q and k joined, in fp32", lambda: lambda: composed(joined), moved=moved)
    b.add("rotary", "joined, promoted in the kernel", lambda: lambda: promoted(joined),
          moved=moved)


def cross_entropy(b):
    s = b.sizes
    x, w = b.tensor(s.trained, s.hidden), b.tensor(s.vocabulary, s.hidden)
    ids = torch.randint(s.vocabulary, (s.trained,), device=b.device)

    def chunked(rows, into_fp32):
        total = torch.zeros(s.vocabulary, s.hidden, device=b.device)

        def work():
            for begin in range(0, s.trained, rows):
                part, target = x[begin:begin + rows], ids[begin:begin + rows].unsqueeze(1)
                gradient = (part @ w.t()).float().softmax(-1)
                gradient.scatter_add_(1, target, torch.full_like(target, -1, dtype=torch.float32))
                gradient = gradient.to(x.dtype)
                gradient @ w
                if into_fp32:
                    ATEN.addmm.dtype_out(total, gradient.t(), part, torch.float32, out=total)
                else:
                    total.add_(gradient.t() @ part)
        return work
    flops = 6 * s.trained * s.vocabulary * s.hidden
    for rows in s.chunks:
        for into_fp32 in (False, True):
            b.add("head and loss", f"{rows} rows a chunk" + (", addmm.dtype_out" * into_fp32),
                  lambda r=rows, i=into_fp32: chunked(r, i), flops=flops)


def both_ways(work, leaves):
    """Forward and backward of a function of leaves."""
    gradient = torch.randn_like(work())

    def run():
        torch.autograd.grad(work(), leaves, gradient)
    return run


def attention(b):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    s = b.sizes
    ends = torch.linspace(0, s.rows, s.segments + 1, device=b.device).to(torch.int32)
    longest = int((ends[1:] - ends[:-1]).max())
    pairs = sum(int(n)**2 for n in ends[1:] - ends[:-1]) / 2

    def packed():
        q = b.tensor(s.rows, s.heads, s.head)
        k, v = (b.tensor(s.rows, s.key_heads, s.head) for _ in range(2))
        gradient = torch.randn_like(q)
        common = (ends, ends, longest, longest, 0.0, True)

        def work():
            out, sums, seed, unused, _ = ATEN._flash_attention_forward(q, k, v, *common, False)
            ATEN._flash_attention_backward(gradient, q, k, v, out, sums, *common, seed, unused)
        return work

    def packed_cudnn():
        q = b.tensor(s.rows, s.heads, s.head)
        k, v = (b.tensor(s.rows, s.key_heads, s.head) for _ in range(2))
        gradient = torch.randn_like(q)
        common = (ends, ends, longest, longest)

        def work():
            made = ATEN._cudnn_attention_forward(q, k, v, None, *common, True, 0.0, True, False)
            ATEN._cudnn_attention_backward(gradient, q, k, v, made[0], made[1], made[6], made[7],
                                           None, *common, 0.0, True)
        return work
    for name, work in (("flash, ends of segments", packed), ("cuDNN, ends of segments",
                                                             packed_cudnn)):
        b.add("packed attention, both ways", name, work,
              flops=3.5 * 4 * pairs * s.heads * s.head)

    def dense(backend, rows, batch, heads, key_heads, head, causal):
        q = b.tensor(batch, heads, rows, head, grad=True)
        k, v = (b.tensor(batch, key_heads, rows, head, grad=True) for _ in range(2))

        def forward():
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=causal,
                                                      enable_gqa=heads != key_heads)
        return both_ways(forward, (q, k, v))
    head = s.hidden // 2 // s.tile_heads
    kinds = (("flash", SDPBackend.FLASH_ATTENTION), ("cuDNN", SDPBackend.CUDNN_ATTENTION))
    for name, backend in kinds:
        b.add("attention of tiles, both ways", name,
              lambda k=backend: dense(k, s.tile_rows, s.tiles, s.tile_heads, s.tile_heads, head,
                                      False),
              flops=3.5 * 4 * s.tiles * s.tile_rows**2 * s.tile_heads * head)
        b.add("causal attention of one row, both ways", name,
              lambda k=backend: dense(k, s.rows, 1, s.heads, s.key_heads, s.head, True),
              flops=3.5 * 2 * s.rows**2 * s.heads * s.head)


def swiglu(b):
    s = b.sizes
    x, g = b.tensor(s.rows, 2 * s.inner), b.tensor(s.rows, s.inner)
    gate, up = x.narrow(1, 0, s.inner), x.narrow(1, s.inner, s.inner)

    def backward():
        result = torch.empty_like(x)
        torch.mul(g, F.silu(gate), out=result.narrow(1, s.inner, s.inner))
        ATEN.silu_backward.grad_input(g.mul(up), gate, grad_input=result.narrow(1, 0, s.inner))
    b.add("SwiGLU", "composed", lambda: lambda: F.silu(gate).mul_(up), moved=6 * g.numel())
    b.add("SwiGLU backward", "composed", lambda: backward, moved=10 * g.numel())


def optimizer(b):
    n = b.sizes.parameters

    def state():
        return [b.tensor(n, dtype=torch.float32) for _ in range(2)] + [
            torch.zeros(n, device=b.device) for _ in range(2)]

    def adamw(clip_first):
        weight, gradient, first, second = state()
        step, scale = (torch.ones((), device=b.device) for _ in range(2))
        found = torch.zeros((), device=b.device)

        def work():
            if clip_first:
                gradient.mul_(scale)
            ATEN._fused_adamw_([weight], [gradient], [first], [second], [], [step], lr=1e-4,
                               beta1=0.9, beta2=0.95, weight_decay=0.05, eps=1e-8, amsgrad=False,
                               maximize=False, grad_scale=None if clip_first else scale,
                               found_inf=None if clip_first else found)
        return work
    b.add("AdamW", "clipped in a pass of its own", lambda: adamw(True), moved=28 * n)
    b.add("AdamW", "clipped by grad_scale", lambda: adamw(False), moved=28 * n)

    def squares(variant):
        gradient = b.tensor(n, dtype=torch.float32)
        if variant == "fp64":
            return lambda: gradient.to(torch.float64).square_().sum()
        if variant == "vector_norm in fp64":
            return lambda: torch.linalg.vector_norm(gradient, dtype=torch.float64)
        return lambda: torch.linalg.vector_norm(gradient)
    for variant in ("fp64", "vector_norm in fp64", "vector_norm"):
        b.add("gradient norm", variant, lambda v=variant: squares(v), moved=4 * n)


def transfers(b):
    s = b.sizes

    def copy(pinned, dtype):
        host = torch.zeros(s.tiles, 3, s.picture, s.picture, dtype=dtype)
        host = host.pin_memory() if pinned else host
        device = torch.empty_like(host, device=b.device)
        return lambda: device.copy_(host, non_blocking=pinned)
    elements = s.tiles * 3 * s.picture**2
    b.add("host to device", "pageable, fp32", lambda: copy(False, torch.float32),
          moved=4 * elements)
    if b.device == "cuda":
        b.add("host to device", "pinned, fp32", lambda: copy(True, torch.float32),
              moved=4 * elements)
        b.add("host to device", "pinned, uint8", lambda: copy(True, torch.uint8), moved=elements)
        host = torch.zeros(s.tiles, 3, s.picture, s.picture)
        b.add("host to device", "to pin a micro-batch", lambda: host.pin_memory,
              moved=4 * elements)

    def copies():
        source = torch.empty(s.square * s.square // 2, device=b.device)
        target = torch.empty_like(source)
        return lambda: target.copy_(source)
    b.add("device to device", "copy", copies, moved=4 * s.square * s.square)

    small = b.tensor(64)

    def launches():
        for _ in range(s.launches):
            small.add_(1)
    b.add("launches", f"{s.launches} small additions", lambda: launches)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--short", action="store_true", help="small shapes")
    parser.add_argument("--out", help="file for the rows as JSON")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("bench_ops.py: --device cuda: torch sees no GPU; give --device cpu", file=sys.stderr)
        return 2
    torch.manual_seed(0)
    bench = Bench(args.device, SHORT if args.short else REAL, 3 if args.short else 15)
    for part in (products, norms, rotary, cross_entropy, attention, swiglu, optimizer, transfers):
        part(bench)
    if args.out:
        with open(args.out, "w", encoding="utf-8") as file:
            json.dump(bench.rows, file, indent=1)
    return 0 if any(row["us"] is not None for row in bench.rows) else 1


if __name__ == "__main__":
    sys.exit(main())
