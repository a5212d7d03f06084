"""Adapters over a model from parts: the losses, weights and answers of adapters over one folder of
the same weights, beside a projector that is trained already and beside a new one."""
import os
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file

import tiny_case
from parts_test import Case, InternVl, Llava

LINEAR = {"model__adapter__targets": "all-linear"}
NEW = {"model__adapter__targets": '["language_model.*_proj"]',
       "model__adapter__train": '["multi_modal_projector"]'}
OVER = {"model__freeze": "[]", "model__adapter__rank": 4}


class Adapters(Case):
    def pair(self, name, hf, projector="", **settings):
        """Runs over the parts and over the folder `hf`."""
        run = f"{self.folder}/{name}"
        parts = {"model__projector__weights": projector} if projector else {}
        self.run(f"{name}: over the parts", 2, run__dir=run, **OVER, **parts, **settings)
        self.run(f"{name}: over one folder", 2, run__dir=f"{run}_joined", model__vision='""',
                 model__llm='""', model__hf=hf, **OVER, **settings)
        losses, want = tiny_case.losses(run), tiny_case.losses(f"{run}_joined")
        self.check(f"{name}: the same losses bit by bit", len(want) == 3 and losses == want
                   and losses[-1] < losses[0], f"{losses} {want}")
        return run

    def trained_projector(self):
        """LLaVA's second stage with adapters, on what its first has left."""
        self.run("the first stage", 2)
        self.export("run", "exported")
        stage = f"{self.folder}/exported"
        over = {"hf": stage, "projector": f"{stage}/model.safetensors", **LINEAR}
        self.pair("lora", **over)
        self.pair("dora_int8", model__adapter__dora="true", model__base="int8", **over)
        self.pair("tensor_dora", model__adapter__dora="true", parallel__tensor=2,
                  parallel__data=1, **over)

    def new_projector(self):
        """Trained in full beside the adapters."""
        self.run("no step is taken", 1, train__lr=0, train__steps=1, run__dir=f"{self.folder}/zero")
        self.export("zero", "start")
        run = self.pair("new", f"{self.folder}/start", **NEW)
        losses, again = tiny_case.losses(run), f"{run}_again"
        self.run("two steps", 2, run__dir=again, train__steps=2, **OVER, **NEW)
        self.run("and one more on another mesh", 1, run__dir=again, says="step 2 of 3", **OVER,
                 **NEW)
        resumed = tiny_case.losses(again)
        self.check("the losses of a run that was not resumed", len(resumed) == 3 and all(
            abs(a - b) < 1e-5 for a, b in zip(losses, resumed)), f"{resumed} {losses}")
        return run

    def exports(self, run):
        for more, file in (((), "adapter_model"), (("--merge",), "model")):
            made = []
            for where in (run, f"{run}_joined"):
                out = f"{where}_{file}"
                done = tiny_case.program("export", where, "--out", out, *more)
                said = "with --merge the whole model" in done.stderr
                self.check(f"{os.path.basename(out)} is exported, and what it lies over is said",
                           done.returncode == 0 and said == (where == run and not more),
                           done.stderr[-500:])
                made.append(load_file(f"{out}/{file}.safetensors"))
            self.check(f"{file}: the tensors of one folder's", made[0].keys() == made[1].keys()
                       and all(torch.equal(made[0][k], made[1][k]) for k in made[0]))
        answers = []
        for where in (run, f"{run}_model"):
            done = tiny_case.program("generate", where, "--prompt", "What is it?",
                                     "--max-new-tokens", "4")
            answers.append(done.stdout)
            self.check(f"{os.path.basename(where)} answers", done.returncode == 0,
                       done.stderr[-500:])
        self.check("the merged model's answer", answers[0] == answers[1], str(answers))

    def other_base(self, run):
        other = f"{self.folder}/other_llm"
        shutil.copytree(self.parts.llm, other)
        tensors = load_file(f"{other}/model.safetensors")
        save_file({k: v * 1.01 for k, v in tensors.items()}, f"{other}/model.safetensors")
        done = tiny_case.program("export", run, "--merge", "--out", f"{run}_wrong", "--set",
                                 f"model.llm={other}")
        self.check("other weights under the adapters are refused", done.returncode == 2
                   and "trained over another base" in done.stderr
                   and "--set model.vision=FOLDER --set model.llm=FOLDER" in done.stderr,
                   done.stderr[-500:])


def main():
    results = tiny_case.Results()
    folder = tempfile.mkdtemp(prefix="parts_adapters")
    records = tiny_case.write_records(folder, 20, seed=2)
    for kind in (Llava, InternVl):
        case = Adapters(results, folder, records, kind)
        if kind is Llava:
            case.trained_projector()
        run = case.new_projector()
        case.exports(run)
        case.other_base(run)
    shutil.rmtree(folder)
    results.finish()


if __name__ == "__main__":
    sys.exit(main())
