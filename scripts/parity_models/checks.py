"""The columns of the table: what of a row is compared with Transformers, and how.

Each check takes a Comparison and gives a parity.Report, or a text that says why it does not apply.
What it compares is its docstring, which stands above the table too. Bounds and rules for noise are
those of the oracle's test (tests/models/parity.py).
"""
import copy
import functools

import torch

import any_resolution
import parity
import pictures
import reference
import transformers_oracle_test as oracle
from rows import module_of, run_program
from transformers_oracle_test import RECIPE

NEW_TOKENS = 16
SHORT = {**RECIPE, "lrs": RECIPE["lrs"][:3]}
# AdamW's eps is above the rounding of gradients here: with 1e-8 a weight whose gradient is rounding
# alone (a key's bias) steps nearly as far as any other.
TRAINED = {**RECIPE, "lrs": [RECIPE["lr"]] * 3, "eps": 1e-6}
# Of the way that a tensor goes (as in tests/parity/cell_compare.cc), which is all of a weight that
# begins at 0, as the biases of a new projector do: AdamW divides an element's gradient, and its
# rounding with it, by its own size.
WAY = 2e-2
NO_PICTURES = "the model has no image encoder"


class Comparison:
    """A row's model, run by the program and by Transformers. What several checks need is run once.
    `name`: of the check, for the rows of its report."""

    def __init__(self, subject):
        self.subject = subject
        self.model = subject.model

    def ours(self, batch, **options):
        """The results of `equipoise check`, by the keys of Transformers."""
        found = parity.run_check(self.subject.folder, batch, **options)
        for prefix in ("grad.", "after."):
            of_kind = parity.strip(found, prefix)
            if not of_kind:
                continue
            found = {key: tensor for key, tensor in found.items() if not key.startswith(prefix)}
            native = self.subject.to_native(of_kind)
            found.update({prefix + key: tensor for key, tensor in native.items()})
        return found

    def gradients(self, model, samples):
        """(loss, logits, gradients) of Transformers' runs in fp32 and in double precision."""
        return [reference.gradients(copy.deepcopy(model).to(dtype), samples, self.subject.key_of)
                for dtype in (torch.float32, torch.float64)]

    def steps(self, model, samples, recipe, absent_is_zero=False):
        """(losses, norms, weights after) of them."""
        return [reference.adamw_steps(copy.deepcopy(model).to(dtype), samples, recipe,
                                      self.subject.key_of, absent_is_zero)
                for dtype in (torch.float32, torch.float64)]

    @functools.cached_property
    def samples(self):
        """The oracle's: with one picture, with several, without."""
        return oracle.make_samples(self.subject.has_pictures, self.subject.seed,
                                   self.model if self.subject.takes_grids else None,
                                   any_resolution.sizes_of(self.model.config))

    @functools.cached_property
    def of_samples(self):
        return self.gradients(self.model, self.samples)

    @functools.cached_property
    def unused(self):
        """Parameters that pictures do not reach either, such as those of the layers behind the one
        whose output LLaVA takes. They are trained nowhere."""
        found = self.of_samples[1][2]
        return {name for name, key in self.subject.key_of.items() if not found[key].any()}

    @functools.cached_property
    def plain(self):
        return self.ours(oracle.padded(self.samples), gradients=True, recipe=RECIPE)


def with_frozen(model, is_frozen):
    """A copy whose parameters of such names are not trained."""
    model = copy.deepcopy(model)
    for name, weight in model.named_parameters():
        weight.requires_grad_(not is_frozen(name))
    return model


def compare_logits(report, what, ours, theirs):
    report.add(what, "logits", parity.logit_error(ours, theirs), parity.FP32["logits"])


def compare_gradients(report, what, ours, runs):
    single, exact = (run[2] for run in runs)
    parity.compare_tensors(report, what, "gradients", parity.strip(ours, "grad."), exact,
                           parity.noise_floors(single, exact), parity.FP32["gradient"])


def compare_weights(report, what, case, weights, runs):
    """`runs`: in fp32 and in double precision."""
    begin = {case.subject.key_of[name]: tensor for name, tensor in case.model.named_parameters()}
    zeros = {key for key, tensor in begin.items() if not tensor.any()} & set(weights)
    exact = {key: tensor for key, tensor in runs[1][2].items() if key not in zeros}
    floors = parity.noise_floors({key: runs[0][2][key] for key in exact}, exact)
    parity.compare_tensors(report, what, "weights after",
                           {key: tensor for key, tensor in weights.items() if key not in zeros},
                           exact, floors, parity.FP32["after"])
    ways = {key: runs[1][2][key] for key in zeros if runs[1][2][key].any()}
    if ways:
        errors = parity.gradient_errors(weights, ways)
        worst = max(errors, key=lambda key: parity.rank(errors[key]))
        report.add(what, "way from 0", errors[worst], WAY, worst)


def padded_logits(runs, samples):
    width = max(sample["input_ids"].shape[1] for sample in samples)
    return oracle.join(runs[0][1], samples, width)


