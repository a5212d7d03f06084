"""The methods that scripts/bench/methods compares, one entry each.

A method is its difference from full training on two data ranks with whole state in fp32, as `--set`
words, and the way in which Transformers does the same, where it does. To add one, add an entry.
"""

import dataclasses

# The sections of adapters and of the frozen base. Other names for them are changed here.
ADAPTER, BASE = "model.adapter", "model.base"
RANK, ALPHA = 16, 32


@dataclasses.dataclass(frozen=True)
class Peer:
    """How Transformers does it: options of transformers_methods.py."""

    name: str
    options: tuple = ()


@dataclasses.dataclass(frozen=True)
class Method:
    name: str
    settings: dict = dataclasses.field(default_factory=dict)
    peer: Peer | None = None
    ranks: int = 2


def adapters(**more):
    """Low-rank adapters on every linear layer; `more` are other keys of their section."""
    keys = {"targets": "all-linear", "rank": RANK, "alpha": ALPHA} | more
    return {f"{ADAPTER}.{key}": value for key, value in keys.items()}


def peft(*options):
    return ("--adapter", "--rank", str(RANK), "--alpha", str(ALPHA), *options)


ZERO = "parallel.zero"
TENSOR = {"parallel.data": 1, "parallel.tensor": 2}
PIPELINE = {"parallel.data": 1, "parallel.pipeline": 2, "parallel.schedule": "1f1b"}
RECOMPUTE = {"balance.recompute": "full"}
FULL = "full training, ZeRO 0"
GPTQ_FOLDER = "{data}/base_gptq"  # the base by rounded_gptq.py

METHODS = [
    Method(FULL, {}, Peer("Transformers, DDP")),
    Method("full training, ZeRO 1", {ZERO: 1}),
    Method("full training, ZeRO 2", {ZERO: 2},
           Peer("Transformers, FSDP, weights kept until backward",
                ("--wrap", "fsdp", "--keep-gathered"))),
    Method("full training, ZeRO 3", {ZERO: 3}, Peer("Transformers, FSDP", ("--wrap", "fsdp"))),
    Method("full training, ZeRO 3, four ranks", {ZERO: 3, "parallel.data": 4}, ranks=4),
    Method("full training, ZeRO 3 within pairs, four ranks",
           {ZERO: 3, "parallel.data": 4, "parallel.zero_ranks": 2}, ranks=4),
    Method("full training, DiLoCo, two islands",
           {"parallel.data": 1, "train.diloco.islands": 2, "train.diloco.every": 4}),
    Method("full training, tensor 2", TENSOR),
    Method("full training, tensor 2, sequence parallelism",
           TENSOR | {"parallel.sequence": "true"}),
    Method("full training, context 2", {"parallel.data": 1, "parallel.context": 2}),
    Method("full training, pipeline 2", PIPELINE),
    Method("full training, pipeline 2, PipeDream-2BW",
           PIPELINE | {"parallel.schedule": "pipedream_2bw"}),
    Method("full training, recomputed", RECOMPUTE,
           Peer("Transformers, DDP, gradient checkpointing", ("--recompute",))),
    Method("full training, attention recomputed", {"balance.recompute": "attention"}),
    Method("full training, norms and activations recomputed",
           {"balance.recompute": "elementwise"}),
    Method("full training, optimizer offloaded", {"train.offload": "[optimizer]"}),
    Method("full training, bf16", {"train.precision": "bf16"},
           Peer("Transformers, DDP, bf16 autocast", ("--autocast",))),
    Method("full training, bf16, bf16 moments",
           {"train.precision": "bf16", "train.moments": "bf16"}),
    Method("full training, 8-bit moments", {"train.moments": "8bit"}),
    Method("full training, bf16, no masters, 8-bit moments",
           {"train.precision": "bf16", "train.master": "none", "train.moments": "8bit"}),
    Method("full training, fp16", {"train.precision": "fp16"}),
    Method("LoRA", adapters(), Peer("Transformers, peft LoRA, DDP", peft())),
    Method("rsLoRA", adapters(rslora="true"),
           Peer("Transformers, peft rsLoRA, DDP", peft("--rslora"))),
    Method("DoRA", adapters(dora="true"), Peer("Transformers, peft DoRA, DDP", peft("--dora"))),
    Method("LoRA, recomputed", adapters() | RECOMPUTE,
           Peer("Transformers, peft LoRA, DDP, gradient checkpointing", peft("--recompute"))),
    Method("LoRA, ZeRO 3", adapters() | {ZERO: 3},
           Peer("Transformers, peft LoRA, FSDP", peft("--wrap", "fsdp"))),
    Method("LoRA, tensor 2", adapters() | TENSOR),
    Method("LoRA, pipeline 2", adapters() | PIPELINE),
    Method("QLoRA, NF4 base", adapters() | {BASE: "nf4"},
           Peer("Transformers, peft QLoRA (bitsandbytes NF4), DDP", peft("--nf4"))),
    Method("QLoRA, NF4 base, tensor 2", adapters() | {BASE: "nf4"} | TENSOR),
    Method("LoRA, int8 base", adapters() | {BASE: "int8"}),
    Method("LoRA, GPTQ base", adapters() | {"model.hf": GPTQ_FOLDER}),
]
QUICK = [FULL, "LoRA"]  # of --quick


def trains_adapters(method):
    return any(key.startswith(ADAPTER + ".") for key in method.settings)
