"""Qwen3's chat template against Transformers: thoughts in prompts and in what is trained.

python qwen3_template_hf_test.py CHAT_PROGRAM
"""

import os
import random
import sys
import tempfile

from jinja2.exceptions import TemplateError
from transformers import PreTrainedTokenizerFast

from chat_program import CHATML, QWEN3, Report, byte_level, run

# Qwen3's published template without its functions, with marks of what is trained.
QWEN3_TEXT = r"""{%- if messages[0].role == 'system' %}
    {{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}
{%- endif %}
{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}
{%- for message in messages[::-1] %}
    {%- set index = (messages|length - 1) - loop.index0 %}
    {%- if ns.multi_step_tool and message.role == "user" and message.content is string and
       not(message.content.startswith('<tool_response>') and
       message.content.endswith('</tool_response>')) %}
        {%- set ns.multi_step_tool = false %}
        {%- set ns.last_query_index = index %}
    {%- endif %}
{%- endfor %}
{%- for message in messages %}
    {%- if message.content is string %}
        {%- set content = message.content %}
    {%- else %}
        {%- set content = '' %}
    {%- endif %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) %}
        {{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {%- set reasoning_content = '' %}
        {%- if message.reasoning_content is string %}
            {%- set reasoning_content = message.reasoning_content %}
        {%- else %}
            {%- if '</think>' in content %}
                {%- set reasoning_content =
                   content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
                {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- endif %}
        {%- endif %}
        {{- '<|im_start|>' + message.role + '\n' }}
        {%- generation %}
        {%- if loop.index0 > ns.last_query_index %}
            {%- if loop.last or (not loop.last and reasoning_content) %}
                {{- '<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' +
                   content.lstrip('\n') }}
            {%- else %}
                {{- content }}
            {%- endif %}
        {%- else %}
            {{- content }}
        {%- endif %}
        {{- '<|im_end|>' }}
        {%- endgeneration %}
        {{- '\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}
        {{- '<think>\n\n</think>\n\n' }}
    {%- endif %}
{%- endif %}"""
THOUGHT = "<think>\n\n</think>\n\n"
RESULT = "<tool_response>\n5\n</tool_response>"


def thoughtful(count, seed):
    """Conversations with and without thoughts, calls of functions and their results."""
    pick = random.Random(seed)
    said = lambda: pick.choice(["A", "it is\na disc\n", "\n\n so", "<tool_call>{}</tool_call>"])
    thought = lambda: pick.choice(["", "", THOUGHT, "<think>\na thought\n</think>\n\n",
                                   "<think>short</think>", "\n<think>\n\nlong\n\n</think>",
                                   " <think>\na thought\n</think>\n\n", "no begin</think>\n\n"])
    for _ in range(count):
        turns = [["system", "Be short."]] if pick.random() < 0.3 else []
        for _ in range(pick.randint(1, 3)):
            turns += [["user", "Q"], ["assistant", thought() + said()]]
            for _ in range(pick.choice([0, 0, 1, 2])):
                turns += [["user", RESULT], ["assistant", thought() + said()]]
        prompt = pick.random() < 0.4
        yield turns[:-1] if prompt else turns, prompt


def masked(hf, ids):
    """1 from behind each assistant's header to the end of its turn. REQUIRES: answers that begin
    with <think>, so that headers are tokens of their own."""
    header = hf("<|im_start|>assistant\n", add_special_tokens=False)["input_ids"]
    end = hf.convert_tokens_to_ids("<|im_end|>")
    mask, trained = [], False
    for i, token in enumerate(ids):
        trained = trained or ids[i - len(header):i] == header
        mask.append(int(trained))
        trained = trained and token != end
    return mask


