#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/shown_text.h"
#include "parallel/comm/mpi_environment.h"
#include "parallel/schedule/plan_hash.h"
#include "trainer/answers/answer.h"
#include "trainer/answers/generation_settings.h"
#include "trainer/answers/kept_answers.h"
#include "trainer/answers/question_file.h"
#include "trainer/checkpoint/model_source.h"
#include "trainer/commands/asked_model.h"
#include "trainer/commands/asked_questions.h"
#include "trainer/common/agreement.h"
#include "trainer/common/commands.h"
#include "trainer/common/durable_file.h"
#include "trainer/run/set_up_run.h"

namespace equipoise {
namespace {

struct Arguments {
  std::string model;
  PromptQuestion prompt;
  std::string jsonl, out;  // files of questions and answers, in place of a prompt
  std::string image_folder;
  BatchLimits limits;
  std::vector<std::string> set;
  std::string adapter;
  GenerateOptions options;
  std::optional<double> repetition_penalty;
};

void CheckSampling(const Arguments& arguments) {
  const GenerateOptions& options = arguments.options;
  if (!std::isfinite(options.temperature) || options.temperature < 0)
    throw ConfigError("--temperature: must be 0 or a positive number, such as 0.7");
  if (!(options.top_p > 0 && options.top_p <= 1))
    throw ConfigError("--top-p: must be above 0 and at most 1, such as 0.9");
  const double penalty = arguments.repetition_penalty.value_or(1);
  if (!std::isfinite(penalty) || penalty <= 0)
    throw ConfigError("--repetition-penalty: must be above 0, such as 1.05; 1 is none");
}

GenerateOptions OptionsOf(const Arguments& arguments) {
  GenerateOptions options = arguments.options;
  options.repetition_penalty = arguments.repetition_penalty.value_or(1);
  return options;
}

// Transformers' generate would apply the folder's own penalty; nothing is applied here unasked.
void WarnOfPenalty(const Arguments& arguments, const GenerationSettings& settings) {
  if (arguments.repetition_penalty || settings.repetition_penalty == 1) return;
  spdlog::warn(
      "{}: repetition_penalty is {}, which Transformers' generate applies; for the same answers: "
      "--repetition-penalty {}",
      settings.source, settings.repetition_penalty, settings.repetition_penalty);
}

// Either a prompt with its pictures and videos, or a file of questions and one for the answers.
void CheckQuestions(const Arguments& arguments) {
  const PromptQuestion& prompt = arguments.prompt;
  if (arguments.jsonl.empty() == prompt.text.empty())
    throw ConfigError("generate: give either --prompt or --jsonl");
  if (arguments.jsonl.empty()) {
    if (!arguments.out.empty()) throw ConfigError("--out: is for the answers to --jsonl");
    if (!arguments.image_folder.empty()) {
      throw ConfigError("--images: is the folder of --jsonl's pictures; give a picture as --image");
    }
    if (!std::isfinite(prompt.fps) || prompt.fps < 0)
      throw ConfigError("--fps: must be above 0, the frames a second of --video");
    if (prompt.fps > 0 && prompt.videos.empty())
      throw ConfigError("--fps: is for --video, which is not given");
    RecordOf(prompt);
    return;
  }
  if (arguments.out.empty()) throw ConfigError("--jsonl: set --out to the file for the answers");
  RequireOtherFile("--out", arguments.out, {arguments.jsonl});
  if (!prompt.images.empty())
    throw ConfigError("--image: is for --prompt; the questions of --jsonl name their pictures");
  if (!prompt.videos.empty() || prompt.fps != 0)
    throw ConfigError("--video: is for --prompt; the questions of --jsonl name their videos");
}

// Before the questions are answered: a file that cannot be written would lose all answers.
void RequirePlaceFor(const std::string& path) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  const auto parent = std::filesystem::absolute(path, error).parent_path();
  if (!folder && std::filesystem::is_directory(parent, error)) return;
  throw RunError(fmt::format("--out: {}: {}", ShownText(path),
                             folder ? "is a folder; name a file" : "no such folder; make it"));
}

void LogSummary(const std::vector<FileQuestion>& questions,
                const std::vector<GivenAnswer>& answers) {
  const auto failed = [](const GivenAnswer& answer) { return !answer.fault.empty(); };
  const auto faults = std::count_if(answers.begin(), answers.end(), failed);
  std::string text = fmt::format("{} questions, {} without an answer", answers.size(), faults);
  if (faults > 0)
    text += fmt::format(" ({})", std::find_if(answers.begin(), answers.end(), failed)->fault);
  const auto cut = std::ranges::count(answers, true, &GivenAnswer::cut);
  if (cut > 0) text += fmt::format(", {} as long as --max-new-tokens allows", cut);
  if (const auto mean = MeanScores(questions, answers)) {
    AnswerScores::VisitFields(*mean, [&](const char* name, const auto& value) {
      if (const std::optional<double> known = value)
        text += fmt::format(", {} {:.4f}", name, *known);
    });
  }
  spdlog::log(faults > 0 ? spdlog::level::warn : spdlog::level::info, "{}", text);
}

// Of what the answers to the questions of a file depend on.
uint64_t HashOf(const Arguments& arguments, const AskedModel& model) {
  StableHash hash;
  const GenerateOptions options = OptionsOf(arguments);
  hash.Add(fmt::format("{} {} {} {} {} {} {}", model.Hash(), options.max_new_tokens,
                       options.temperature, options.top_p, options.seed, options.repetition_penalty,
                       arguments.limits.questions));
  hash.Add(SumFile(arguments.jsonl).xxh3);
  hash.Add(arguments.image_folder);
  return hash.value();
}

// Answers the questions of the file and writes the answers. Those of a command that was stopped
// are taken from a file beside --out.
std::vector<GivenAnswer> AnswerKept(const Arguments& arguments,
                                    std::vector<FileQuestion>& questions, AskedModel& model,
                                    MpiEnvironment& mpi) {
  Communicator& world = model.world();
  const bool root = mpi.rank() == 0;
  std::optional<KeptAnswers> kept;
  AgreeOrThrowRunError(world, [&] {
    if (root)
      kept.emplace(arguments.out + ".part", HashOf(arguments, model), std::ssize(questions));
  });
  AnswerKeeping keeping;
  keeping.known = AnswersOf(BroadcastText(world, TextOf(root ? kept->taken() : keeping.known), 0));
  // A picture may have been mended since.
  std::erase_if(keeping.known, [](const NumberedAnswer& one) { return !one.answer.fault.empty(); });
  keeping.keep = [&](const std::vector<NumberedAnswer>& some) {
    AgreeOrThrowRunError(world, [&] {
      if (root) kept->Add(some);
    });
  };
  if (!keeping.known.empty())
    spdlog::info("{} of {} questions were answered before, see {}.part", keeping.known.size(),
                 questions.size(), arguments.out);
  const std::string folder = arguments.image_folder.empty()
                                 ? std::filesystem::absolute(arguments.jsonl).parent_path().string()
                                 : arguments.image_folder;
  std::vector<GivenAnswer> answers = model.Answer(ListOf(questions, folder, model),
                                                  arguments.limits, OptionsOf(arguments), keeping);
  AgreeOrThrowRunError(world, [&] {
    if (!root) return;
    WriteFileDurably(arguments.out, AnswerLines(questions, answers));
    kept->Remove();
  });
  return answers;
}

int Generate(const Arguments& arguments, MpiEnvironment& mpi) {
  CheckSampling(arguments);
  CheckQuestions(arguments);
  std::vector<FileQuestion> questions;
  if (!arguments.jsonl.empty()) questions = ReadQuestions(arguments.jsonl);
  const ModelSource source = FindModel(arguments.model);
  if (!arguments.adapter.empty()) RequireHuggingFaceBase(source, arguments.model);
  AskedModel model(source, arguments.adapter, arguments.set, mpi);
  WarnOfPenalty(arguments, model.generation());
  if (arguments.jsonl.empty()) {
    const QuestionList list = ListOf(arguments.prompt, model);
    const GivenAnswer answer = model.Answer(list, arguments.limits, OptionsOf(arguments)).front();
    if (!answer.fault.empty()) throw DataError(answer.fault);
    // It may contain any byte; control characters are removed for a terminal only.
    if (mpi.rank() == 0) {
      const bool terminal = isatty(STDOUT_FILENO) == 1;
      std::cout << (terminal ? TerminalText(answer.text) : answer.text) << std::endl;
    }
    return static_cast<int>(ExitCode::kDone);
  }
  RequireEqual(model.world(), "--jsonl " + arguments.jsonl,
               HexDigits(SumFile(arguments.jsonl).xxh3));
  AgreeOrThrowRunError(model.world(), [&] {
    if (mpi.rank() == 0) RequirePlaceFor(arguments.out);
  });
  const std::vector<GivenAnswer> answers = AnswerKept(arguments, questions, model, mpi);
  if (mpi.rank() == 0) LogSummary(questions, answers);
  return static_cast<int>(ExitCode::kDone);
}

void AddSamplingOptions(CLI::App& command, Arguments& arguments) {
  GenerateOptions& options = arguments.options;
  command.add_option("--max-new-tokens", options.max_new_tokens, "longest answer, in tokens")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  command.add_option("--temperature", options.temperature, "0 = the most likely token each time")
      ->capture_default_str();
  command
      .add_option("--top-p", options.top_p,
                  "draw from the fewest most likely tokens with this probability in all")
      ->capture_default_str();
  command.add_option("--repetition-penalty", arguments.repetition_penalty,
                     "makes tokens of the question and of the answer so far less likely, as "
                     "Transformers' repetition_penalty; 1 = none, if not given");
  command
      .add_option("--seed", options.seed,
                  "of the sampling: an answer depends on it and the question's number alone")
      ->capture_default_str();
}

}  // namespace

