"""The same records in the files of other trainers, with keys of their own, train the same model:
LLaMA-Factory's dataset_info.json, InternVL's meta file, LLaVA-NeXT's YAML list, the_cauldron's
Parquet, columns of Parquet and of shards."""
import io
import json
import os
import tarfile
import tempfile

import pyarrow
import pyarrow.parquet

import tiny_case

ROLES = {"human": "Q", "gpt": "A"}


def pictures_of(record):
    images = record.get("image", [])
    return images if isinstance(images, list) else [images]


def sharegpt(record):
    turns = [{"speaker": ROLES[t["from"]], "text": t["value"]} for t in record["conversations"]]
    return {"dialogue": turns, "pictures": pictures_of(record)}


def alpaca(record):
    question, answer = (turn["value"] for turn in record["conversations"])
    return {"question": question, "answer": answer, "pictures": pictures_of(record)}


def write_json(path, value):
    with open(path, "w") as out:
        json.dump(value, out)


def write_dataset_info(folder, records):
    """LLaMA-Factory's folder `data`: paths are relative to it."""
    os.makedirs(f"{folder}/data/parts")
    os.symlink(f"{folder}/images", f"{folder}/data/pictures")
    own = [{**r, "image": [f"pictures/{p}" for p in pictures_of(r)]} for r in records]
    write_json(f"{folder}/data/chat.json", [sharegpt(r) for r in own])
    for part, some in (("a", own[:20]), ("b", own[20:])):
        with open(f"{folder}/data/parts/{part}.jsonl", "w") as out:
            out.writelines(json.dumps(alpaca(r)) + "\n" for r in some)
    write_json(f"{folder}/data/dataset_info.json", {
        "hub": {"hf_hub_url": "somebody/else"},
        "chat": {
            "file_name": "chat.json", "formatting": "sharegpt",
            "columns": {"messages": "dialogue", "images": "pictures"},
            "tags": {"role_tag": "speaker", "content_tag": "text", "user_tag": "Q",
                     "assistant_tag": "A"}},
        "pairs": {
            "file_name": "parts",
            "columns": {"prompt": "question", "response": "answer", "images": "pictures"}}})


def write_llava_list(folder, records):
    write_json(f"{folder}/first.json", records[:15])
    write_json(f"{folder}/rest.json", records[15:])
    with open(f"{folder}/sets.yaml", "w") as out:
        out.write(f"datasets:\n  - json_path: {folder}/first.json\n    sampling_strategy: all\n"
                  f"  - json_path: {folder}/rest.json\n    sampling_strategy: \"first:100%\"\n")


def picture_in(images, name):
    with open(f"{images}/{name}", "rb") as file:
        return {"bytes": file.read(), "path": name}


def write_cauldron(path, records, images):
    """Pictures in the rows, pairs of a question and its answer, no place for the pictures."""
    def pairs(record):
        turns = [turn["value"] for turn in record["conversations"]]
        before = "<image>\n" * len(pictures_of(record))
        if before and turns[0].startswith(before) and "<image>" not in turns[0][len(before):]:
            turns[0] = turns[0][len(before):]
        return [{"user": q, "assistant": a, "source": "tiny"}
                for q, a in zip(turns[::2], turns[1::2])]
    table = pyarrow.table({
        "images": [[picture_in(images, name) for name in pictures_of(r)] for r in records],
        "texts": [pairs(r) for r in records]})
    pyarrow.parquet.write_table(table, path, row_group_size=10)
    return sum("<image>" not in pairs(r)[0]["user"] and bool(pictures_of(r)) for r in records)


def write_parquet(path, records, images):
    rows = [alpaca(r) for r in records]
    table = pyarrow.table({
        "question": [r["question"] for r in rows], "answer": [r["answer"] for r in rows],
        "label": list(range(len(rows))),
        "pictures": [[picture_in(images, name) for name in r["pictures"]] for r in rows]})
    pyarrow.parquet.write_table(table, path, row_group_size=10)