def logits(case):
    """Of a padded batch: a row with several pictures (and a video, where the model takes them), one
    with one picture, one without."""
    report = parity.Report()
    compare_logits(report, "", case.plain["logits"], padded_logits(case.of_samples, case.samples))
    return report


def loss(case):
    """Of the same batch."""
    report = parity.Report()
    parity.compare_loss(report, "", case.plain["loss"].item(), case.of_samples[0][0])
    return report


def gradients(case):
    """Of the same batch, every tensor's."""
    report = parity.Report()
    compare_gradients(report, "", case.plain, case.of_samples)
    return report


def ten_steps(case):
    """AdamW on the same batch: losses, gradient norms, weights afterwards."""
    report = parity.Report()
    runs = case.steps(case.model, case.samples, RECIPE)
    parity.compare_steps(report, "", case.plain, *runs[0][:2])
    compare_weights(report, "", case, parity.strip(case.plain, "after."), runs)
    return report


def packed(case):
    """Logits, loss and gradients of the same samples in one row."""
    report = parity.Report()
    ours = case.ours(oracle.packed(case.samples), gradients=True)
    theirs = torch.cat([part[0] for part in case.of_samples[0][1]])[None]
    compare_logits(report, "", ours["logits"], theirs)
    parity.compare_loss(report, "", ours["loss"].item(), case.of_samples[0][0])
    compare_gradients(report, "", ours, case.of_samples)
    return report


def text_sample(case, length, generator):
    """Random words, some of them trained."""
    ids = torch.randint(3, oracle.IMAGE - 3, (1, length), generator=generator)
    trained = torch.rand(1, length, generator=generator) < 0.4
    sample = {"input_ids": ids, "labels": torch.where(trained, ids, -100)}
    if case.subject.takes_grids:
        oracle.add_grids(case.model, sample, [], generator)
    return sample


def two_pictures(case, generator):
    """A sample with two pictures, or a video and a picture, and text between them."""
    sample = text_sample(case, 40, generator)
    sizes = any_resolution.sizes_of(case.model.config)
    if case.subject.takes_grids:
        oracle.add_grids(case.model, sample, [(1, 4, 6), (1, 8, 2)], generator)
    elif sizes:
        both = next(each for each in sizes if len(each) == 2)
        any_resolution.add(sample, sizes, both, generator)
    else:
        for at in (2, 4 + oracle.TOKENS_PER_TILE):
            sample["input_ids"][0, at:at + oracle.TOKENS_PER_TILE] = oracle.IMAGE
        sample["labels"][sample["input_ids"] == oracle.IMAGE] = -100
        sample["pixel_values"] = torch.randn(2, 3, 56, 56, generator=generator)
    return sample


def several_pictures(case):
    """Logits, loss and gradients of two rows with two pictures each and text between them."""
    if not case.subject.has_pictures:
        return NO_PICTURES
    generator = torch.Generator().manual_seed(100 + case.subject.seed)
    samples = [two_pictures(case, generator), two_pictures(case, generator)]
    runs = case.gradients(case.model, samples)
    ours = case.ours(oracle.padded(samples), gradients=True)
    report = parity.Report()
    compare_logits(report, "", ours["logits"], padded_logits(runs, samples))
    parity.compare_loss(report, "", ours["loss"].item(), runs[0][0])
    compare_gradients(report, "", ours, runs)
    return report


def text_alone(case):
    """Logits, loss, gradients and ten steps of packed rows without pictures: the encoder's
    gradients are zeros, and its weights decay."""
    if not case.subject.has_pictures:
        return "every row of a language model is text"
    generator = torch.Generator().manual_seed(200 + case.subject.seed)
    samples = [text_sample(case, length, generator) for length in (23, 37)]
    runs = case.gradients(case.model, samples)
    trained = with_frozen(case.model, lambda name: name in case.unused)
    steps = case.steps(trained, samples, RECIPE, absent_is_zero=True)
    ours = case.ours(oracle.packed(samples), gradients=True, recipe=RECIPE)
    report = parity.Report()
    compare_logits(report, "", ours["logits"], torch.cat([x[0] for x in runs[0][1]])[None])
    parity.compare_loss(report, "", ours["loss"].item(), runs[0][0])
    compare_gradients(report, "", ours, runs)
    parity.compare_steps(report, "", ours, *steps[0][:2])
    compare_weights(report, "", case, parity.strip(ours, "after."), steps)
    return report


