"""Writes a tokenizer.model of SentencePiece's BPE with byte fallback, and the files beside it."""
import collections
import json
import struct

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # SentencePiece.Type of sentencepiece_model.proto
BPE = 2  # TrainerSpec.ModelType


def varint(number):
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number, value):
    """A field of protobuf's wire format: int, float, text or message."""
    if isinstance(value, bool) or isinstance(value, int):
        return varint(number << 3) + varint(int(value))
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def piece(text, score, kind):
    return field(1, field(1, text) + field(2, float(score)) + field(3, kind))


def merges(texts, count):
    """The most frequent pairs, one after the other, of words with their space before them."""
    words = collections.Counter(
        tuple(word) for text in texts for word in text.replace(" ", " \u2581").split())
    learnt = []
    while len(learnt) < count:
        pairs = collections.Counter()
        for word, times in words.items():
            for pair in zip(word, word[1:]):
                pairs[pair] += times
        if not pairs:
            break
        (left, right), _ = max(pairs.items(), key=lambda item: (item[1], item[0]))
        learnt.append(left + right)
        merged = collections.Counter()
        for word, times in words.items():
            out = []
            for part in word:
                if out and (out[-1], part) == (left, right):
                    out[-1] += part
                else:
                    out.append(part)
            merged[tuple(out)] += times
        words = merged
    return learnt


def write(folder, texts, special, count=60):
    """Returns the ids of `special`, which tokenizer_config.json adds behind the pieces."""
    letters = sorted({c for text in texts for c in text.replace(" ", "\u2581") if not c.isspace()})
    pieces = [piece("<unk>", 0, UNKNOWN), piece("<s>", 0, CONTROL), piece("</s>", 0, CONTROL)]
    pieces += [piece(f"<0x{byte:02X}>", 0, BYTE) for byte in range(256)]
    learnt = [m for m in merges(texts, count) if m not in letters]
    pieces += [piece(text, -rank, NORMAL) for rank, text in enumerate(learnt)]
    pieces += [piece(text, -len(learnt) - rank, NORMAL) for rank, text in enumerate(letters)]
    trainer = field(3, BPE) + field(4, len(pieces)) + field(35, True)
    normalizer = field(1, "identity") + field(3, False) + field(4, False) + field(5, True)
    with open(f"{folder}/tokenizer.model", "wb") as file:
        file.write(b"".join(pieces) + field(2, trainer) + field(3, normalizer))
    ids = {text: len(pieces) + i for i, text in enumerate(special)}
    decoder = {str(i): {"content": text, "lstrip": False, "normalized": False, "rstrip": False,
                        "single_word": False, "special": True} for text, i in ids.items()}
    with open(f"{folder}/tokenizer_config.json", "w", encoding="utf8") as file:
        json.dump({"added_tokens_decoder": decoder, "tokenizer_class": "InternLM2Tokenizer"}, file)
    return ids
