#include "trainer/loop/run_outputs.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <system_error>

#include "configs/base/error.h"
#include "configs/yaml/yaml_writer.h"
#include "models/families/families.h"
#include "trainer/answers/answer_files.h"
#include "trainer/answers/answer_role.h"
#include "trainer/answers/generation_settings.h"
#include "trainer/checkpoint/model_description.h"
#include "trainer/checkpoint/model_source.h"
#include "trainer/common/agreement.h"
#include "trainer/common/collective_error.h"
#include "trainer/common/durable_file.h"
#include "trainer/common/logging.h"
#include "trainer/device/memory_stats.h"
#include "trainer/loop/evaluator.h"
#include "trainer/outputs/report_files.h"
#include "trainer/outputs/report_picture.h"
#include "trainer/planner/plan_yaml.h"
#include "trainer/settings/own_template.h"
#include "trainer/settings/source_lists.h"

namespace equipoise {
namespace {

double NowSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Moves away the metrics of a run that ended before its first checkpoint, or that is restarted on
// request.
void KeepOldMetrics(const std::string& path) {
  const std::string aside = RotateMetrics(path);
  if (!aside.empty())
    spdlog::warn("{}: is of a run that has no checkpoint here; kept as {}", path, aside);
}

ProgressOptions ProgressOf(const RunConfig& config, const Plan& plan) {
  ProgressOptions shown;
  shown.steps = config.train.steps;
  shown.live = StderrIsTerminal();
  shown.balance = plan.data() * config.train.diloco.islands > 1;
  shown.columns = StderrColumns;
  shown.live_out = [](const std::string& text) { std::fputs(text.c_str(), stderr); };
  shown.line_out = [](const std::string& text) { spdlog::info("{}", text); };
  return shown;
}

void AddAnswers(const StepResult& result, StepMetrics& metrics) {
  for (const SetScores& set : result.answers) {
    AnswerScores::VisitFields(set.scores, [&](const char* name, const auto& value) {
      if (const std::optional<double> known = value) metrics.answers[set.set][name] = *known;
    });
  }
}

// Empty where there is none to show: a picture that the data refuses is not opened here either.
std::string PictureOf(const SourceConfig& source, const DataConfig& data,
                      const SampleAnswer& answer) {
  if (answer.images.empty() || !answer.fault.empty() || source.images.empty()) return "";
  try {
    const ImageFolder folder(source.images, data.allow_outside);
    const OpenedImage opened = folder.Open(answer.images.front());
    if (opened.defect != Defect::kNone || opened.bytes > data.limits.image_bytes) return "";
    std::string bytes(static_cast<size_t>(opened.bytes), '\0');
    if (ReadFullyAt(opened.file, bytes.data(), bytes.size(), 0) != opened.bytes) return "";
    return PictureDataUri(bytes);
  } catch (const DataError&) {  // the folder is gone
    return "";
  }
}

ReportAnswers ShownAnswers(const AnsweredSource& source, AnswerRole role,
                           const AnswersBefore& before, const DataConfig& data) {
  ReportAnswers shown;
  shown.source = source.source.annotations;
  shown.role = role;
  shown.exact = source.exact();
  shown.total = std::ssize(source.answers);
  const AnswerScores mean = source.Mean();
  AnswerScores::VisitFields(mean, [&](const char* name, const auto& value) {
    if (const std::optional<double> known = value) shown.scores.emplace_back(name, *known);
  });
  for (const SampleAnswer& a : source.answers) {
    if (std::ssize(shown.shown) == kShownAnswers) break;
    const auto first = before.find({shown.source, a.sample});
    shown.shown.push_back({PictureOf(source.source, data, a), a.question, a.reference,
                           first == before.end() ? "" : first->second,
                           a.fault.empty() ? a.answer : "(no answer: " + a.fault + ")"});
  }
  return shown;
}

// Whether what a run is made of lies in the folder that describes its model.
bool LiesIn(const RunConfig& config, const std::string& description) {
  const ModelSection& model = config.model;
  const auto folder = std::filesystem::weakly_canonical(description);
  for (const std::string& path : {model.hf, model.llm, model.vision, model.projector.weights,
                                  model.adapter.init, config.data.tokenizer}) {
    if (path.empty()) continue;
    const auto within = std::filesystem::weakly_canonical(path).lexically_relative(folder);
    if (!within.empty() && *within.begin() != "..") return true;
  }
  return false;
}

}  // namespace

RunOutputs::Shown::Shown(const RunFolder& folder, const ProgressOptions& options)
    : metrics(folder.Path("metrics.jsonl")), progress(options) {}

RunOutputs::RunOutputs(RunContext& context, const RunFolder& folder, const RunData& data,
                       const TrainingPlan& planned, const TrainState& state)
    : context_(context),
      folder_(folder),
      data_(data),
      quarantine_(folder.Path("quarantine.jsonl")) {
  const auto listing = context.activity.During("listing the records that cannot be used");
  const auto fault = AgreeOnItems(context.world(), 1, [&](int64_t, const auto& alive) {
    QuarantineDefects(data.opened(), quarantine_, alive);
  });
  if (fault) throw CollectiveRunError(*fault);
  if (context.rank() != 0) return;
  if (data.bad() > 0) {
    spdlog::warn(
        "{} of {} records cannot be used and are left out ({}), see {}; once they are mended, "
        "`equipoise data CONFIG index` takes them into a new run",
        data.bad(), data.index().size(), data.index().DescribeDefects(),
        folder.Path("quarantine.jsonl"));
  }
  if (const int64_t dropped = data.left_out() - data.bad(); dropped > 0) {
    spdlog::info("{} of {} records have more tokens than data.max_tokens {} and are dropped",
                 dropped, data.index().size(), context.config.data.max_tokens);
  }
  WriteDescription(planned);
  OpenShown(planned.plan, state);
}

void RunOutputs::WriteDescription(const TrainingPlan& planned) const {
  const RunConfig& config = context_.config;
  RunConfig given = config;
  for (std::vector<SourceConfig>* sources :
       {&given.data.train, &given.data.eval, &given.eval.answers})
    *sources = WithRanges(*sources);
  const bool begun = std::filesystem::exists(folder_.Path("plan.yaml"));
  WriteFileDurably(folder_.Path("config.yaml"), WriteConfig(given));
  const bool runs_ahead = config.parallel.prefetch && FillsBubbles(planned.plan.encoder);
  WriteFileDurably(folder_.Path("plan.yaml"),
                   PlanToYaml(planned.plan, planned.prediction, runs_ahead));
  const std::string description = ModelDescriptionFolder(folder_.dir());
  const ModelConfig& model = data_.model_config();
  // What another model's start has left, which ended before a checkpoint, would be taken for this
  // one's.
  if (begun && !HasCheckpoints(folder_.dir()) && !LiesIn(config, description))
    RemoveModelDescription(description);
  if (!config.model.hf.empty()) CopyModelDescription(config.model.hf, description);
  if (!config.model.llm.empty()) WritePartsDescription(config.model, model, description);
  if (!config.data.tokenizer.empty()) CopyTokenizer(config.data.tokenizer, description);
  WriteImageProcessor(model, config.data, description);
  // A language model's own template has no place for a picture; an earlier stage's is of its run.
  const bool tells_none = !NamesTemplate(model, description);
  const bool tells_other = !AnswersAsFolder(config.data, model, description);
  if (!config.model.llm.empty() || tells_none || HasWrittenChatTemplate(description) || tells_other)
    WriteChatTemplate(data_.opened().chat_template, description);
  WriteEndToken(data_.opened().chat_template.end_of_turn(), model, description);
  Json json = ToHuggingFace(model);
  SetTileSettings(model, config.data, &json);
  WriteFileDurably(description + "/config.json", json.dump(2) + "\n");
}

void RunOutputs::OpenShown(const Plan& plan, const TrainState& state) {
  const std::string metrics = folder_.Path("metrics.jsonl");
  if (!HasCheckpoints(folder_.dir())) KeepOldMetrics(metrics);
  TruncateMetrics(metrics, state.step);
  shown_ = std::make_unique<Shown>(folder_, ProgressOf(context_.config, plan));
  WriteShown("tensorboard", [&] {
    shown_->tensorboard =
        std::make_unique<TensorBoardWriter>(folder_.Path("tensorboard"), state.step + 1);
  });
}

void RunOutputs::Report(const TrainState& state, const StepResult& result, RunTrace& trace) {
  NoteBadSamples(result.bad, state.step);
  const bool last = result.stop || state.step == context_.config.train.steps;
  const std::string traced = trace.TakeIfDue(state.step, last);
  if (context_.rank() != 0) return;
  if (!traced.empty())
    WriteShown("trace", [&] { WriteFileDurably(folder_.Path("trace.json"), traced); });
  const StepMetrics metrics = MetricsOf(state, result);
  shown_->metrics.Write(metrics);
  shown_->progress.Report(metrics, NowSeconds());
  AddScalars(metrics);
  if (result.eval_loss)
    spdlog::info("step {}: held-out loss {:.4f}", state.step, *result.eval_loss);
}

void RunOutputs::ReportAnswers(const TrainState& state, const StepResult& result) {
  if (context_.rank() != 0) return;
  const std::string path = folder_.Path("metrics.jsonl");
  const std::vector<StepMetrics> reported = ReadMetrics(path);
  StepMetrics metrics;
  metrics.step = state.step;
  AddAnswers(result, metrics);
  AddScalars(metrics);
  if (!reported.empty() && reported.back().step == state.step) {
    const auto answers = metrics.answers;
    metrics = reported.back();
    metrics.answers = answers;
  }
  TruncateMetrics(path, state.step - 1);
  shown_->metrics = MetricsWriter(path);
  shown_->metrics.Write(metrics);
}

void RunOutputs::AddScalars(const StepMetrics& metrics) {
  std::unique_ptr<TensorBoardWriter>& tensorboard = shown_->tensorboard;
  if (!tensorboard) return;
  StepMetrics::VisitFields(metrics, [&](const char* name, const auto& value) {
    if (value) tensorboard->AddScalar(name, metrics.step, static_cast<double>(*value));
  });
  for (const auto& [set, scores] : metrics.answers) {
    for (const auto& [measure, value] : scores)
      tensorboard->AddScalar(fmt::format("answers/{}/{}", set, measure), metrics.step, value);
  }
  WriteShown("tensorboard", [&] { tensorboard->Flush(); });
  if (not_written_.count("tensorboard") > 0) tensorboard.reset();  // it ends in the middle
}

void RunOutputs::NoteBadSamples(const std::vector<BadSample>& samples, int64_t step) {
  for (const BadSample& bad : samples) {
    if (!quarantine_.Add(bad, step, context_.rank())) continue;
    const std::string id = bad.id.empty() ? "" : bad.id + ": ";
    spdlog::warn("{}:{}: {}{}; its labels are ignored, see quarantine.jsonl", bad.file, bad.line,
                 id, bad.reason);
  }
}

StepMetrics RunOutputs::MetricsOf(const TrainState& state, const StepResult& result) const {
  StepMetrics m;
  m.step = state.step;
  if (const int64_t samples = data_.costs().epoch_samples(); samples > 0)
    m.epoch = static_cast<double>(state.samples) / static_cast<double>(samples);
  m.loss = result.loss;
  m.grad_norm = result.grad_norm;
  m.lr = result.lr;
  if (result.loss_scale) m.loss_scale = static_cast<int64_t>(*result.loss_scale);
  m.tokens = result.tokens;
  m.samples = result.samples;
  m.images = result.images;
  m.step_s = result.step_s;
  m.tokens_per_s = static_cast<double>(result.tokens) / result.step_s;
  const CpuMemory memory = GetMemory(context_.device());
  m.mem_peak_bytes = memory.peak_bytes;
  if (!context_.device().is_cpu()) m.mem_reserved_bytes = memory.reserved_peak_bytes;
  m.rss_peak_bytes = PeakRssBytes();
  m.data_wait_s = result.data_wait_s;
  m.pause_s = result.pause_s;
  m.checkpoint_s = result.checkpoint_s;
  m.outer_s = result.outer_s;
  m.pad_ratio = result.balance.pad_ratio;
  m.fill_share = result.balance.fill_share;
  m.dist_ratio_vision = result.balance.dist_ratio_vision;
  m.dist_ratio_text = result.balance.dist_ratio_text;
  m.bubble_share = result.bubble_share;
  m.predicted_step_s = result.predicted_step_s;
  m.mfu = result.mfu;
  m.skipped_samples = data_.bad() + state.skipped_samples;
  m.eval_loss = result.eval_loss;
  AddAnswers(result, m);
  return m;
}

void RunOutputs::WriteShown(const std::string& what, const std::function<void()>& write) {
  try {
    write();
  } catch (const RunError& error) {
    if (not_written_.insert(what).second)
      spdlog::warn("{}; the run goes on without it", error.what());
  }
}

void RunOutputs::RefuseTooManyBad(const TrainState& state) const {
  const int64_t bad = data_.bad() + state.skipped_samples;
  const int64_t of = std::max(data_.index().size(), data_.bad() + state.samples);
  const double share = context_.config.data.max_bad_share;
  if (static_cast<double>(bad) <= share * static_cast<double>(of)) return;
  throw DataError(fmt::format(
      "{} of {} records cannot be used, more than data.max_bad_share {}; mend those that {} names, "
      "or raise the share",
      bad, of, share, folder_.Path("quarantine.jsonl")));
}

void RunOutputs::WriteAnswersBefore(const std::vector<AnsweredSource>& answers) const {
  if (context_.rank() == 0 && !answers.empty())
    WriteAnswers(folder_.Path("answers_before.jsonl"), answers);
}

void RunOutputs::WriteReport(const RunSummary& run, const std::vector<AnsweredSource>& answers) {
  if (context_.rank() != 0) return;
  ReportInput input = ReadReportInput(folder_.dir());
  std::filesystem::path dir = folder_.dir();
  if (!dir.has_filename()) dir = dir.parent_path();  // it ends with a slash
  input.title = dir.filename().string();
  input.lead = RunLead(run);
  input.facts = RunFacts(run, input.steps);
  input.ranks = run.ranks;
  const AnswersBefore before = ReadAnswers(folder_.Path("answers_before.jsonl"));
  if (!answers.empty()) WriteAnswers(folder_.Path("answers.jsonl"), answers, before);
  const DataConfig& data = context_.config.data;
  const std::vector<AnswerRole> roles = AnswerRoles(answers, data.train, data.eval);
  for (size_t i = 0; i < answers.size(); ++i)
    input.answers.push_back(ShownAnswers(answers[i], roles[i], before, context_.config.data));
  WriteShown("report", [&] {
    equipoise::WriteReport(folder_.dir(), input);
    spdlog::info("report: {}", folder_.Path("report.html"));
  });
}

}  // namespace equipoise
