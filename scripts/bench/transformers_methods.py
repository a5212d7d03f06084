"""Trains with Transformers, peft, DDP or FSDP what scripts/bench/methods trains: the same weights,
the same packs in the same steps on the same ranks, the same loss and AdamW. Prints one JSON object.

Made as a careful user of that stack would: SDPA, packed rows (Transformers reads their limits from
the positions), fused AdamW, gradients as views of DDP's buckets and reduced with the last
micro-batch alone, batches made beforehand. The loss is the sum over the global batch's targets.
"""

import argparse
import contextlib
import json
import os
import re
import socket
import sys
import time

import own_network

IGNORED = -100


def peak_rss():
    """Of this process since it began, in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        return 1024 * int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1])


class Records:
    """The records' samples as tokens, labels and a picture's tile."""

    def __init__(self, args, config):
        from tokenizers import Tokenizer
        from transformers.models.got_ocr2.image_processing_got_ocr2 import GotOcr2ImageProcessor

        with open(args.records, encoding="utf8") as lines:
            self.records = [json.loads(line) for line in lines]
        self.images = args.images
        self.tokenizer = Tokenizer.from_file(os.path.join(args.model, "tokenizer.json"))
        side = config.vision_config.image_size[0]
        self.picture = "<img>" + "<IMG_CONTEXT>" * config.image_seq_length + "</img>"
        self.processor = GotOcr2ImageProcessor(size={"height": side, "width": side},
                                               crop_to_patches=False)

    def pieces(self, record):
        """(text, trained) in ChatML."""
        for turn in record["conversations"]:
            if turn["from"] == "human":
                text = turn["value"].replace("<image>", self.picture)
                yield f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n", False
            else:
                yield turn["value"] + "<|im_end|>", True
                yield "\n", False

    def sample(self, number):
        ids, labels = [], []
        for text, trained in self.pieces(self.records[number]):
            piece = self.tokenizer.encode(text, add_special_tokens=False).ids
            ids += piece
            labels += piece if trained else [IGNORED] * len(piece)
        return ids, labels, self.tile(self.records[number])

    def tile(self, record):
        from PIL import Image

        if not record.get("image"):
            return None
        with Image.open(os.path.join(self.images, record["image"])) as picture:
            made = self.processor(picture.convert("RGB"), return_tensors="pt")
        return made["pixel_values"]

    def pack(self, row):
        """A line of `data groups` as the model's inputs: one row of tokens without padding."""
        import torch

        samples = [self.sample(number) for number in row["samples"]]
        ids = [token for one in samples for token in one[0]]
        if len(ids) != row["tokens"]:
            sys.exit(f"pack of {row['samples']}: {len(ids)} tokens here, {row['tokens']} there")
        labels = [label for one in samples for label in one[1]]
        positions = [place for one in samples for place in range(len(one[0]))]
        batch = {"input_ids": torch.tensor([ids]), "labels": torch.tensor([labels]),
                 "position_ids": torch.tensor([positions])}
        tiles = [one[2] for one in samples if one[2] is not None]
        return batch | ({"pixel_values": torch.cat(tiles)} if tiles else {})


def read_steps(args, config, rank):
    """This rank's packs by step, and the number of targets of each step on all ranks."""
    records = Records(args, config)
    with open(args.packs, encoding="utf8") as lines:
        rows = [json.loads(line) for line in lines]
    packs, targets = [[] for _ in range(args.steps)], [0] * args.steps
    for row in rows:
        if row["step"] >= args.steps:
            continue
        batch = records.pack(row)
        targets[row["step"]] += int((batch["labels"] != IGNORED).sum())
        if row["data_rank"] == rank:
            packs[row["step"]].append(batch)
    return packs, targets


def make_model(args):
    import torch
    from transformers import AutoModelForImageTextToText

    more = {}
    if args.nf4:
        from transformers import BitsAndBytesConfig

        # As Equipoise's: the language model's layers alone.
        more["quantization_config"] = BitsAndBytesConfig(
            load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.float32,
            llm_int8_skip_modules=["vision_tower", "multi_modal_projector", "lm_head"])
    model = AutoModelForImageTextToText.from_pretrained(
        args.model, dtype=torch.float32, attn_implementation="sdpa", **more)
    model.config.use_cache = False
    if args.adapter:
        from peft import LoraConfig, get_peft_model

        model = get_peft_model(model, LoraConfig(
            r=args.rank, lora_alpha=args.alpha, target_modules="all-linear", lora_dropout=0.0,
            use_rslora=args.rslora, use_dora=args.dora))
    if args.recompute:
        inner = model.get_base_model() if args.adapter else model
        inner.gradient_checkpointing_enable({"use_reentrant": False})
    return model.train()


