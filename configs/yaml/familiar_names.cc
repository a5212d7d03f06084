#include "configs/yaml/familiar_names.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

namespace equipoise {
namespace {

// In place of a key of ours: nothing here does the same, or it is done anyway.
constexpr char kUnsupported[] = "not supported", kNeedless[] = "leave it out";

struct Familiar {
  std::string_view names;      // of other trainers, between spaces
  std::string_view key;        // of ours, or one of the two words above
  std::string_view note = {};  // how to use it; of these words what the name stands for
  // Beside others, in place of the key where it alone would mislead.
  std::string_view brief = {};
};

constexpr std::string_view kFixedBatch =
    "packs of a step, over all ranks; for a fixed number of samples set balance.group: random (or "
    "length_grouped), train.micro_batch = samples of a GPU at a time, and train.global_batch = "
    "accumulation x GPUs: a step has micro_batch x global_batch samples";
constexpr std::string_view kFrozen = "a list of what is not trained: vision, projector, llm";
constexpr std::string_view kFactor = "a factor on train.lr: this rate / train.lr";
constexpr std::string_view kSources =
    "a list of {annotations: FILE.jsonl, images: FOLDER} or {annotations: dataset_info.json, "
    "datasets: [NAME]}";
constexpr std::string_view kOfSource = "of a source in data.train";
constexpr std::string_view kPacked =
    "samples are always packed without padding, and none sees another (balance.group says how)";

constexpr auto kFamiliar = std::to_array<Familiar>({
    // The model.
    {" model_name_or_path model_path pretrained_model model_id ", "model.hf"},
    {" vision_tower mm_vision_tower vision_path vit_path ", "model.vision",
     "a folder, with that of a language model in model.llm"},
    {" llm_path ", "model.llm", "a folder, with that of an encoder in model.vision"},
    {" freeze_llm freeze_backbone freeze_mlp freeze_vit freeze_vision_tower freeze_aligner "
     "freeze_multi_modal_projector freeze_language_model tune_mm_llm tune_mm_mlp tune_mm_vision "
     "mm_tunable_parts unfreeze_mm_vision_tower ",
     "model.freeze", kFrozen},
    {" unfreeze_vit_layers ", "model.unfreeze",
     "[\"vision[-8:]\"] for -8, with vision in model.freeze"},
    {" freeze_trainable_layers num_layer_trainable ", "model.unfreeze",
     "[\"llm[-2:]\"] for 2, [\"llm[:2]\"] for -2, with model.freeze: [vision, projector, llm]"},
    {" trainable_parameters trainable_parameters_regex freeze_extra_modules unfreeze_lm_head "
     "freeze_trainable_modules name_module_trainable ",
     "model.unfreeze",
     "a list of names of modules or regular expressions on them, such as [lm_head], with their "
     "components in model.freeze"},
    {" freeze_parameters freeze_parameters_regex freeze_parameters_ratio ", "model.freeze",
     "whole components; model.unfreeze says what is trained of them, in place of what is not"},
    {" tune_mm_mlp_adapter train_mm_proj_only ", "model.freeze",
     "[vision, llm] trains the projector alone"},
    {" vision_select_layer mm_vision_select_layer ", "model.projector.feature_layer",
     "of a model from parts; a folder's own says it itself"},
    {" down_sample_ratio ", "model.projector.downsample_ratio",
     "of a model from parts; a folder's own says it itself"},
    {" drop_path_rate ", "model.drop_path"},
    {" quantization_bit load_in_4bit load_in_8bit quant_bits quantization_method quant_method ",
     "model.base", "nf4 for 4 bits, int8 for 8, under adapters"},
    {" adapter_name_or_path lora_path adapters resume_lora_path ", "model.adapter.init",
     "a folder of PEFT"},
    {" trust_remote_code ", kNeedless, "no code of a model's folder is run"},
    {" custom_register_path external_plugins plugin ", kUnsupported, "code of a user's own"},
    {" model_type model_revision hf_hub_token use_hf use_modelscope ", kNeedless,
     "the folder model.hf says what it is, and nothing is downloaded"},
    {" rope_scaling rope_factor ", kUnsupported, "another rope_scaling than the folder's,"},
    {" flash_attn attn_impl attn_implementation enable_liger_kernel use_liger_kernel use_unsloth ",
     kNeedless, "attention in packs and the other kernels are the program's own choice"},
    // Adapters.
    {" lora_rank lora_r r use_llm_lora use_backbone_lora ", "model.adapter.rank",
     "with model.adapter.targets, such as [all-linear]"},
    {" lora_target lora_target_modules target_modules target_regex ", "model.adapter.targets",
     "a list such as [all-linear] or [q_proj, v_proj]"},
    {" lora use_lora lora_enable peft finetuning_type train_type tuner_type ",
     "model.adapter.targets", "[all-linear] for LoRA; without targets all of the model is trained"},
    {" lora_alpha ", "model.adapter.alpha"},
    {" lora_dropout ", "model.adapter.dropout"},
    {" use_rslora ", "model.adapter.rslora"},
    {" use_dora ", "model.adapter.dora"},
    {" modules_to_save additional_target ", "model.adapter.train"},
    {" pissa_init pissa_iter pissa_convert init_lora_weights init_weights ", kUnsupported,
     "PiSSA, or another start of adapters than LoRA's own,"},
    {" loraplus_lr_ratio loraplus_lr_embedding lorap_lr_ratio ", kUnsupported,
     "LoRA+ (a rate of its own for B)"},
    // The steps of training and their rates.
    {" learning_rate base_lr max_lr ", "train.lr"},
    {" vit_lr vision_tower_lr mm_vision_tower_lr ", "train.lr_factor.vision", kFactor,
     "train.lr_factor.vision as a factor on train.lr"},
    {" aligner_lr mm_projector_lr ", "train.lr_factor.projector", kFactor,
     "train.lr_factor.projector as a factor on train.lr"},
    {" min_lr_ratio min_lr_rate lr_end min_learning_rate ", "train.min_lr", "a share of train.lr",
     "train.min_lr as a share of train.lr"},
    {" lr_scheduler_kwargs ", "train.min_lr", "of min_lr_rate; a share of train.lr"},
    {" lr_scheduler_type lr_scheduler ", "train.schedule"},
    {" num_decay_steps decay_ratio lr_wsd_decay_iters ", "train.decay"},
    {" truncation_strategy excess_length_strategy ", "data.too_long", "cut or drop"},
    {" warmup_ratio warmup_steps lr_warmup_steps lr_warmup_fraction ", "train.warmup",
     "a share of all steps below 1, else a number of them"},
    {" num_train_epochs epochs epoch num_epochs max_epochs ", "train.epochs"},
    {" max_steps num_steps total_steps train_iters ", "train.steps"},
    {" batch_size per_device_train_batch_size train_batch_size micro_batch_size ",
     "train.global_batch", kFixedBatch,
     "train.global_batch in packs, or train.micro_batch with balance.group: random"},
    {" gradient_accumulation_steps global_batch_size ", "train.global_batch", kFixedBatch,
     "train.global_batch = accumulation x GPUs"},
    {" per_device_eval_batch_size eval_batch_size ", kNeedless,
     "losses and answers are measured in packs like those of training"},
    {" adam_beta1 ", "train.beta1"},
    {" adam_beta2 ", "train.beta2"},
    {" adam_epsilon adam_eps ", "train.eps"},
    {" optim optimizer ", "train.moments",
     "of AdamW, the one optimizer: fp32, bf16, or 8bit for adamw_8bit",
     "train.moments, of AdamW, the one optimizer,"},
    {" max_grad_norm grad_clip gradient_clipping ", "train.clip"},
    {" bf16 fp16 dtype torch_dtype mixed_precision ", "train.precision"},
    {" pure_bf16 ", "train.precision", "bf16, with train.master: none for weights in it alone"},
    {" gradient_checkpointing grad_checkpoint ", "balance.recompute"},
    {" loss_reduction ", "train.loss", "token, sample or square"},
    {" loss_reduction_all_gather ", kNeedless, "weights of a loss are those of all ranks always"},
    {" neftune_noise_alpha neftune_alpha use_neftune ", kUnsupported, "NEFTune"},
    {" label_smoothing label_smoothing_factor ", kUnsupported, "label smoothing"},
    {" pref_beta pref_loss pref_ftx dpo_beta dpo_label_smoothing simpo_gamma rpo_alpha rlhf_type "
     "ref_model ref_model_quantization_bit loss_type sigmoid_loss_weight quality_loss_weight "
     "rpo_loss_weight bco_pair_loss_weight generation_loss_weight sft_loss_weight "
     "kto_chosen_weight kto_rejected_weight reward_model reward_funcs ",
     kUnsupported, "training on preferences or rewards (DPO, MPO, KTO, GRPO)"},
    {" stage ", kNeedless,
     "answers are trained (sft), and with data.template: plain captions alone; preferences and "
     "rewards (dpo, kto, rm, ppo) are not supported"},
    {" do_train do_eval ", kNeedless, "`equipoise train` trains, and data.eval is measured"},
    // Data.
    {" dataset data_path meta_path train_file train_files dataset_dir dataset_use ", "data.train",
     kSources},
    {" eval_dataset val_dataset validation_file ", "data.eval", kSources},
    {" val_size split_dataset_ratio ", "data.eval",
     "the file again with repeat: 0.1 and take: last, and repeat: 0.9 in data.train"},
    {" image_folder image_dir media_dir root ", "images", kOfSource, "images of a source"},
    {" max_samples ", "max_samples", kOfSource, "max_samples of a source"},
    {" mask_history loss_scale ", "data.train_turns", "last, for loss_scale last_round too"},
    {" train_on_prompt ", kUnsupported, "training on questions"},
    {" image_aspect_ratio ", "data.pad_pictures", "true for pad"},
    {" repeat_time ", "repeat", kOfSource},
    {" columns ", "columns", kOfSource, "columns of a source"},
    {" sampling_rate ", "repeat",
     "of a source in data.train, a fraction below 1 with `take` for which part"},
    {" sampling_strategy ", "take", "of a source in data.train, with samples or repeat"},
    {" follow_links ", "data.allow_outside"},
    {" template conv_style conv_mode version chat_template ", "data.template"},
    {" default_system system_prompt system ", "data.system"},
    {" max_length max_seq_length max_seq_len cutoff_len model_max_length max_packed_tokens ",
     "data.max_tokens"},
    {" num_images_expected ", "balance.tiles", "the most tiles of a pack"},
    {" max_pixels image_max_pixels ", "data.pixels.max"},
    {" min_pixels image_min_pixels ", "data.pixels.min"},
    {" video_max_pixels ", "data.video_pixels.max"},
    {" video_min_pixels ", "data.video_pixels.min"},
    {" video_maxlen frames_upbound video_max_frames max_num_frame fps_max_frames nframes ",
     "data.max_frames"},
    {" max_dynamic_patch ", "data.tiles.max"},
    {" min_dynamic_patch ", "data.tiles.min"},
    {" use_thumbnail ", "data.tiles.thumbnail"},
    {" dynamic_image_size ", "data.tiles.max", "1 for one tile a picture"},
    {" group_by_length ", "balance.group", "length_grouped; isf+, the default, evens packs out"},
    {" group_by_modality_length ", "balance.group",
     "whose default isf+ evens out pictures and texts"},
    {" packing neat_packing padding_free data_flatten data_packing use_packed_ds ", kNeedless,
     kPacked},
    {" dataloader_num_workers num_workers preprocessing_num_workers dataset_num_proc ",
     "data.threads"},
    {" overwrite_cache ", kNeedless, "what is kept of data is made anew where files change"},
    {" streaming lazy_tokenize lazy_preprocess buffer_size ", kNeedless,
     "records are read and tokenized as they are needed"},
    {" dataset_shuffle train_dataloader_shuffle ", kNeedless, "samples are shuffled by train.seed"},
    {" mix_strategy interleave_probs ", "repeat", kOfSource},
    {" enable_thinking ", "data.template", "qwen3 for true, qwen3_no_thinking for false"},
    {" preserve_thinking add_non_thinking_prefix ", "data.template",
     "qwen3 for thoughts as in Qwen3's training, chatml for answers without any"},
    {" agent_template norm_bbox ", kNeedless, "calls and boxes are written as data.template does"},
    {" force_image_size ", kUnsupported, "another size of tiles than the folder's"},
    {" resize_vocab add_tokens new_special_tokens ", kUnsupported, "new tokens in a tokenizer"},
    {" early_stopping_steps early_stop_interval ", kUnsupported, "an early stop"},
    // The run.
    {" output_dir save_dir ", "run.dir"},
    {" overwrite_output_dir ", "run.dir", "another folder for another run; the same one goes on"},
    {" resume_from_checkpoint ", kNeedless,
     "a run goes on from the newest checkpoint of run.dir; --resume FOLDER takes another"},
    {" save_steps save_interval ", "checkpoint.every"},
    {" save_total_limit ", "checkpoint.keep"},
    {" save_strategy ", "checkpoint.every", "a number of steps; checkpoint.epochs: 1 for `epoch`"},
    {" load_best_model_at_end metric_for_best_model ", "checkpoint.best", "eval_loss or a score"},
    {" add_version ", kNeedless, "run.dir is the folder itself"},
    {" predict_with_generate ", "eval.answers", "sources of questions"},
    {" save_only_model ", kNeedless, "a checkpoint is whole; `equipoise export` writes the model"},
    {" eval_steps eval_interval ", "eval.every"},
    {" eval_strategy evaluation_strategy ", "eval.every",
     "a number of steps; eval.epochs: 1 for `epoch`"},
    {" logging_steps log_interval log_freq ", kNeedless, "metrics.jsonl has every step"},
    {" report_to plot_loss logging_dir ", kNeedless,
     "the run folder has metrics.jsonl, tensorboard/ and report.html"},
    {" deepspeed zero_stage fsdp ", "parallel.zero", "0 to 3"},
    {" ddp_timeout ", "parallel.timeout_s"},
    {" tensor_model_parallel_size tensor_parallel_size ", "parallel.tensor"},
    {" pipeline_model_parallel_size pipeline_parallel_size ", "parallel.pipeline"},
    {" sequence_parallel_size context_parallel_size ", "parallel.context"},
    {" data_seed ", "train.seed"},
    // Keys of ours that others have at the top.
    {" seed ", "train.seed"},
    {" lr ", "train.lr"},
    {" weight_decay ", "train.weight_decay"},
});

struct FamiliarChoice {
  std::string_view key, values;  // values between spaces
  std::string_view way;
};

constexpr std::string_view kSchedule = "train.schedule", kTemplate = "data.template";

constexpr auto kChoices = std::to_array<FamiliarChoice>({
    {kSchedule, " constant_with_warmup ", "write constant, whose warm-up is train.warmup"},
    {kSchedule, " cosine_with_min_lr cosine_decay_with_min_lr ",
     "write cosine, with train.min_lr as a share of train.lr"},
    {kSchedule, " cosine_with_restarts ",
     "restarts are not supported; write cosine, which is one cycle of it"},
    {kSchedule, " polynomial ", "powers are not supported; write linear, which is that of power 1"},
    {kSchedule, " inverse_sqrt reduce_lr_on_plateau piecewise_constant cosine_warmup_with_min_lr ",
     "that schedule is not supported; choose one of these"},
    {kSchedule, " warmup_stable_decay ", "write wsd, whose last steps are train.decay"},
    {kTemplate,
     " llava v1 llava_v1 vicuna llava_next llava1_5_hf llava1_6_vicuna_hf llava_next_hf ",
     "write vicuna_v1"},
    {kTemplate, " llava_next_mistral llava1_6_mistral_hf mistral_instruct ", "write llava-mistral"},
    {kTemplate, " mistral ", "write mistral-v1, or mistral-v3 for the tokenizer of v0.3"},
    {kTemplate, " llama2 llama_2 llava_llama_2 ", "write llama-2"},
    {kTemplate, " llama3 llama_3 llava_llama_3 llava_next_llama3 ", "write llama-3"},
    {kTemplate, " qwen2_vl qwen2_5_vl qwen2vl qwen2 qwen_1_5 qwen_2 llava_onevision_hf ",
     "write qwen2-vl"},
    {kTemplate, " qwen3_nothink qwen3_vl qwen3_vl_nothink ", "write chatml"},
    {kTemplate, " qwen3_thinking ", "write qwen3"},
    {kTemplate, " qwen ", "write qwen2_5"},
    {kTemplate, " intern_vl internvl3 internvl3_5 internvl2_5_hf internvl3_hf internvl_hf ",
     "write internvl2_5"},
    {kTemplate, " internvl internvl2 ", "write internlm2-chat or Hermes-2, by its language model"},
    {kTemplate, " phi phi3 ", "write phi-3"},
    {kTemplate, " phi4 phi_4 ", "write phi-4"},
    {kTemplate, " phi4_mini phi_4_mini ", "write phi-4-mini"},
});

// Whether a word is among those of a list in which spaces stand around each.
bool Has(std::string_view list, const std::string& word) {
  return list.find(fmt::format(" {} ", word)) != std::string_view::npos;
}

}  // namespace

FamiliarAdvice FamiliarName(const std::string& name) {
  for (const Familiar& row : kFamiliar) {
    if (!Has(row.names, name)) continue;
    if (row.key == kUnsupported) {
      return {fmt::format("{} is not supported; leave it out", row.note), kUnsupported};
    }
    if (row.key == kNeedless) return {fmt::format("{}; leave it out", row.note), kNeedless};
    return {fmt::format("the key here is {}{}{}", row.key, row.note.empty() ? "" : ", ", row.note),
            fmt::format("write {}", row.brief.empty() ? row.key : row.brief)};
  }
  return {};
}

std::string FamiliarValue(const std::string& key, const std::string& value) {
  for (const FamiliarChoice& row : kChoices) {
    if (row.key == key && Has(row.values, value)) return std::string(row.way);
  }
  return "";
}

}  // namespace equipoise