def write_shard(path, records, images):
    with tarfile.open(path, "w") as shard:
        def add(name, data):
            member = tarfile.TarInfo(name)
            member.size = len(data)
            shard.addfile(member, io.BytesIO(data))
        for i, record in enumerate(records):
            row = alpaca(record)
            for k, name in enumerate(row.pop("pictures")):
                with open(f"{images}/{name}", "rb") as file:
                    add(f"{i:04d}.{k}.{name.rsplit('.', 1)[1]}", file.read())
            add(f"{i:04d}.json", json.dumps(row).encode())


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp()
    config = tiny_case.write_case(folder)
    with open(f"{folder}/train.jsonl") as lines:
        records = [json.loads(line) for line in lines]
    with open(config) as file:
        text = file.read()
    source = f"{{annotations: {folder}/train.jsonl, images: {folder}/images}}"
    write_dataset_info(folder, records)
    write_parquet(f"{folder}/rows.parquet", records, f"{folder}/images")
    write_shard(f"{folder}/rows.tar", records, f"{folder}/images")
    write_llava_list(folder, records)
    unplaced = write_cauldron(f"{folder}/cauldron.parquet", records, f"{folder}/images")
    results.check("pictures without a place", unplaced > 10, unplaced)
    write_json(f"{folder}/meta.json", {
        "one": {"root": f"{folder}/images", "annotation": f"{folder}/train.jsonl",
                "repeat_time": 1, "length": len(records), "data_augment": False}})

    def run(name, given, ranks=1):
        path = f"{folder}/{name}.yaml"
        with open(path, "w") as out:
            out.write(text.replace(source, given))
        done = tiny_case.run(path, ranks, run__dir=f"{folder}/{name}", train__steps=4)
        results.check(f"{name}: trains", done.returncode == 0, done.stderr[-500:]
                      if done.returncode else "")
        return tiny_case.losses(f"{folder}/{name}") if done.returncode == 0 else None

    expected = run("lines", source)
    info, columns = f"{folder}/data/dataset_info.json", "prompt: question, response: answer"
    forms = {
        "chat": f"{{annotations: {info}, datasets: [chat]}}",
        "pairs": f"{{annotations: {info}, datasets: [pairs]}}",
        "folder": f"{{annotations: {folder}/data/parts, images: {folder}/data, "
                  f"columns: {{{columns}, images: pictures}}}}",
        "rows": f"{{annotations: {folder}/rows.parquet, "
                f"columns: {{{columns}, images: pictures}}}}",
        "shard": f"{{annotations: {folder}/rows.tar, columns: {{{columns}}}}}",
        "meta": f"{{annotations: {folder}/meta.json, datasets: [one]}}",
        "llava": f"{{annotations: {folder}/sets.yaml, images: {folder}/images}}",
        "cauldron": f"{{annotations: {folder}/cauldron.parquet, images: {folder}/images}}",
    }
    text = text.replace("data:\n", "data:\n  allow_outside: true\n")  # a link leads to the pictures
    for name, given in forms.items():
        losses = run(name, given)
        results.check(f"{name}: the losses are those of the same records in lines",
                      losses is not None and losses == expected, f"{losses} {expected}")
    ranks = run("ranks", forms["chat"], ranks=2)
    results.check("two ranks read them so too", ranks is not None and
                  all(abs(a - b) < 1e-4 for a, b in zip(ranks, expected)), str(ranks))

    again = tiny_case.run(f"{folder}/chat/config.yaml", run__dir=f"{folder}/again", train__steps=4)
    results.check("the configuration that a run keeps trains the same", again.returncode == 0 and
                  tiny_case.losses(f"{folder}/again") == expected, again.stderr[-500:])
    done = tiny_case.run(f"{folder}/chat.yaml", run__dir=f"{folder}/chat", train__steps=6)
    results.check("a run goes on", done.returncode == 0 and
                  len(tiny_case.losses(f"{folder}/chat")) == 6, done.stderr[-500:])
    for name, given, code, words in (
            ("a data set of a hub", f"{{annotations: {info}, datasets: [hub]}}", 4,
             "hub: hf_hub_url: 'somebody/else' is not in the Hub's cache"),
            ("a list without a choice", f"{{annotations: {info}}}", 4, "name those to train on"),
            ("a column that records lack", f"{{annotations: {folder}/train.jsonl, "
             f"columns: {{response: answer}}}}", 4,
             "train.jsonl:1 (bad_field: 'answer' is missing, the source's columns.response)")):
        path = f"{folder}/refused.yaml"
        with open(path, "w") as out:
            out.write(text.replace(source, given))
        done = tiny_case.run(path, run__dir=f"{folder}/refused")
        results.check(f"{name} is refused", done.returncode == code and words in done.stderr,
                      f"{done.returncode} {done.stderr[-500:]}")
    results.finish()


if __name__ == "__main__":
    main()