def blocks_of(model):
    names = re.compile(r".*(language_model\.layers|encoder\.layer)\.\d+")
    return [module for name, module in model.named_modules() if names.fullmatch(name)]


def wrap(args, model):
    """The model on all ranks, and a function that says whether a backward reduces gradients."""
    if args.wrap == "fsdp":
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        mesh = init_device_mesh("cpu", (args.ranks,))
        blocks = blocks_of(model)
        assert blocks, "no blocks to shard"
        for module in [*blocks, model]:
            fully_shard(module, mesh=mesh, reshard_after_forward=not args.keep_gathered)
        return model, lambda last: contextlib.nullcontext()
    from torch.nn.parallel import DistributedDataParallel

    model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    return model, lambda last: contextlib.nullcontext() if last else model.no_sync()


def make_optimizer(args, model):
    import torch

    trained = [weight for weight in model.parameters() if weight.requires_grad]
    groups = [{"params": [w for w in trained if w.ndim >= 2], "weight_decay": args.weight_decay},
              {"params": [w for w in trained if w.ndim < 2], "weight_decay": 0.0}]
    groups = [group for group in groups if group["params"]]
    betas = (args.beta1, args.beta2)
    return trained, torch.optim.AdamW(groups, lr=args.lr, betas=betas, eps=args.eps, fused=True)


class Clock:
    """Seconds and sent bytes between two barriers."""

    def __init__(self, distributed):
        self.distributed = distributed

    def now(self):
        self.distributed.barrier()
        return time.monotonic(), own_network.sent_bytes()


def run_steps(args, model, reducing, packs, targets):
    """The loss of each step, and (seconds, bytes) before and after the timed ones."""
    import torch
    import torch.distributed as dist

    trained, optimizer = make_optimizer(args, model)
    clock, losses, marks = Clock(dist), [], []
    for step, micro_batches in enumerate(packs):
        if step == args.warmup:
            marks.append(clock.now())
        total = torch.zeros(())
        for place, batch in enumerate(micro_batches):
            with reducing(place + 1 == len(micro_batches)), \
                    torch.autocast("cpu", torch.bfloat16, enabled=args.autocast):
                loss = model(**batch, num_items_in_batch=targets[step], use_cache=False).loss
                (loss * args.ranks).backward()  # which averages over ranks
            total += loss.detach().float()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=args.wrap == "fsdp")  # DDP's views stay
        losses.append(total)
    marks.append(clock.now())
    losses = torch.stack(losses)
    dist.all_reduce(losses)
    return losses.tolist(), marks


def train(rank, args, port):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo")
    dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    torch.manual_seed(args.seed)
    from transformers import AutoConfig

    packs, targets = read_steps(args, AutoConfig.from_pretrained(args.model), rank)
    before = peak_rss()
    model = make_model(args)
    parameters = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
    model, reducing = wrap(args, model)
    losses, marks = run_steps(args, model, reducing, packs, targets)
    peak = torch.tensor([peak_rss(), before])
    dist.all_reduce(peak, op=dist.ReduceOp.MAX)
    if rank == 0:
        (start, sent), (end, sent_after) = marks
        steps = args.steps - args.warmup
        print(json.dumps({"losses": losses, "step_s": (end - start) / steps,
                          "rss_bytes": int(peak[0]), "rss_before_bytes": int(peak[1]),
                          "sent_bytes": (sent_after - sent) / steps, "trained": parameters}))
        sys.stdout.flush()
    # Without gloo's destructors: one that meets a peer's closed connection aborts the process.
    dist.barrier()
    os._exit(0)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    add = parser.add_argument
    add("model")
    add("records")
    add("packs", help="micro-batches as `equipoise data CONFIG groups --out` writes them")
    add("--images", default=".")
    add("--ranks", type=int, default=2)
    add("--steps", type=int, default=6)
    add("--warmup", type=int, default=1)
    add("--lr", type=float, required=True)
    add("--weight-decay", type=float, default=0.05)
    add("--beta1", type=float, default=0.9)
    add("--beta2", type=float, default=0.95)
    add("--eps", type=float, default=1e-8)
    add("--seed", type=int, default=0)
    add("--wrap", choices=("ddp", "fsdp"), default="ddp")
    add("--keep-gathered", action="store_true", help="FSDP: weights stay whole until backward")
    add("--recompute", action="store_true")
    add("--autocast", action="store_true", help="bf16")
    add("--adapter", action="store_true")
    add("--rank", type=int, default=16)
    add("--alpha", type=float, default=32)
    add("--rslora", action="store_true")
    add("--dora", action="store_true")
    add("--nf4", action="store_true")
    return parser.parse_args()


def main():
    import torch.multiprocessing as processes

    args = arguments()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    processes.spawn(train, args=(args, port), nprocs=args.ranks)


if __name__ == "__main__":
    main()
