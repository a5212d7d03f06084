// What a run writes: metrics, held-out loss, answers, trace, report.

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <map>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/json.h"
#include "parallel/comm/gather_text.h"
#include "trainer/answers/answer_files.h"
#include "trainer/answers/answer_role.h"
#include "trainer/common/durable_file.h"
#include "trainer/device/compute_device.h"
#include "trainer/device/compute_dtype.h"
#include "trainer/device/memory_stats.h"
#include "trainer/loop/trainer_parts.h"
#include "trainer/outputs/report_files.h"
#include "trainer/outputs/report_picture.h"

namespace equipoise {
namespace {

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

StepMetrics MetricsOf(const TrainState& state, const StepResult& result,
                      const TrainerParts& parts) {
  StepMetrics m;
  m.step = state.step;
  if (parts.epoch_samples > 0)
    m.epoch = static_cast<double>(state.samples) / static_cast<double>(parts.epoch_samples);
  m.loss = result.loss;
  m.grad_norm = result.grad_norm;
  m.lr = result.lr;
  m.tokens = result.tokens;
  m.samples = result.samples;
  m.images = result.images;
  m.step_s = result.step_s;
  m.tokens_per_s = static_cast<double>(result.tokens) / result.step_s;
  m.mem_peak_bytes = GetMemory(parts.device).peak_bytes;
  m.rss_peak_bytes = PeakRssBytes();
  m.data_wait_s = result.data_wait_s;
  m.pad_ratio = result.balance.pad_ratio;
  m.fill_share = result.balance.fill_share;
  m.dist_ratio_vision = result.balance.dist_ratio_vision;
  m.dist_ratio_text = result.balance.dist_ratio_text;
  m.bubble_share = result.bubble_share;
  m.predicted_step_s = result.predicted_step_s;
  m.mfu = result.mfu;
  m.skipped_samples = parts.left_out + state.skipped_samples;
  m.eval_loss = result.eval_loss;
  return m;
}

constexpr int64_t kShownAnswers = 8;  // of each source, in the report and before training

std::string PictureOf(const SourceConfig& source, const SampleAnswer& answer) {
  if (answer.images.empty()) return "";
  return PictureDataUri((std::filesystem::path(source.images) / answer.images.front()).string());
}

}  // namespace

void TrainerParts::Report(const TrainState& state, const StepResult& result) {
  const bool last = result.stop || state.step == config.train.steps;
  if (trace_until >= 0 && (last || state.step >= trace_until)) WriteTrace();
  if (world->rank() != 0) return;
  const StepMetrics m = MetricsOf(state, result, *this);
  metrics->Write(m);
  progress->Report(m, NowSeconds());
  if (tensorboard) {
    StepMetrics::VisitFields(m, [&](const char* name, const auto& value) {
      if (value) tensorboard->AddScalar(name, state.step, static_cast<double>(*value));
    });
    WriteShown("tensorboard", [this] { tensorboard->Flush(); });
    if (not_written.count("tensorboard") > 0) tensorboard.reset();  // it ends in the middle
  }
  if (result.eval_loss)
    spdlog::info("step {}: held-out loss {:.4f}", state.step, *result.eval_loss);
}

void TrainerParts::WriteShown(const std::string& what, const std::function<void()>& write) {
  try {
    write();
  } catch (const RunError& error) {
    if (not_written.insert(what).second)
      spdlog::warn("{}; the run goes on without it", error.what());
  }
}

void TrainerParts::RefuseTooManyBad(const TrainState& state) const {
  const int64_t bad = left_out + state.skipped_samples;
  const int64_t of = std::max(data->index.size(), left_out + state.samples);
  const double share = config.data.max_bad_share;
  if (static_cast<double>(bad) <= share * static_cast<double>(of)) return;
  throw DataError(fmt::format(
      "{} of {} records cannot be used, more than data.max_bad_share {}; mend those that {} names, "
      "or raise the share",
      bad, of, share, folder->Path("quarantine.jsonl")));
}

std::vector<std::string> TrainerParts::SampleNames(const StepBatches& plan) const {
  std::vector<std::string> names;
  for (const Pack& pack : plan.packs) {
    for (int64_t sample : pack.samples) {
      const BadSample at = data->dataset.Locate(sample, "", "");
      names.push_back(at.file + ":" + std::to_string(at.line));
    }
  }
  return names;
}

void TrainerParts::NoteBadSamples(const LoadedPack& pack, int64_t step) {
  for (const BadSample& bad : pack.bad) {
    if (!quarantine || !quarantine->Add(bad, step, world->rank())) continue;
    spdlog::warn("{}:{}: {}: {}; its labels are ignored, see quarantine.jsonl", bad.file, bad.line,
                 bad.id, bad.reason);
  }
}

std::optional<double> TrainerParts::HeldOutLoss() {
  const auto measuring = activity.During("measuring the held-out loss");
  const std::vector<Pack> packs =
      PackInOrder(held_out->index, config.data.max_tokens, config.eval.samples);
  double weight = 0;
  std::map<int, LoadedPack> loaded;
  ModelPart::Pass pass;
  pass.loads = Loads(packs);
  pass.batch = [&](int i) -> const MicroBatch& {
    if (const auto found = loaded.find(i); found != loaded.end()) return found->second.batch;
    const int pack = model->groups().at.data + i * plan.data;
    LoadedPack& here = loaded[i] =
        held_out->dataset.Load(packs[static_cast<size_t>(pack)], model->part().needs_pictures());
    weight += here.weight;
    return here.batch;
  };
  pass.release = [&](int i) { loaded.erase(i); };
  model->Evaluate(std::move(pass));
  at::Tensor sums = at::empty({2}, at::kDouble);
  // A data rank beyond the packs has run none; its last loss is that of a training step.
  const bool reports = model->reports_loss() && weight > 0;
  sums.data_ptr<double>()[0] = reports ? model->part().loss() : 0;
  sums.data_ptr<double>()[1] = reports ? weight : 0;
  world->AllReduce(sums, ReduceOp::kSum).Wait();
  if (sums.data_ptr<double>()[1] == 0) {
    spdlog::warn("data.eval: none of its samples can be used; no held-out loss");
    return std::nullopt;
  }
  return sums.data_ptr<double>()[0] / sums.data_ptr<double>()[1];
}

Responder::Model TrainerParts::WholeModel(std::optional<LoadedModel>& copy) const {
  if (plan.pipeline * plan.tensor == 1)
    return {model->part().stages().begin()->second.get(), &data->model_config};
  LoadOptions load;
  load.dtype = DtypeOf(setup.precision);
  load.device = device;
  load.inference = true;
  copy = BuildModel(data->model_config, load);
  LoadCheckpointWeights(*copy, FindCheckpoint(folder->dir(), *world));
  return {copy->stage.get(), &copy->config};
}

bool TrainerParts::AnswerQuestions(bool before_training) {
  if (config.eval.answers.empty()) return true;
  if (before_training && plan.pipeline * plan.tensor > 1) {
    spdlog::info("eval.answers: no rank holds the whole model yet; answered after training");
    return true;
  }
  const auto answering = activity.During("answering the questions of eval.answers");
  std::optional<LoadedModel> copy;
  const Responder::Model whole = WholeModel(copy);
  std::vector<AnsweredSource> results;
  for (size_t i = 0; i < answer_sources.size(); ++i) {
    const OpenedData& source = *answer_sources[i];
    int64_t most =
        config.eval.answer_samples > 0 ? config.eval.answer_samples : source.index.size();
    if (before_training) most = std::min(most, kShownAnswers);
    const std::vector<int64_t> samples = AnswerableSamples(source.index, most);
    const Responder answerer(whole, &source.tokenizer, &source.chat_template, &config.data);
    AnsweredSource result;
    result.source = config.eval.answers[i];
    // Before training they are few, and the first step looks for a stop.
    const Questions questions = {source.dataset, samples, config.eval.answer_tokens};
    auto given = AnswerSamples(answerer, questions, *world,
                               [&] { return !before_training && stop.AgreeToStop(*world); });
    if (!given) return false;
    result.answers = std::move(*given);
    spdlog::info("{}: {} of {} answers exact ({:.1f} %){}", result.source.annotations,
                 result.exact(), result.answers.size(), 100 * result.exact_share(),
                 before_training ? " before training" : "");
    if (result.faults() > 0) {
      spdlog::warn("{}: {} questions count as wrong, because their pictures cannot be used",
                   result.source.annotations, result.faults());
    }
    results.push_back(std::move(result));
  }
  if (!before_training) {
    answers = std::move(results);
  } else if (world->rank() == 0 && !results.empty()) {
    WriteAnswers(folder->Path("answers_before.jsonl"), results);  // a resumed run reports them too
  }
  return true;
}

void TrainerParts::AddPredicted(const std::vector<LayerLoad>& loads) {
  if (!recorder.enabled()) return;
  const Timeline step = forecast->Simulated(model->schedule(), loads).timeline;
  for (Span span : StartingAt(step, model->started_s())) {
    if (span.rank != model->groups().at.pipeline) continue;
    span.rank = world->rank();
    predicted.push_back(std::move(span));
  }
}

// One file for all ranks; the recorder stops.
void TrainerParts::WriteTrace() {
  trace_until = -1;
  recorder.Stop();
  Json merged = {{"traceEvents", Json::array()}};
  for (const std::string& text :
       GatherText(*world, ToChromeTrace(recorder.timeline(), predicted))) {
    const Json part = Json::parse(text);
    for (const Json& event : part["traceEvents"]) merged["traceEvents"].push_back(event);
  }
  if (world->rank() != 0) return;
  WriteShown("trace", [&] { WriteFileDurably(folder->Path("trace.json"), merged.dump() + "\n"); });
}

RunSummary TrainerParts::Summary(const TrainState& state) {
  const auto pipeline_rank = static_cast<size_t>(model->groups().at.pipeline);
  const bool forecast_known = pipeline_rank < prediction.memory_bytes.size();
  const Json mine = {{"machine", setup.hosts[static_cast<size_t>(world->rank())]},
                     {"device", DeviceName(device)},
                     {"forecast", forecast_known ? prediction.memory_bytes[pipeline_rank] : 0},
                     {"tensors", GetMemory(device).peak_bytes},
                     {"rss", PeakRssBytes()}};
  RunSummary run;
  for (const std::string& text : CollectText(*world, mine.dump())) {
    const Json rank = Json::parse(text);
    run.ranks.push_back(
        {rank["machine"], rank["device"], rank["forecast"], rank["tensors"], rank["rss"]});
  }
  run.command = CommandLine();
  run.finished = UtcText(std::time(nullptr));
  run.wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  run.first_step = first_step;
  run.plan = DescribePlan(plan);
  run.precision = PrecisionName(setup.precision);
  run.micro_batches = accumulation;
  run.threads = at::get_num_threads();
  run.parameters = parameter_count();
  run.tokens = state.tokens;
  run.samples = state.samples;
  run.images = state.images;
  run.left_out = left_out;
  run.skipped = state.skipped_samples;
  if (forecast->knows_speed()) run.predicted_step_s = prediction.step_s;
  return run;
}

void TrainerParts::WriteAnswersAndReport(const TrainState& state) {
  const RunSummary run = Summary(state);
  if (world->rank() != 0) return;
  ReportInput input = ReadReportInput(folder->dir());
  input.title = std::filesystem::path(folder->dir()).filename().string();
  input.lead = RunLead(run);
  input.facts = RunFacts(run, input.steps);
  input.ranks = run.ranks;
  AnswersBefore before = ReadAnswers(folder->Path("answers_before.jsonl"));
  if (!answers.empty()) WriteAnswers(folder->Path("answers.jsonl"), answers, before);
  const std::vector<AnswerRole> roles = AnswerRoles(answers, config.data.train, config.data.eval);
  for (size_t i = 0; i < answers.size(); ++i) {
    const AnsweredSource& source = answers[i];
    ReportAnswers& shown = input.answers.emplace_back();
    shown.source = source.source.annotations;
    shown.role = roles[i];
    shown.exact = source.exact();
    shown.total = static_cast<int64_t>(source.answers.size());
    for (size_t k = 0; k < source.answers.size() && k < static_cast<size_t>(kShownAnswers); ++k) {
      const SampleAnswer& a = source.answers[k];
      shown.shown.push_back({PictureOf(source.source, a), a.question, a.reference,
                             before[{source.source.annotations, a.sample}],
                             a.fault.empty() ? a.answer : "(no answer: " + a.fault + ")"});
    }
  }
  WriteShown("report", [&] {
    WriteReport(folder->dir(), input);
    spdlog::info("report: {}", folder->Path("report.html"));
  });
  spdlog::info(
      "last checkpoint: {}; `equipoise export {} --out FOLDER` makes a Hugging Face "
      "folder of it",
      newest_saved.empty() ? checkpoint : newest_saved, folder->dir());
}

}  // namespace equipoise
