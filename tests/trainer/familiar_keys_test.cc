#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "configs/yaml/yaml_reader.h"
#include "configs/yaml/yaml_writer.h"
#include "trainer/settings/run_config.h"

namespace equipoise {
namespace {

using Catch::Matchers::Contains;

std::string Failure(const std::string& text) {
  RunConfig config;
  try {
    ReadConfigText("a.yaml", text, {}, config);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

struct Row {
  const char* key;    // of ours
  const char* names;  // of other trainers
};

const std::vector<Row> kKeys = {
    {"model.hf", "model_name_or_path"},
    {"model.vision", "vision_tower vit_path"},
    {"model.llm", "llm_path"},
    {"model.freeze",
     "freeze_vit freeze_vision_tower freeze_aligner freeze_multi_modal_projector "
     "freeze_language_model tune_mm_llm tune_mm_mlp tune_mm_vision tune_mm_mlp_adapter "
     "mm_tunable_parts"},
    {"model.unfreeze",
     "unfreeze_vit_layers freeze_trainable_layers trainable_parameters trainable_parameters_regex "
     "freeze_extra_modules unfreeze_lm_head"},
    {"model.projector.feature_layer", "vision_select_layer"},
    {"model.projector.downsample_ratio", "down_sample_ratio"},
    {"model.drop_path", "drop_path_rate"},
    {"model.base", "quantization_bit load_in_4bit"},
    {"model.adapter.init", "adapter_name_or_path lora_path"},
    {"model.adapter.targets", "lora_target target_modules finetuning_type"},
    {"model.adapter.rank", "r lora_rank use_llm_lora"},
    {"model.adapter.alpha", "lora_alpha"},
    {"model.adapter.dropout", "lora_dropout"},
    {"model.adapter.dora", "use_dora"},
    {"model.adapter.rslora", "use_rslora"},
    {"model.adapter.train", "modules_to_save additional_target"},
    {"train.lr", "learning_rate"},
    {"train.lr_factor.vision", "vit_lr vision_tower_lr mm_vision_tower_lr"},
    {"train.lr_factor.projector", "aligner_lr mm_projector_lr"},
    {"train.min_lr", "min_lr_ratio min_lr_rate lr_scheduler_kwargs"},
    {"train.schedule", "lr_scheduler_type"},
    {"train.warmup", "warmup_ratio warmup_steps"},
    {"train.steps", "max_steps"},
    {"train.global_batch", "per_device_train_batch_size gradient_accumulation_steps batch_size"},
    {"train.beta1", "adam_beta1"},
    {"train.beta2", "adam_beta2"},
    {"train.eps", "adam_epsilon"},
    {"train.moments", "optim"},
    {"train.clip", "max_grad_norm"},
    {"train.precision", "bf16 fp16 torch_dtype"},
    {"train.loss", "loss_reduction"},
    {"train.seed", "data_seed"},
    {"balance.recompute", "gradient_checkpointing"},
    {"balance.group", "group_by_length group_by_modality_length"},
    {"balance.tiles", "num_images_expected"},
    {"data.train", "dataset meta_path data_path"},
    {"data.eval", "eval_dataset val_size"},
    {"data.max_tokens", "cutoff_len max_length max_packed_tokens model_max_length"},
    {"data.max_frames", "video_maxlen frames_upbound"},
    {"data.pixels.max", "max_pixels image_max_pixels"},
    {"data.pixels.min", "min_pixels image_min_pixels"},
    {"data.video_pixels.max", "video_max_pixels"},
    {"data.tiles.max", "max_dynamic_patch dynamic_image_size"},
    {"data.tiles.min", "min_dynamic_patch"},
    {"data.tiles.thumbnail", "use_thumbnail"},
    {"data.template", "template conv_style version"},
    {"data.system", "default_system system_prompt system"},
    {"data.threads", "dataloader_num_workers preprocessing_num_workers"},
    {"data.allow_outside", "follow_links"},
    {"run.dir", "output_dir overwrite_output_dir"},
    {"checkpoint.every", "save_steps save_strategy"},
    {"checkpoint.keep", "save_total_limit"},
    {"checkpoint.best", "load_best_model_at_end"},
    {"eval.every", "eval_steps eval_strategy"},
    {"parallel.zero", "deepspeed zero_stage"},
    {"parallel.timeout_s", "ddp_timeout"},
    {"parallel.tensor", "tensor_model_parallel_size"},
    {"parallel.pipeline", "pipeline_model_parallel_size"},
    {"parallel.context", "sequence_parallel_size"},
};

std::vector<std::string> Words(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> words;
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

TEST_CASE("keys of other trainers are led to ours, which exist", "[trainer][cpu]") {
  const std::string help = HelpText(RunConfig{});
  for (const Row& row : kKeys) {
    INFO(row.key);
    CHECK_THAT(help, Contains(row.key));
    for (const std::string& name : Words(row.names)) {
      INFO(name);
      const std::string says = Failure(name + ": 1");
      const std::string start = "a.yaml:1:1: " + name + ": unknown key; the key here is ";
      CHECK_THAT(says + ",", Contains(start + row.key + ","));
    }
  }
}

TEST_CASE("keys of a source and of a section are led to ours", "[trainer][cpu]") {
  CHECK(Failure("data: {train: [{root: a}]}") ==
        "a.yaml:1:17: data.train.0.root: unknown key; the key here is images, of a source in "
        "data.train");
  CHECK_THAT(Failure("data: {train: [{repeat_time: 1}]}"), Contains("is repeat,"));
  CHECK_THAT(Failure("data: {train: [{sampling_rate: 1}]}"), Contains("is repeat,"));
  CHECK_THAT(Failure("data: {max_samples: 1}"), Contains("is max_samples, of a source"));
  CHECK_THAT(Failure("data: {max_pixels: 1}"), Contains("is data.pixels.max"));
  CHECK_THAT(Failure("data: {video_maxlen: 1}"), Contains("is data.max_frames"));
  CHECK_THAT(Failure("train: {vit_lr: 1}"),
             Contains("is train.lr_factor.vision, a factor on train.lr"));
  CHECK_THAT(Failure("model: {target_modules: 1}"), Contains("is model.adapter.targets"));
  CHECK_THAT(Failure("model: {lora_path: 1}"), Contains("is model.adapter.init"));
  CHECK(Failure("train: {num_train_epochs: 1}") ==
        "a.yaml:1:9: train.num_train_epochs: unknown key; the key here is train.epochs");
}

TEST_CASE("the batch of other trainers is told exactly", "[trainer][cpu]") {
  CHECK(Failure("per_device_train_batch_size: 1") ==
        "a.yaml:1:1: per_device_train_batch_size: unknown key; the key here is "
        "train.global_batch, packs of a step, over all ranks; for a fixed number of samples set "
        "balance.group: random (or length_grouped), train.micro_batch = samples of a GPU at a "
        "time, and train.global_batch = accumulation x GPUs: a step has micro_batch x "
        "global_batch samples");
}

TEST_CASE("beside other keys the advice is brief and does not mislead", "[trainer][cpu]") {
  CHECK(Failure("learning_rate: 1\nmax_samples: 1\nper_device_train_batch_size: 1\n"
                "gradient_accumulation_steps: 1\nvit_lr: 1\nlora_rank: 1\nstage: sft\n") ==
        "a.yaml:1:1: learning_rate: unknown key; the key here is train.lr; also unknown: "
        "'max_samples' (line 2: write max_samples of a source), 'per_device_train_batch_size' "
        "(line 3: "
        "write train.global_batch in packs, or train.micro_batch with balance.group: random), "
        "'gradient_accumulation_steps' (line 4: write train.global_batch = accumulation x GPUs), "
        "'vit_lr' (line 5: write train.lr_factor.vision as a factor on train.lr), 'lora_rank' "
        "(line 6: write model.adapter.rank), 'stage' (line 7: leave it out)");
}

TEST_CASE("what is not supported or not needed is said", "[trainer][cpu]") {
  for (const std::string& name :
       Words("pref_beta rlhf_type sigmoid_loss_weight neftune_noise_alpha pissa_init "
             "loraplus_lr_ratio label_smoothing_factor")) {
    CHECK_THAT(Failure(name + ": 1"), Contains("is not supported; leave it out"));
  }
  CHECK(Failure("neftune_noise_alpha: 5") ==
        "a.yaml:1:1: neftune_noise_alpha: unknown key; NEFTune is not supported; leave it out");
  for (const std::string& name :
       Words("stage report_to logging_steps resume_from_checkpoint packing neat_packing "
             "padding_free data_flatten data_packing use_packed_ds loss_reduction_all_gather "
             "trust_remote_code plot_loss do_train")) {
    INFO(name);
    CHECK_THAT(Failure(name + ": 1"), Contains("; leave it out") && !Contains("the key here"));
  }
}

TEST_CASE("values of other trainers are led to ours", "[trainer][cpu]") {
  struct Value {
    const char *key, *theirs, *says;
  };
  const std::vector<Value> values = {
      {"schedule", "constant_with_warmup", "write constant, whose warm-up is train.warmup"},
      {"schedule", "cosine_with_min_lr", "write cosine, with train.min_lr as a share of train.lr"},
      {"schedule", "inverse_sqrt", "not supported; choose one of these"},
      {"schedule", "polynomial", "write linear"},
      {"schedule", "cosine_with_restarts", "write cosine"},
      {"template", "v1", "write vicuna_v1"},
      {"template", "llava", "write vicuna_v1"},
      {"template", "qwen2_vl", "write qwen2-vl"},
      {"template", "qwen_1_5", "write qwen2-vl"},
      {"template", "qwen3_vl", "write chatml"},
      {"template", "qwen3_thinking", "write qwen3"},
      {"template", "qwen3_vl_nothink", "write chatml"},
      {"template", "intern_vl", "write internvl2_5"},
      {"template", "qwen", "write qwen2_5"},
      {"template", "llama2", "write llama-2"},
      {"template", "llama3", "write llama-3"},
      {"template", "chatmll", "did you mean 'chatml'?"},
  };
  for (const Value& value : values) {
    const std::string key = value.key;
    const std::string section = key == "schedule" ? "train" : "data";
    const std::string says = Failure(section + ": {" + key + ": " + value.theirs + "}");
    CHECK_THAT(says, Contains("is not one of ") && Contains(value.says));
    // A template that is named exists.
    const std::string write = "write ";
    if (key != "template" || says.find(write) == std::string::npos) continue;
    CHECK(Failure("data: {template: " + says.substr(says.find(write) + write.size()) + "}") ==
          "no error");
  }
}

}  // namespace
}  // namespace equipoise
