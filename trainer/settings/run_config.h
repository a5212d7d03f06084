#pragma once

#include <optional>
#include <string>
#include <vector>

#include "balance/costs/cluster.h"
#include "configs/yaml/fields.h"
#include "data/settings/data_config.h"
#include "data/settings/loss_weight.h"
#include "trainer/settings/adapter_section.h"
#include "trainer/settings/balance_section.h"
#include "trainer/settings/diloco_section.h"
#include "trainer/settings/goal_section.h"
#include "trainer/settings/loss_scale_section.h"
#include "trainer/settings/offload.h"
#include "trainer/settings/parallel_section.h"
#include "trainer/settings/precision.h"
#include "trainer/settings/projector_section.h"
#include "trainer/settings/run_section.h"

namespace equipoise {

struct ModelSection {
  std::string hf;
  std::string preset;
  std::string vision, llm;
  ProjectorSection projector;
  std::string init = "pretrained";
  std::vector<std::string> freeze, unfreeze;
  std::optional<double> drop_path;
  AdapterSection adapter;
  std::string base = "none";
  std::vector<std::string> base_modules = {"llm"};

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("hf", hf, "Hugging Face folder: config.json, tokenizer, weights");
    visit("preset", preset, "a model known by name, in place of hf");
    visit("vision", vision,
          "in place of hf: folder of an image encoder (CLIP, SigLIP or InternViT), with llm");
    visit("llm", llm, "folder of a language model, with its tokenizer; the projector is new");
    visit("projector", projector, "the projector between them");
    visit("init", init, "weights of the first step", OneOf({"random", "pretrained"}));
    visit("freeze", freeze, "modules that are not trained: vision, projector, llm");
    visit("unfreeze", unfreeze,
          "what is trained of them all the same: blocks, as vision[-8:] (the last eight), or names "
          "of modules and regular expressions on them, such as lm_head");
    visit(
        "drop_path", drop_path,
        "stochastic depth of an InternViT that is trained: the share of tiles that skip a half of "
        "its last block; absent: drop_path_rate of the model's folder",
        Between(0, 0.99));
    visit("adapter", adapter, "low-rank adapters in place of the model's own weights");
    visit("base", base,
          "form of the frozen linear layers under adapters; nf4 = 4 bits (QLoRA), int8 = 8 bits by "
          "row",
          OneOf({"none", "nf4", "int8"}));
    visit("base_modules", base_modules,
          "modules (vision, projector, llm) whose linear layers `base` is for");
  }
};

struct LearningRateSection {
  double vision = 1.0, projector = 1.0, llm = 1.0;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("vision", vision, "factor on lr for the image encoder", AtLeast(0));
    visit("projector", projector, "factor on lr for the projector", AtLeast(0));
    visit("llm", llm, "factor on lr for the language model", AtLeast(0));
  }
};