def frozen(case):
    """Gradients and three steps with the encoder frozen, and with all but the projector: what is
    frozen keeps its bits."""
    if not case.subject.has_pictures:
        return "a language model is one module: nothing would be trained"
    report = parity.Report()
    for modules in (["vision"], ["vision", "llm"]):
        what = " and ".join(modules)
        model = with_frozen(case.model, lambda name: module_of(name) in modules)
        runs = case.gradients(model, case.samples)
        steps = case.steps(model, case.samples, SHORT)
        ours = case.ours(oracle.padded(case.samples), gradients=True, recipe=SHORT,
                         settings=[f"model.freeze=[{','.join(modules)}]"])
        after = parity.strip(ours, "after.")
        compare_gradients(report, what, ours, runs)
        parity.compare_steps(report, what, ours, *steps[0][:2])
        compare_weights(report, what, case, after, steps)
        moved = {case.subject.key_of[name]: not after[case.subject.key_of[name]].equal(weight)
                 for name, weight in model.named_parameters() if not weight.requires_grad}
        report.check(what, "bits of what is frozen", moved and not any(moved.values()),
                     ", ".join(key for key in moved if moved[key])[:200])
    return report


def reloaded(case, folder, weights, report):
    """What Transformers makes of an exported folder; of a form that it does not read, the model
    with its weights."""
    if case.subject.row.form in ("transformers", "parts"):
        model, found = type(case.model).from_pretrained(folder, output_loading_info=True)
        report.check("", "every weight is found, none is left over",
                     not found["missing_keys"] and not found["unexpected_keys"], str(found)[:200])
        return model.eval()
    model = copy.deepcopy(case.model)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(weights[case.subject.key_of[name]])
    return model


def export(case):
    """Weights after three steps of `train` on a record, exported, beside AdamW in Transformers;
    logits of the exported folder, loaded by both."""
    subject, report = case.subject, parity.Report()
    sample = subject.shown_sample()
    trained = with_frozen(case.model, lambda name: module_of(name) in subject.freeze)
    steps = case.steps(trained, [sample], TRAINED)
    folder = subject.train("run", len(TRAINED["lrs"]), f"train.eps={TRAINED['eps']}")
    exported = subject.tensors(folder)
    report.check("", "the names that it came with",
                 set(exported) == set(subject.tensors(subject.folder)))
    weights = subject.to_native(exported)
    compare_weights(report, "", case, weights, steps)
    before = subject.tensors(subject.native)
    report.check("", "weights have moved", any(not weights[key].equal(before[key])
                                               for key in weights))
    model = reloaded(case, folder, weights, report)
    with torch.no_grad():
        theirs = [reference.loss_and_logits(model, [each])[1][0] for each in case.samples]
    ours = parity.run_check(folder, oracle.padded(case.samples))
    compare_logits(report, "", ours["logits"], oracle.join(theirs, case.samples,
                                                           ours["logits"].shape[1]))
    return report


def greedy(model, inputs):
    """The ids of Transformers' answer."""
    ids = inputs["input_ids"]
    with torch.no_grad():
        out = model.generate(**inputs, attention_mask=torch.ones_like(ids), do_sample=False,
                             max_new_tokens=NEW_TOKENS, eos_token_id=pictures.END, pad_token_id=0)
    return out[0, ids.shape[1]:].tolist()


def generate(case):
    """Greedy answers of 16 tokens to questions about no, one and two pictures, token by token."""
    subject, report = case.subject, parity.Report()
    folder, model = subject.write_answering()
    paths = pictures.draw(subject.home)
    letters = list(pictures.letter_ids())
    for question, count in (("What is 3 plus 2?", 0), ("<image>\nWhat is it?", 1),
                            ("<image>\nIs it like <image>?", 2)):
        if count and not subject.has_pictures:
            continue
        inputs = pictures.prompt(folder, model, question, paths[:count])
        ids = greedy(model, inputs)
        if len(ids) != NEW_TOKENS or set(ids) - set(letters):
            raise ValueError(f"Transformers' answer is no {NEW_TOKENS} letters: {ids}")
        theirs = "".join(pictures.LETTERS[letters.index(token)] for token in ids)
        shown = [word for path in paths[:count] for word in ("--image", path)]
        ours = run_program("generate", folder, "--prompt", question, *shown, "--max-new-tokens",
                           str(NEW_TOKENS), "--set", "train.precision=fp32", "--set",
                           "data.template=chatml", "--set", "data.tiles.max=1")
        report.check("", f"answer with {count} pictures", ours == theirs + "\n",
                     f"{ours[:-1]!r}, Transformers {theirs!r}")
    return report


CHECKS = {"logits": logits, "loss": loss, "gradients": gradients, "ten steps": ten_steps,
          "packed": packed, "several pictures": several_pictures, "text alone": text_alone,
          "frozen": frozen, "export": export, "generate": generate}


def run(subject, names):
    """The cells of a row: {"errors": [...]} with the lines of the report, {"reason": ...} where the
    check does not apply, {"failure": ...} where it could not be made."""
    case, cells = Comparison(subject), {}
    for name in names:
        try:
            made = CHECKS[name](case)
        except Exception as error:  # pylint: disable=broad-except
            cells[name] = {"failure": f"{type(error).__name__}: {error}"}
            continue
        if isinstance(made, str):
            cells[name] = {"reason": made}
            continue
        keys = ("of", "what", "error", "bound", "worst", "ok")
        cells[name] = {"errors": [dict(zip(keys, line)) for line in made.rows]}
    return cells