void AddGenerateCommand(CLI::App& app, MpiEnvironment& mpi, std::function<int()>& run) {
  CLI::App* command = app.add_subcommand("generate", "Answers questions about pictures and videos");
  auto arguments = std::make_shared<Arguments>();
  command->add_option("MODEL", arguments->model, "Hugging Face folder, run folder or step-* folder")
      ->required();
  command->add_option("--prompt", arguments->prompt.text, "the question");
  command->add_option("--image", arguments->prompt.images, "a picture; may be given several times")
      ->allow_extra_args(false);
  command
      ->add_option("--video", arguments->prompt.videos,
                   "a video's file, a folder of its decoded frames, or the frames with commas "
                   "between them; may be given several times")
      ->allow_extra_args(false);
  command->add_option("--fps", arguments->prompt.fps,
                      "frames a second of --video; 24 if not given. Of a file: taken, 2");
  command->add_option("--jsonl", arguments->jsonl,
                      "questions in place of a prompt: JSONL of conversations, or of \"question\" "
                      "with \"image\" or \"video\" and perhaps \"answer\"");
  command->add_option("--out", arguments->out,
                      "JSONL of answers, and scores where answers are known");
  command->add_option("--images", arguments->image_folder,
                      "folder of the questions' pictures; that of --jsonl if not given");
  command->add_option("--batch", arguments->limits.questions, "questions answered side by side")
      ->capture_default_str()
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16));
  AddSamplingOptions(*command, *arguments);
  command->add_option("--adapter", arguments->adapter,
                      "folder of PEFT, whose adapter is put over a Hugging Face folder");
  command
      ->add_option("--set", arguments->set,
                   "a setting, such as data.template=internvl2_5 or parallel.tensor=2")
      ->allow_extra_args(false);
  command->footer(
      "Examples:\n  equipoise generate runs/quickstart --prompt 'What is this?' --image cat.png\n"
      "  mpirun -n 2 equipoise generate runs/quickstart --jsonl questions.jsonl --out "
      "answers.jsonl");
  command->callback(
      [arguments, &mpi, &run] { run = [arguments, &mpi] { return Generate(*arguments, mpi); }; });
}

}  // namespace equipoise