struct TrainSection {
  int64_t steps = 200;
  double epochs = 0;
  int64_t seed = 0;
  std::string device = "auto";
  std::string kernels = "auto";
  std::string attention = "auto";
  std::string precision = "auto";
  bool fp8 = false;
  LossScaleSection loss_scale;
  int64_t global_batch = 16;
  int64_t micro_batch = 4;
  double lr = 1e-4;
  LearningRateSection lr_factor;
  double min_lr = 0.0;
  double warmup = 0.03;
  std::string schedule = "cosine";
  double decay = 0.1;
  double weight_decay = 0.05;
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  MomentPrecision moments = MomentPrecision::kFp32;
  MasterPrecision master = MasterPrecision::kFp32;
  std::vector<OffloadedState> offload;
  double clip = 1.0;
  DilocoSection diloco;
  LossWeight loss = LossWeight::kToken;
  int64_t threads = 0;
  bool deterministic = false;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("steps", steps, "optimizer steps", Between(1, 1e12));
    visit("epochs", epochs,
          "passes over the data, such as 3 or 0.5, which decide train.steps then (not that of "
          "--set); 0 = train.steps counts",
          Between(0, 1e6));
    visit("seed", seed, "of random weights and of the samples' order", Between(0, 4294967295.0));
    visit("device", device, "where ranks compute; auto: on GPUs where there are some",
          OneOf({"auto", "cpu", "cuda"}));
    visit(
        "kernels", kernels,
        "auto: beside LibTorch's the program's own on GPUs, and on CPUs where MKL is slow oneDNN's "
        "products and own attention in bf16; aten: LibTorch's alone",
        OneOf({"auto", "aten"}));
    visit(
        "attention", attention,
        "of GPUs, in 16 bits; flash: LibTorch's, cudnn_tiles: cuDNN's for tiles of one size; auto: "
        "the latter on Hopper and later, unless the run is deterministic",
        OneOf({"auto", "flash", "cudnn_tiles"}));
    visit("precision", precision,
          "auto: bf16 where the device has bf16 matrix units, else fp32; fp16 scales the loss",
          OneOf(PrecisionSettings()));
    visit(
        "fp8", fp8,
        "with bf16 on GPUs that have fp8 units: products of blocks' linear layers in fp8 (e4m3, a "
        "scale for each row), but for weights' gradients");
    visit("loss_scale", loss_scale, "factor of the loss in fp16, so that gradients stay in range");
    visit("global_batch", global_batch, "packs per optimizer step, over all data ranks",
          Between(1, 10'000'000));
    visit("micro_batch", micro_batch,
          "samples per micro-batch where balance.group is random or length_grouped",
          Between(1, 1'000'000));
    visit("lr", lr, "highest learning rate", AtLeast(0));
    visit("lr_factor", lr_factor, "learning rate of each module as a factor on lr");
    visit("min_lr", min_lr, "learning rate at the end, as a share of lr", Between(0, 1));
    visit("warmup", warmup, "steps of linear warm-up: a share of all steps below 1, else a number",
          Between(0, 1e12));
    visit("schedule", schedule, "of the learning rate after the warm-up",
          OneOf({"cosine", "linear", "constant", "wsd"}));
    visit("decay", decay,
          "last steps, in which wsd (warm-up, stable, decay) lowers the rate: a share of all steps "
          "below 1, else a number",
          Between(0, 1e12));
    visit("weight_decay", weight_decay, "AdamW's, on parameters of two or more dimensions",
          AtLeast(0));
    visit("beta1", beta1, "AdamW's first moment", Between(0, 0.99999));
    visit("beta2", beta2, "AdamW's second moment", Between(0, 0.99999));
    visit("eps", eps, "AdamW's", AtLeast(0));
    visit("moments", moments,
          "AdamW's moments between two steps, rounded after each; bf16 takes 4 bytes less for each "
          "trained parameter, 8bit (codes and scales as bitsandbytes') 6 bytes less");
    visit("master", master,
          "of a trained weight in 16 bits; none: of bf16 weights, which are the only copy then (2 "
          "bytes less for each), and which each step rounds stochastically, by train.seed");
    visit("offload", offload,
          "in host memory in place of a GPU's; optimizer: AdamW's state, where it steps then; with "
          "it gradients (ZeRO 2), with both parameters (ZeRO 3); activations: of blocks, where bar "
          "finds that cheaper");
    visit("clip", clip, "largest global gradient norm; 0 = no clipping", AtLeast(0));
    visit("diloco", diloco, "several models, on islands of ranks that meet now and then (DiLoCo)");
    visit("loss", loss, "weight of a sample's x target tokens: 1, 1/x, 1/sqrt(x) each");
    visit("threads", threads,
          "compute threads of a rank; 0 = its share of the cores that it may run on",
          Between(0, 1024));
    visit("deterministic", deterministic,
          "refuse operations whose result depends on the order of threads");
  }
};

struct CheckpointSection {
  int64_t every = 50;
  double epochs = 0;
  int64_t keep = 3;
  std::string best;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("every", every, "steps between checkpoints", Between(1, 1e12));
    visit("epochs", epochs, "passes over the data between them, in place of `every`; 0 = every",
          Between(0, 1e6));
    visit("keep", keep, "checkpoints kept", Between(1, 1e6));
    visit("best", best,
          "measure whose best checkpoint is kept besides, linked as `best`: eval_loss, or a set of "
          "eval.answers and its measure, such as heldout/anls; empty = none");
  }
};

struct EvalSection {
  int64_t every = 0;
  double epochs = 0;
  int64_t samples = 256;
  std::vector<SourceConfig> answers;
  int64_t answer_every = 0;
  int64_t answer_samples = 0;
  int64_t answer_tokens = 64;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("every", every, "steps between losses on data.eval; 0 = at the end alone",
          Between(0, 1e12));
    visit("epochs", epochs,
          "passes over the data between these, and between answers too, in place of `every` and "
          "`answer_every`; 0 = those",
          Between(0, 1e6));
    visit("samples", samples, "held-out samples used for a loss", Between(1, 1e9));
    visit("answers", answers,
          "sources whose questions the model answers at the end (a few before the first step too)");
    visit("answer_every", answer_every,
          "steps between answers to them, whose scores metrics.jsonl holds; 0 = at the end alone",
          Between(0, 1e12));
    visit("answer_samples", answer_samples, "samples answered of each source; 0 = all",
          Between(0, 1e9));
    visit("answer_tokens", answer_tokens, "longest answer", Between(1, 1e6));
  }
};

// The whole configuration file.
struct RunConfig {
  RunSection run;
  ModelSection model;
  DataConfig data;
  TrainSection train;
  ParallelSection parallel;
  BalanceSection balance;
  ClusterConfig cluster;
  GoalSection goal;
  CheckpointSection checkpoint;
  EvalSection eval;

  template <class Visitor>
  void VisitFields(Visitor& visit) {
    visit("run", run, "where the run lives");
    visit("model", model, "what is trained");
    visit("data", data, "what it is trained on");
    visit("train", train, "how it is trained");
    visit("parallel", parallel, "how ranks share the work; `auto` = all defaults");
    visit("balance", balance, "how work and memory are evened out");
    visit("cluster", cluster, "the machines that plans and forecasts are made for");
    visit("goal", goal, "what a plan must keep, and what it is chosen by");
    visit("checkpoint", checkpoint, "how often the run is saved");
    visit("eval", eval, "how often it is measured on held-out data");
  }
};

}  // namespace equipoise
