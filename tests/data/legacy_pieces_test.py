"""A folder's tokenizer.model of LLaMA's class, with `legacy: false` and without it, against
Transformers: a space before each part of a text, or before the first alone.

python legacy_pieces_test.py TOKENIZE_PROGRAM
"""

import json
import os
import random
import sys
import tempfile

from transformers import LlamaTokenizer
from transformers.utils import sentencepiece_model_pb2_new as pieces

from byte_fallback_test import (ALPHABET, HARD, SPACE, Report, legacy_normalizer, program,
                                replace_decoder, train)

TEXTS = ["The quick", " The quick", "</s>The quick", "</s> The quick", "USER: is</s>USER: it</s>",
         "<s>The<s> lazy  dog", SPACE + "x", "a  </s>  b", "</s>", "\tThe</s>\tThe"]


def model_file(vocabulary):
    """Of BPE with byte fallback; what was merged first has the largest score."""
    proto = pieces.ModelProto()
    for token, number in sorted(vocabulary.items(), key=lambda item: item[1]):
        piece = proto.pieces.add(piece=token, score=-number)
        kind = pieces.ModelProto.SentencePiece
        piece.type = (kind.UNKNOWN if token == "<unk>" else
                      kind.CONTROL if token in ("<s>", "</s>") else
                      kind.BYTE if token.startswith("<0x") else kind.NORMAL)
    proto.trainer_spec.model_type = pieces.TrainerSpec.BPE
    proto.trainer_spec.byte_fallback = True
    proto.normalizer_spec.name = "identity"
    proto.normalizer_spec.add_dummy_prefix = True
    proto.normalizer_spec.remove_extra_whitespaces = False
    return proto.SerializeToString()


def main():
    report = Report()
    trained = json.loads(train(None, None, replace_decoder()).to_str())["model"]
    vocabulary = trained["vocab"]
    merges = [tuple(m) for m in trained["merges"]]
    pick = random.Random(3)
    texts = TEXTS + HARD + ["".join(pick.choice(ALPHABET) for _ in range(pick.randint(1, 20)))
                            for _ in range(300)]
    texts = [text for text in texts
             if not any(c in text for c in ("[[", "<image>", "<unk>", "\x00", "<0x"))]
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "tokenizer.model"), "wb") as file:
            file.write(model_file(vocabulary))
        for legacy in (False, True):
            with open(os.path.join(folder, "tokenizer_config.json"), "w") as file:
                json.dump({"tokenizer_class": "LlamaTokenizer", "legacy": legacy}, file)
            hf = LlamaTokenizer(vocab=vocabulary, merges=merges, legacy=legacy)
            backend = hf.backend_tokenizer
            if legacy:  # what Transformers converts such a folder to
                backend.normalizer = legacy_normalizer()
                backend.pre_tokenizer = None
            ids = [hf(text, add_special_tokens=False)["input_ids"] for text in texts]
            report.compare(f"legacy {legacy}", texts, program(sys.argv[1], folder, lines=texts),
                           ids)
            if legacy:  # Transformers shows the space behind an added token too
                continue
            for skip in (False, True):
                lines = [json.dumps({"ids": row, "skip": skip}) for row in ids]
                report.compare(f"texts, skip {skip}", ids,
                               program(sys.argv[1], folder, "--decode", lines=lines),
                               [hf.decode(row, skip_special_tokens=skip) for row in ids])
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
