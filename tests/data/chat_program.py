"""The program of chat_main.cc and tokenizers for it."""

import json
import subprocess

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

CHATML = ["<|im_start|>", "<|im_end|>"]
QWEN3 = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
TEXTS = ["What is in the picture? a red disc", "hello world, it is a green square",
         "USER: who ASSISTANT: I am", "[INST] <<SYS>> system user assistant [/INST]",
         "größer 日本語 1234"]


def byte_level(special, plain=()):
    """`plain`: tokens that are added, but not as special ones."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(TEXTS * 3, trainers.BpeTrainer(
        vocab_size=400, show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet())))
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in plain])
    return tokenizer


def run(program, path, lines):
    text = "".join(json.dumps(line) + "\n" for line in lines)
    done = subprocess.run([program, path], input=text, capture_output=True, text=True, timeout=300,
                          check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return [json.loads(line) for line in done.stdout.split("\n")[:-1]]


class Report:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, name, ok, detail=""):
        self.passed, self.failed = self.passed + bool(ok), self.failed + (not ok)
        if not ok:
            print(f"FAILED: {name}: {detail}")