def check_thoughts(program, folder, report):
    """Qwen3's template: prompts, and conversations of which the last answer alone is trained, as
    Transformers renders them; where all are, each as the last one."""
    tokenizer = byte_level(CHATML, QWEN3)
    path = os.path.join(folder, "thoughts.json")
    tokenizer.save(path)
    hf = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>",
                                 chat_template=QWEN3_TEXT)
    jinja, = run(program, path, [{"template": "qwen3", "system": "", "write": True}])
    rows = list(thoughtful(200, 11))
    ask = lambda trained: run(program, path, [
        {"template": "qwen3", "system": "", "images": [], "prompt": prompt,
         "turns": [[role, text, trained(i, len(turns))] for i, (role, text) in enumerate(turns)]}
        for turns, prompt in rows])
    prompts = 0
    for (turns, prompt), last, every in zip(rows, ask(lambda i, n: i == n - 1),
                                            ask(lambda i, n: True)):
        messages = [{"role": role, "content": text} for role, text in turns]
        render = lambda messages, **more: hf.apply_chat_template(
            messages, add_generation_prompt=prompt, tokenize=True, return_dict=True, **more)
        theirs = render(messages)["input_ids"]
        report.check("qwen3: ids", last["ids"] == theirs, (turns, hf.decode(last["ids"])))
        written = render(messages, chat_template=jinja)["input_ids"]
        report.check("qwen3: the written one", written == every["ids"],
                     (turns, hf.decode(written), hf.decode(every["ids"])))
        prompts += prompt
        if prompt:
            report.check("qwen3: nothing of a prompt is trained in", every["ids"] == theirs, turns)
            continue
        mask = render(messages, return_assistant_tokens_mask=True)["assistant_masks"]
        answer = len(mask) - mask[::-1].index(0, 1) if 0 in mask[:-1] else 0
        report.check("qwen3: mask", last["trained"] == [0] * answer + mask[answer:], turns)
        # What each answer is as the last of a conversation, and the turns between as they are.
        text = "".join(
            f"<|im_start|>{role}\n{said}<|im_end|>\n" if role != "assistant" else
            hf.apply_chat_template([{"role": "user", "content": ""},
                                    {"role": role, "content": said}],
                                   tokenize=False).split("<|im_end|>\n", 1)[1]
            for role, said in turns)
        report.check("qwen3: every answer", every["ids"] ==
                     hf(text, add_special_tokens=False)["input_ids"],
                     (text, hf.decode(every["ids"])))
        report.check("qwen3: every answer's mask", every["trained"] == masked(hf, every["ids"]),
                     (turns, every["trained"]))
    report.check("qwen3: prompts", 40 < prompts < 160, prompts)
    for text, same in (("<think>open", True), ("a <think>b</think>c", True),
                       ("<think>a</think>b</think>", True), ("b", False), ("a</think>b", False)):
        ours, plain = run(program, path, [
            {"template": name, "system": "", "images": [], "prompt": False,
             "turns": [["user", "Q", True], ["assistant", text, True]]}
            for name in ("qwen3", "chatml")])
        report.check("qwen3: what is no thought stays", (ours == plain) == same, text)
    # What messages have beside their content, and a prompt for an answer without a thought.
    ask = [{"role": "user", "content": "Q"}]
    for messages, more in (
            (ask + [{"role": "assistant", "content": "A", "reasoning_content": "\nR"}], {}),
            (ask, {"add_generation_prompt": True, "enable_thinking": False}),
            (ask, {"add_generation_prompt": True, "enable_thinking": True}),
            (ask + [{"role": "assistant", "content": "A", "reasoning_content": "R"}] + ask,
             {"add_generation_prompt": True})):
        texts = [hf.apply_chat_template(messages, tokenize=False, **more, **template)
                 for template in ({}, {"chat_template": jinja})]
        report.check("qwen3: the written one's other inputs", texts[0] == texts[1], texts)
    try:
        text = hf.apply_chat_template(ask + [{"role": "assistant", "content": "", "tool_calls": [
            {"type": "function", "function": {"name": "f", "arguments": {}}}]}],
                                      chat_template=jinja, tokenize=False)
        report.check("qwen3: calls are refused", False, text)
    except TemplateError as error:
        report.check("qwen3: calls are refused", "tool_calls" in str(error), error)
    told = run(program, path, [{"jinja": QWEN3_TEXT}])
    report.check("qwen3: told by its text", told == ["qwen3"], told)


def check_no_thinking(program, folder, report):
    """Thinking off: prompts as Qwen3's template ends them with enable_thinking=False, which are the
    beginning of what is trained; the written template does both without being asked."""
    tokenizer = byte_level(CHATML, QWEN3)
    path = os.path.join(folder, "no_thinking.json")
    tokenizer.save(path)
    hf = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>",
                                 chat_template=QWEN3_TEXT)
    name = {"template": "qwen3_no_thinking", "system": ""}
    jinja, = run(program, path, [{**name, "write": True}])
    rows = [(turns, prompt) for turns, prompt in thoughtful(200, 12)
            if "</think>\n\n" + THOUGHT not in str(turns)]
    encoded = run(program, path, [
        {**name, "images": [], "prompt": prompt, "turns": [[*turn, True] for turn in turns]}
        for turns, prompt in rows])
    prompts = 0
    for (turns, prompt), ours in zip(rows, encoded):
        prompts += prompt
        bare = [{"role": role, "content": text.rsplit("</think>", 1)[-1].lstrip("\n")
                 if "</think>" in text else text} for role, text in turns]
        written = hf.apply_chat_template(
            [{"role": role, "content": text} for role, text in turns], chat_template=jinja,
            add_generation_prompt=prompt, tokenize=True, return_dict=True)["input_ids"]
        report.check("no thinking: the written one", written == ours["ids"],
                     (turns, hf.decode(written), hf.decode(ours["ids"])))
        if prompt:
            theirs = hf.apply_chat_template(bare, add_generation_prompt=True, tokenize=True,
                                            enable_thinking=False, return_dict=True)["input_ids"]
            report.check("no thinking: prompts", ours["ids"] == theirs, (turns, ours["ids"]))
            continue
        # Each answer stands behind what its prompt ends with, and is all that is trained.
        text = "".join(f"<|im_start|>{m['role']}\n" + THOUGHT * (m["role"] == "assistant") +
                       f"{m['content']}<|im_end|>\n" for m in bare)
        report.check("no thinking: ids", ours["ids"] ==
                     hf(text, add_special_tokens=False)["input_ids"], (text, ours["ids"]))
        trained = [i for i, yes in zip(ours["ids"], ours["trained"]) if yes]
        answers = "".join(f"{m['content']}<|im_end|>" for m in bare if m["role"] == "assistant")
        report.check("no thinking: trained", hf.decode(trained) == answers, (answers, trained))
    report.check("no thinking: how many prompts", 40 < prompts < 160, prompts)
    ask = {"conversation": [{"role": "user", "content": "Q"}], "tokenize": False,
           "add_generation_prompt": True}
    for more in ({}, {"enable_thinking": False}, {"enable_thinking": True}):
        theirs = hf.apply_chat_template(**ask, **{"enable_thinking": False, **more})
        report.check("no thinking: asked for", theirs == hf.apply_chat_template(
            **ask, **more, chat_template=jinja), more)
    told = run(program, path, [{"jinja": jinja}])
    report.check("no thinking: told by its text", told == ["qwen3_no_thinking"], told)


def main():
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        check_thoughts(sys.argv[1], folder, report)
        check_no_thinking(sys.argv[1], folder, report)
    print(f"{report.passed} passed, {report.failed} failed")
    return 1 if report.failed else 0


if __name__ == "__main__":
    sys.exit(main())
