#include "configs/yaml/familiar_names.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace equipoise {
namespace {

struct Familiar {
  std::string_view names;  // of other trainers, between spaces
  const char* way;
};

constexpr char kSteps[] =
    "the key here is train.steps, a number of steps: samples / (samples of a pack * "
    "train.global_batch) for each epoch";
constexpr char kBatch[] =
    "the key here is train.global_batch, the packs of a step over all ranks; micro-batches follow "
    "from data.max_tokens";
constexpr char kLora[] =
    "the keys here are in model.adapter: targets, rank, alpha, dropout, rslora, dora";

constexpr std::array<Familiar, 24> kFamiliar = {{
    {" learning_rate base_lr max_lr ", "the key here is train.lr"},
    {" num_train_epochs epochs epoch num_epochs max_epochs ", kSteps},
    {" max_steps num_steps total_steps train_iters ", "the key here is train.steps"},
    {" batch_size per_device_train_batch_size train_batch_size micro_batch_size "
     "gradient_accumulation_steps global_batch_size ",
     kBatch},
    {" lora lora_rank lora_r lora_alpha lora_target use_lora use_llm_lora use_backbone_lora peft "
     "finetuning_type train_type ",
     kLora},
    {" model_name_or_path model_path pretrained_model ", "the key here is model.hf"},
    {" vision_tower mm_vision_tower vision_path llm_path vit_path ",
     "the keys here are model.vision and model.llm, folders"},
    {" freeze_llm freeze_backbone freeze_mlp freeze_vit freeze_vision_tower freeze_aligner ",
     "the key here is model.freeze, a list of vision, projector and llm"},
    {" dataset data_path meta_path train_file train_files dataset_dir ",
     "the key here is data.train, a list of {annotations: FILE.jsonl, images: FOLDER} or "
     "{annotations: dataset_info.json, datasets: [NAME]}"},
    {" eval_dataset val_dataset validation_file ", "the key here is data.eval"},
    {" image_folder image_dir media_dir ", "the key here is images, of each source in data.train"},
    {" follow_links ", "the key here is data.allow_outside"},
    {" max_length max_seq_length max_seq_len cutoff_len model_max_length ",
     "the key here is data.max_tokens"},
    {" conv_style ", "the key here is data.template"},
    {" max_dynamic_patch min_dynamic_patch use_thumbnail dynamic_image_size ",
     "the keys here are data.tiles.min, data.tiles.max and data.tiles.thumbnail"},
    {" dataloader_num_workers num_workers preprocessing_num_workers ",
     "the key here is data.threads"},
    {" lr_scheduler_type lr_scheduler ", "the key here is train.schedule"},
    {" warmup_ratio warmup_steps lr_warmup_steps ", "the key here is train.warmup"},
    {" bf16 fp16 dtype torch_dtype mixed_precision ", "the key here is train.precision"},
    {" max_grad_norm grad_clip gradient_clipping ", "the key here is train.clip"},
    {" gradient_checkpointing grad_checkpoint ", "the key here is balance.recompute"},
    {" save_steps save_interval save_total_limit ",
     "the keys here are checkpoint.every and checkpoint.keep"},
    {" output_dir save_dir ", "the key here is run.dir"},
    {" deepspeed zero_stage fsdp ", "the key here is parallel.zero"},
}};

}  // namespace

std::string FamiliarName(const std::string& name) {
  for (const Familiar& familiar : kFamiliar) {
    if (familiar.names.find(fmt::format(" {} ", name)) != std::string_view::npos)
      return familiar.way;
  }
  return "";
}

}  // namespace equipoise
