"""Every chat template against Transformers: ids of `apply_chat_template` and its assistant tokens,
of templates with the text of the published ones; Vicuna's also against LLaVA's own way to mask.

python chat_template_hf_test.py CHAT_PROGRAM
"""

import json
import os
import random
import sys
import tempfile

from jinja2.exceptions import TemplateError
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers import processors, trainers
from transformers import PreTrainedTokenizerFast

from chat_program import CHATML, QWEN3, TEXTS, Report, byte_level, run

SPACE = "\u2581"
VICUNA_SYSTEM = ("A chat between a curious user and an artificial intelligence assistant. The "
                 "assistant gives helpful, detailed, and polite answers to the user's questions.")
QWEN2_SYSTEM = "You are a helpful assistant."
QWEN25_SYSTEM = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
LLAMA = ["<unk>", "<s>", "</s>"]
LLAMA3 = ["<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
PHI3 = ["<|endoftext|>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
PICTURES = {"<image>": ("", ""), "<IMG_CONTEXT>": ("<img>", "</img>"),
            "<|image_pad|>": ("<|vision_start|>", "<|vision_end|>")}


def chatml(system="", begin="", newline="\\n"):
    """ChatML with a system text of its own."""
    own = ("{% if messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n" + system
           + "<|im_end|>" + newline + "' }}{% endif %}") if system else ""
    return (begin + own + "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\\n' }}"
            "{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + '<|im_end|>' }}"
            "{% endgeneration %}{{ '" + newline + "' }}{% else %}{{ m['content'] + '<|im_end|>"
            + newline + "' }}{% endif %}{% endfor %}"
            "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")


SYSTEM_FIRST = ("{% if messages[0]['role'] == 'system' %}{% set system_message = "
                "messages[0]['content'] %}{% set rest = messages[1:] %}{% else %}"
                "{% set rest = messages %}{% endif %}")
VICUNA = ("{{ bos_token }}" + SYSTEM_FIRST + "{{ (system_message if system_message is defined "
          "else \"" + VICUNA_SYSTEM + "\") + ' ' }}{% for m in rest %}{% if m['role'] == 'user' %}"
          "{{ 'USER: ' + m['content'] + ' ' }}{% else %}{{ 'ASSISTANT:' }}{% generation %}"
          "{{ ' ' + m['content'] + eos_token }}{% endgeneration %}{% endif %}{% endfor %}"
          "{% if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %}")
LLAMA2 = (SYSTEM_FIRST + "{% for m in rest %}{% if loop.first and system_message is defined %}"
          "{% set text = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + m['content'] %}"
          "{% else %}{% set text = m['content'] %}{% endif %}{% if m['role'] == 'user' %}"
          "{{ bos_token + '[INST] ' + text.strip() + ' [/INST]' }}{% else %}{% generation %}"
          "{{ ' ' + text.strip() + ' ' + eos_token }}{% endgeneration %}{% endif %}{% endfor %}")
LLAVA_MISTRAL = ("{{ bos_token }}" + SYSTEM_FIRST + "{# selectattr('type', 'equalto', 'image') #}"
                 "{% for m in rest %}{% if m['role'] == 'user' %}{{ '[INST] ' }}"
                 "{% if loop.first and system_message is defined %}"
                 "{{ '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' }}{% endif %}"
                 "{{ m['content'] + ' [/INST]' }}{% else %}{% generation %}"
                 "{{ ' ' + m['content'] + ' </s>' }}{% endgeneration %}{% endif %}{% endfor %}")
LLAMA3_TEXT = ("{{ bos_token }}{% for m in messages %}{{ '<|start_header_id|>' + m['role'] + "
               "'<|end_header_id|>\\n\\n' }}{% if m['role'] == 'assistant' %}{% generation %}"
               "{{ m['content'] | trim + '<|eot_id|>' }}{% endgeneration %}{% else %}"
               "{{ m['content'] | trim + '<|eot_id|>' }}{% endif %}{% endfor %}"
               "{% if add_generation_prompt %}"
               "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}")
PHI3_TEXT = ("{% for m in messages %}{{ '<|' + m['role'] + '|>' + '\\n' }}"
             "{# <|user|> #}{% if m['role'] == 'assistant' %}{% generation %}{{ m['content'] + "
             "'<|end|>' }}{% endgeneration %}{{ '\\n' }}{% else %}{{ m['content'] + '<|end|>\\n' }}"
             "{% endif %}{% endfor %}{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}"
             "{% else %}{{ eos_token }}{% endif %}")
PHI4_TEXT = ("{% for m in messages %}{% if m['role'] == 'assistant' %}"
             "{{ '<|im_start|>assistant<|im_sep|>' }}{% generation %}{{ m['content'] + "
             "'<|im_end|>' }}{% endgeneration %}{% else %}{{ '<|im_start|>' + m['role'] + "
             "'<|im_sep|>' + m['content'] + '<|im_end|>' }}{% endif %}{% endfor %}"
             "{% if add_generation_prompt %}{{ '<|im_start|>assistant<|im_sep|>' }}{% endif %}")
# Its published line is in a comment; `generation` has no place in it.
PHI4_MINI_TEXT = ("{% for m in messages %}{# '<|' + message['role'] + '|>' + message['content'] + "
                  "'<|end|>' #}{{ '<|' + m['role'] + '|>' }}{% if m['role'] == 'assistant' %}"
                  "{% generation %}{{ m['content'] + '<|end|>' }}{% endgeneration %}{% else %}"
                  "{{ m['content'] + '<|end|>' }}{% endif %}{% endfor %}"
                  "{% if add_generation_prompt %}{{ '<|assistant|>' }}{% else %}{{ eos_token }}"
                  "{% endif %}")


def mistral(first, inside, before, close):
    """`first`: the system text is in the first user turn, else in the last."""
    where = "loop.first" if first else "last_user == loop.index0"
    return (SYSTEM_FIRST + "{% set ns = namespace(last=0) %}{% for m in rest %}"
            "{% if m['role'] == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}"
            "{% set last_user = ns.last %}{{ bos_token }}{% for m in rest %}"
            "{% if m['role'] == 'user' %}{% if " + where + " and system_message is defined %}"
            "{{ \"" + before + "[INST] \" + system_message + \"\\n\\n\" + m['content'] + \"" + close
            + "\" }}{% else %}{{ \"" + before + "[INST] \" + m['content'] + \"" + close + "\" }}"
            "{% endif %}{% else %}{% generation %}{{ ' ' + " + inside + " + eos_token }}"
            "{% endgeneration %}{% endif %}{% endfor %}")


def fallback(special, legacy, rstrip=(), plain=()):
    """LLaMA's: `legacy` puts a space behind every special token too."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always", True)
    tokenizer.train_from_iterator(TEXTS * 3, trainers.BpeTrainer(
        vocab_size=200, special_tokens=LLAMA, show_progress=False))
    trained = json.loads(tokenizer.to_str())["model"]
    vocabulary = trained["vocab"]
    for byte in range(256):
        vocabulary[f"<0x{byte:02X}>"] = len(vocabulary)
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in trained["merges"]]
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True,
                                     byte_fallback=True))
    if legacy:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "first", False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(),
                                           decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens([AddedToken(t, rstrip=t in rstrip, normalized=False)
                                  for t in LLAMA + list(special)])
    tokenizer.add_tokens([AddedToken(t, special=False, rstrip=True, normalized=False)
                          for t in plain])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))])
    return tokenizer


WORDS = ["hello", " world", "  two", "\n", "\n\n", "picture", "?", " ", "日本", "é", "USER:",
         "[INST]", "1", "\tx", "ASSISTANT:"] + QWEN3
IMAGE = "<image>"


class Case:
    def __init__(self, name, tokenizer, jinja, bos, eos, image=""):
        self.name, self.jinja, self.image = name, jinja, image
        self.tokenizer = tokenizer
        self.hf = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=bos, eos_token=eos,
                                          chat_template=jinja)


def cases():
    rows = []
    add = lambda *row, **more: rows.append(Case(*row, **more))
    for picture, (start, end) in PICTURES.items():
        special = CHATML + [t for t in (start, picture, end) if t] + ["<s>"]
        add("chatml", byte_level(special), chatml(), None, "<|im_end|>", image=picture)
    special = CHATML + ["<s>", "<image>"]
    add("internlm2", byte_level(special), chatml(begin="{{ bos_token }}"), "<s>", "<|im_end|>")
    add("qwen2-vl", byte_level(CHATML + ["<|vision_start|>", "<|image_pad|>", "<|vision_end|>"]),
        chatml(QWEN2_SYSTEM), None, "<|im_end|>", image="<|image_pad|>")
    add("qwen2_5", byte_level(special, QWEN3), chatml(QWEN25_SYSTEM), None, "<|im_end|>")
    add("llama-3", byte_level(LLAMA3 + ["<image>"]), LLAMA3_TEXT, "<|begin_of_text|>", "<|eot_id|>",
        image="<image>")
    add("phi-4", byte_level(CHATML + ["<|im_sep|>"]), PHI4_TEXT, None, "<|im_end|>")
    add("phi-4-mini", byte_level(PHI3), PHI4_MINI_TEXT, None, "<|endoftext|>")
    for legacy in (False, True):
        llama = lambda more=("<image>",), legacy=legacy, **flags: fallback(more, legacy, **flags)
        add("vicuna_v1", llama(), VICUNA, "<s>", "</s>", image="<image>")
        add("llama-2", llama(), LLAMA2, "<s>", "</s>", image="<image>")
        add("mistral-v1", llama(), mistral(True, "m['content']", " ", " [/INST]"), "<s>", "</s>",
            image="<image>")
        add("llava-mistral", llama(), LLAVA_MISTRAL, "<s>", "</s>", image="<image>")
        v3 = mistral(False, "m['content']|trim", "", "[/INST]")
        add("mistral-v3", llama(), v3, "<s>", "</s>", image="<image>")
        add("mistral-v3", llama(("[INST]", "[/INST]")), v3, "<s>", "</s>")
        add("phi-3", llama(PHI3), PHI3_TEXT, "<s>", "<|endoftext|>")
        add("phi-3", llama(PHI3, rstrip=PHI3), PHI3_TEXT, "<s>", "<|endoftext|>")
        add("phi-3", llama(PHI3, rstrip=PHI3, plain=QWEN3), PHI3_TEXT, "<s>", "<|endoftext|>")
    return rows


def conversations(count, seed, with_images):
    pick = random.Random(seed)
    words = lambda: [pick.choice(WORDS) for _ in range(pick.randint(1, 6))]
    rows = []
    for _ in range(count):
        turns, images = [], 0
        if pick.random() < 0.4:
            turns.append(["system", "".join(words())])
        for _ in range(pick.randint(1, 3)):
            question = words()
            for _ in range(pick.choice([0, 1, 2]) if with_images else 0):
                question.insert(pick.randint(0, len(question)), IMAGE)
                images += 1
            turns += [["user", "".join(question)], ["assistant", "".join(words())]]
        prompt = pick.random() < 0.3
        rows.append((turns[:-1] if prompt else turns, images, prompt))
    return rows


def expected(case, turns, images, prompt):
    """Ids and assistant mask of the rendered text, a picture's mark in it as three tokens."""
    start, end = PICTURES.get(case.image, ("", ""))
    # Text that reads like a token is a token to Transformers: the placeholder is, nothing else.
    place = start + case.image * 3 + end
    messages = [{"role": role, "content": text.replace(IMAGE, place) if role == "user" else text}
                for role, text in turns]
    return case.hf.apply_chat_template(
        messages, add_generation_prompt=prompt, tokenize=True, return_dict=True,
        return_assistant_tokens_mask=not prompt)


def safe(case, turns):
    """No text of a turn that special tokens occur in: here it is text, there a token."""
    tokens = [t.content for t in case.tokenizer.get_added_tokens_decoder().values() if t.special]
    return not any(t in text.replace(IMAGE, "") for _, text in turns for t in tokens)


def check_case(program, path, case, report):
    rows = [row for row in conversations(150, 7, bool(case.image)) if safe(case, row[0])]
    got = run(program, path, [
        {"template": case.name, "system": "", "images": [3] * images, "prompt": prompt,
         "turns": [[role, text, True] for role, text in turns]} for turns, images, prompt in rows])
    wrong, masks, masked, places = [], [], 0, 0
    for (turns, images, prompt), ours in zip(rows, got):
        theirs = expected(case, turns, images, prompt)
        if ours["ids"] != theirs["input_ids"]:
            wrong.append((turns, prompt, ours["ids"], theirs["input_ids"]))
        places += len(ours["begin"]) == images == len(ours["end"])
        if not prompt:
            # A header's token that takes the answer's first spaces is no target here.
            header = case.tokenizer.token_to_id("<|assistant|>")
            mask = [int(m and i != header)
                    for m, i in zip(theirs["assistant_masks"], theirs["input_ids"])]
            masked += 1
            if ours["trained"] != mask:
                masks.append((turns, ours["trained"], mask, ours["ids"]))
    report.check(f"{case.name}: ids", not wrong and len(got) == len(rows) > 30,
                 f"{len(wrong)} {wrong[:1]}")
    report.check(f"{case.name}: pictures", places == len(rows), places)
    report.check(f"{case.name}: mask", not masks and masked > 20,
                 f"{len(masks)} of {masked} {masks[:1]}")


def parts(text):
    """A user's text with pictures, as Transformers' messages have them."""
    words = text.split(IMAGE + "\n")
    return [part for i, word in enumerate(words) for part in
            ([{"type": "image"}] if i else []) + [{"type": "text", "text": word}]]


def check_written(program, path, case, report, system=""):
    """The template that is written for Transformers: ids of messages with pictures."""
    jinja, = run(program, path, [{"template": case.name, "system": system, "write": True}])
    told, = run(program, path, [{"jinja": jinja}])
    report.check(f"{case.name}: the written one is told by its comment", told == case.name, told)
    rows = [([[role, text.replace(IMAGE, IMAGE + "\n")] for role, text in turns], images, prompt)
            for turns, images, prompt in conversations(150, 9, bool(case.image))
            if safe(case, turns)]
    got = run(program, path, [
        {"template": case.name, "system": system, "images": [3] * images, "prompt": prompt,
         "turns": [[role, text, True] for role, text in turns]} for turns, images, prompt in rows])
    start, end = PICTURES.get(case.image, ("", ""))
    wrong = []
    for (turns, _, prompt), ours in zip(rows, got):
        messages = [{"role": role, "content": text if role != "user" else parts(text)}
                    for role, text in turns]
        text = case.hf.apply_chat_template(messages, chat_template=jinja, tokenize=False,
                                           add_generation_prompt=prompt)
        if case.image:  # as a processor does
            text = text.replace(case.image, start + case.image * 3 + end)
        theirs = case.hf(text, add_special_tokens=False)["input_ids"]
        if ours["ids"] != theirs:
            wrong.append((turns, prompt, text, ours["ids"], theirs))
    report.check(f"{case.name}: ids of the written one", not wrong and len(rows) > 30,
                 f"{len(wrong)} {wrong[:1]}")
    for what, messages, more in (
            ("a video", [{"role": "user", "content": [{"type": "video"}]}], {}),
            ("a tool's message", [{"role": "tool", "content": "5"}], {}),
            ("functions", [{"role": "user", "content": "Q"}],
             {"tools": [{"type": "function", "function": {"name": "f"}}]})):
        try:
            text = case.hf.apply_chat_template(messages, chat_template=jinja, tokenize=False,
                                               **more)
            report.check(f"{case.name}: {what} is refused", False, text)
        except TemplateError as error:
            report.check(f"{case.name}: {what} is refused", " place here" in str(error) or
                         "frames" in str(error) or "none of" in str(error), error)


def written_cases():
    """Forms that no published template is compared with."""
    pictures = ["<img>", "<IMG_CONTEXT>", "</img>"]
    for name in ("internvl2_5", "internlm2-chat", "Hermes-2"):
        yield Case(name, byte_level(CHATML + pictures + ["<s>"]), None, None, "<|im_end|>",
                   image="<IMG_CONTEXT>")
    yield Case("phi3-chat", fallback(PHI3 + pictures, legacy=False), None, "<s>", "<|end|>",
               image="<IMG_CONTEXT>")
    yield Case("plain", fallback(["<image>"], legacy=False), None, "<s>", "</s>", image="<image>")


# Qwen2.5's template where functions are described, up to the turns' end marks (its published text).
TOOLS_TEXT = (r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'SYSTEM' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nYou may call one or more functions to assist with the user query."""
    r"""\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nFor each function call, return a json object with function name"""
    r""" and arguments within <tool_call></tool_call> XML tags:\n<tool_call>"""
    r"""\n{\"name\": <function-name>, \"arguments\": <args-json-object>}"""
    r"""\n</tool_call><|im_end|>\n" }}
{%- endif %}
{%- for message in messages %}
    {%- if message.role != 'system' %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- endif %}
{%- endfor %}""")


def check_tools(program, folder, report):
    """Ids of a conversation with descriptions of functions."""
    tokenizer = byte_level(CHATML, QWEN3)
    path = os.path.join(folder, "tools.json")
    tokenizer.save(path)
    hf = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>",
                                 chat_template=TOOLS_TEXT.replace("SYSTEM", QWEN25_SYSTEM))
    tools = [{"type": "function", "function": {"name": name, "description": "größer \"x\"",
                                               "parameters": {"b": {"type": "n"}, "a": [1, 2.5]}}}
             for name in ("f", "g")]
    lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    for turns in ([["user", "Q"], ["assistant", "A"]],
                  [["system", "Be short."], ["user", "Q"], ["assistant", "A"]]):
        ours, = run(program, path, [{
            "template": "qwen2_5", "system": "", "images": [], "prompt": False, "tools": lines,
            "turns": [[role, text, True] for role, text in turns]}])
        theirs = hf.apply_chat_template([{"role": role, "content": text} for role, text in turns],
                                        tools=tools, tokenize=True, return_dict=True)
        report.check("qwen2_5 with functions", ours["ids"] == theirs["input_ids"],
                     hf.decode(ours["ids"]) + " | " + hf.decode(theirs["input_ids"]))


def llava_targets(encode, text):
    """Which tokens LLaVA's preprocess_v1 trains: it counts the tokens of each round up to the
    answer by themselves; the first token of a text stands for the </s> of the round."""
    trained, done = [0], 1
    for turn in text.split("</s>"):
        if not turn:
            break
        length = len(encode(turn))
        question = len(encode(turn.split(" ASSISTANT: ")[0] + " ASSISTANT: ")) - 2
        trained[done:] = [0] * question + [1] * (length - question)
        done += length
    return trained


def check_llava(program, folder, report):
    """Ids, and the mask of LLaVA's code, with a tokenizer that puts spaces as LLaVA's does."""
    tokenizer = fallback(["<image>"], legacy=True)
    path = os.path.join(folder, "llava.json")
    tokenizer.save(path)
    encode = lambda text: tokenizer.encode(text).ids  # with <s>
    pick = random.Random(5)
    words = ["a", "red", "disc", "is", "it", "größer", "日本", "and", "2"]
    say = lambda: " ".join(pick.choice(words) for _ in range(pick.randint(1, 8)))
    for _ in range(40):
        turns = []
        for i in range(pick.randint(1, 3)):
            turns += [["user", ("<image>\n" if i == 0 else "") + say()], ["assistant", say()]]
        text = VICUNA_SYSTEM + " "
        for (_, question), (_, answer) in zip(turns[::2], turns[1::2]):
            text += f"USER: {question} ASSISTANT: {answer}</s>"
        ours, = run(program, path, [{
            "template": "vicuna_v1", "system": "", "images": [4], "prompt": False,
            "turns": [[role, said, True] for role, said in turns]}])
        text = text.replace("<image>", "<image>" * 4)
        report.check("LLaVA's ids", ours["ids"] == encode(text), text)
        report.check("LLaVA's mask", ours["trained"] == llava_targets(encode, text), text)


def main():
    report = Report()
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        for i, case in enumerate(cases()):
            path = os.path.join(folder, f"{i}.json")
            case.tokenizer.save(path)
            check_case(program, path, case, report)
            told = run(program, path, [{"jinja": case.jinja}])
            report.check(f"{case.name}: told by its text", told == [case.name], told)
            check_written(program, path, case, report)
            check_written(program, path, case, report, "It's \\ a \"größer\"\n{{ text }}")
        for case in written_cases():
            path = os.path.join(folder, f"{case.name}.json")
            case.tokenizer.save(path)
            check_written(program, path, case, report)
        check_tools(program, folder, report)
        check_llava(program, folder, report)
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
