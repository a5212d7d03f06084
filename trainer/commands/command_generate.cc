#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/base/error.h"
#include "configs/base/file_handle.h"
#include "configs/base/json.h"
#include "configs/base/shown_text.h"
#include "configs/yaml/config_json.h"
#include "data/images/image.h"
#include "data/images/image_processor.h"
#include "data/images/image_size.h"
#include "data/records/path_guard.h"
#include "data/records/refusal.h"
#include "data/records/video_frames.h"
#include "models/families/families.h"
#include "parallel/comm/mpi_environment.h"
#include "parallel/schedule/plan_hash.h"
#include "trainer/answers/answer.h"
#include "trainer/answers/generation_settings.h"
#include "trainer/answers/kept_answers.h"
#include "trainer/answers/question_file.h"
#include "trainer/checkpoint/base_weights.h"
#include "trainer/checkpoint/checkpoint_adapters.h"
#include "trainer/checkpoint/loaded_model.h"
#include "trainer/checkpoint/model_source.h"
#include "trainer/commands/generate_settings.h"
#include "trainer/common/agreement.h"
#include "trainer/common/commands.h"
#include "trainer/common/durable_file.h"
#include "trainer/planner/make_plan.h"
#include "trainer/run/parallel_model.h"
#include "trainer/run/set_up_run.h"
#include "trainer/settings/data_options.h"
#include "trainer/settings/model_section.h"
#include "trainer/settings/run_config.h"
#include "trainer/settings/vocabulary.h"

namespace equipoise {
namespace {

struct Arguments {
  std::string model;
  std::string prompt;
  std::vector<std::string> images, videos;
  double fps = 0;          // of the videos; 0: not known
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

// Transformers' generate would apply the folder's own penalty; nothing is applied here unasked.
void WarnOfPenalty(const Arguments& arguments, const GenerationSettings& settings) {
  if (arguments.repetition_penalty || settings.repetition_penalty == 1) return;
  spdlog::warn(
      "{}: repetition_penalty is {}, which Transformers' generate applies; for the same answers: "
      "--repetition-penalty {}",
      settings.source, settings.repetition_penalty, settings.repetition_penalty);
}

// A `--video`: a file, a folder of frames, or frames with commas between them, which go to the
// record's pictures.
void AddVideo(const std::string& given, double fps, Record& record) {
  Video video;
  video.fps = fps;
  video.first = record.images.size();
  if (given.find(',') == std::string::npos || std::filesystem::exists(given)) {
    video.path = given;
    record.videos.push_back(video);
    return;
  }
  for (size_t begin = 0; begin <= given.size();) {
    const size_t end = std::min(given.find(',', begin), given.size());
    if (begin == end) throw ConfigError("--video: no frame's name between two commas or at an end");
    record.images.push_back(given.substr(begin, end - begin));
    begin = end + 1;
  }
  video.frames = record.images.size() - video.first;
  record.videos.push_back(video);
}

// The question of --prompt with its pictures and videos.
Record PromptRecord(const Arguments& arguments) {
  Record record;
  record.turns = {{Role::kUser, arguments.prompt}};
  record.images = arguments.images;
  for (const std::string& video : arguments.videos) AddVideo(video, arguments.fps, record);
  // Without a video `<video>` is text.
  std::string fault =
      arguments.videos.empty() ? std::string() : PlaceVideos(record.turns, arguments.videos.size());
  if (fault.empty()) fault = PlaceImages(record.turns, arguments.images.size());
  if (!fault.empty()) throw ConfigError("--prompt: " + fault);
  return record;
}

// Either a prompt with its pictures and videos, or a file of questions and one for the answers.
void CheckQuestions(const Arguments& arguments) {
  if (arguments.jsonl.empty() == arguments.prompt.empty())
    throw ConfigError("generate: give either --prompt or --jsonl");
  if (arguments.jsonl.empty()) {
    if (!arguments.out.empty()) throw ConfigError("--out: is for the answers to --jsonl");
    if (!arguments.image_folder.empty()) {
      throw ConfigError("--images: is the folder of --jsonl's pictures; give a picture as --image");
    }
    if (!std::isfinite(arguments.fps) || arguments.fps < 0)
      throw ConfigError("--fps: must be above 0, the frames a second of --video");
    if (arguments.fps > 0 && arguments.videos.empty())
      throw ConfigError("--fps: is for --video, which is not given");
    PromptRecord(arguments);
    return;
  }
  if (arguments.out.empty()) throw ConfigError("--jsonl: set --out to the file for the answers");
  RequireOtherFile("--out", arguments.out, {arguments.jsonl});
  if (!arguments.images.empty())
    throw ConfigError("--image: is for --prompt; the questions of --jsonl name their pictures");
  if (!arguments.videos.empty() || arguments.fps != 0)
    throw ConfigError("--video: is for --prompt; the questions of --jsonl name their videos");
}

// Reads a file; messages of ImageError contain the path already.
std::string ReadPictureFile(const std::string& path, const ImageLimits& limits) {
  try {
    return ReadImageFile(path, limits);
  } catch (const ImageError& error) {
    throw DataError(error.what());
  }
}

// The model on its ranks, and what makes prompts for it.
class Answerer {
 public:
  Answerer(const Arguments& arguments, const ModelSource& source, MpiEnvironment& mpi)
      : arguments_(arguments), config_(ReadAskedModel(source, arguments.adapter)) {
    for (const std::string& folder : {source.folder, source.checkpoint, arguments.adapter}) {
      if (!folder.empty()) folders_.push_back(folder);
    }
    RunConfig config = ReadSettings(source, config_, arguments.adapter, arguments.set);
    if (!arguments.adapter.empty()) config.model.adapter.init = arguments.adapter;
    TakeAdaptersOf(source.checkpoint, config_, &config.model);
    SetAdapters(config.model, &config_);
    config.model.freeze.clear();  // it says above which components the run gave no adapters
    UsePixels(config.data, &config_);
    if (!config.parallel.zero) config.parallel.zero = 0;  // nothing is trained
    setup_ = std::make_unique<RunSetup>(SetUpRun(config, mpi));
    data_ = config.data;
    settings_ = fmt::format("{} {} {}", ConfigToJson(data_).dump(),
                            ConfigToJson(config.model).dump(), ToString(setup_->precision));
    tokenizer_ = std::make_unique<Tokenizer>(
        Tokenizer::Read(source.folder, /*added=*/{}, config_.text.vocab_size));
    template_ = std::make_unique<ChatTemplate>(data_.chat_template, data_.system, tokenizer_.get(),
                                               config_.image_token_id, ChatOptionsOf(data_));
    if (config_.image_token_id < 0) config_.image_token_id = template_->image_token();
    CheckVocabulary(source.folder, config_, *tokenizer_, *template_);
    WarnOfLeftOut(*tokenizer_);
    recorder_ = std::make_unique<TimelineRecorder>(mpi.rank());
    ParallelModel::Options options = ModelOptionsOf(config, *setup_);
    options.part.inference = true;
    model_ = std::make_unique<ParallelModel>(config_, MakePlan(config, config_, mpi.size()),
                                             options, *setup_->world, *recorder_);
    Load(source, config);
    GenerationSettings settings = ReadGenerationSettings(source.folder);
    WarnOfPenalty(arguments, settings);
    responder_ = std::make_unique<Responder>(&config_, tokenizer_.get(), template_.get(), &data_,
                                             std::move(settings));
  }

  Communicator& world() { return *setup_->world; }

  // The answer to the prompt.
  std::string AnswerPrompt() {
    const Record record = ArrangedPrompt();
    std::vector<NamedPicture> pictures;
    const ImageLimits limits{data_.limits.image_pixels, data_.limits.image_bytes};
    for (size_t i = 0; i < record.images.size(); ++i) {
      const std::string& path = record.images[i];
      pictures.push_back({path, record.FrameOfFile(i) != nullptr ? record.held[i]
                                                                 : ReadPictureFile(path, limits)});
    }
    QuestionList list;
    list.lengths = {1};
    list.ask = [&](int64_t, bool decode) { return responder_->Ask(record, pictures, decode); };
    const GivenAnswer answer = Answer(list).front();
    if (!answer.fault.empty()) throw DataError(answer.fault);
    return answer.text;
  }

  // A hash of what the answers to the questions of a file depend on.
  uint64_t Command() const {
    StableHash hash;
    const GenerateOptions& options = arguments_.options;
    hash.Add(fmt::format("{} {} {} {} {} {} {}", settings_, options.max_new_tokens,
                         options.temperature, options.top_p, options.seed,
                         arguments_.repetition_penalty.value_or(1), arguments_.limits.questions));
    for (const std::string& folder : folders_) hash.Add(FolderStamp(folder));
    hash.Add(SumFile(arguments_.jsonl).xxh3);
    hash.Add(arguments_.image_folder);
    return hash.value();
  }

  // Puts the objects of questions in their places, too.
  std::vector<GivenAnswer> AnswerFile(std::vector<FileQuestion>& questions,
                                      const AnswerKeeping& keeping) {
    const ImageFolder folder(
        arguments_.image_folder.empty()
            ? std::filesystem::absolute(arguments_.jsonl).parent_path().string()
            : arguments_.image_folder,
        data_.allow_outside);
    QuestionList list;
    std::vector<ParsedRecord> records;
    for (FileQuestion& question : questions) {
      records.push_back(Guarded([&](Record& record) {
        PlaceObjects(folder, question);
        record = question.record;
        ArrangeVideos(folder, ImageSpecOf(config_), video_limits(), record);
      }));
      // Pictures outweigh texts, and those of one data set are much alike.
      list.lengths.push_back(std::ssize(records.back().record.images) * 4096 +
                             std::ssize(question.question()));
    }
    list.ask = [&](int64_t number, bool decode) {
      const auto& [record, defect, reason] = records[static_cast<size_t>(number)];
      if (defect != Defect::kNone) return AskedQuestion{std::nullopt, reason};
      std::vector<NamedPicture> pictures;
      for (size_t i = 0; i < record.images.size(); ++i) {
        auto [bytes, fault] = ReadPicture(folder, record, i);
        if (!fault.empty()) return AskedQuestion{std::nullopt, fault};
        pictures.push_back({record.images[i], std::move(bytes)});
      }
      try {
        return responder_->Ask(record, pictures, decode);
      } catch (const DataError& error) {
        return AskedQuestion{std::nullopt, error.what()};
      }
    };
    return Answer(list, keeping);
  }

 private:
  void Load(const ModelSource& source, const RunConfig& config) {
    FlatParameters& parameters = model_->parameters();
    ModelSection section = config.model;
    if (source.checkpoint.empty()) {
      section.hf = source.folder;
      section.init = "pretrained";
    }
    if (!source.checkpoint.empty() && config_.lora.on()) CheckBase(config, source.checkpoint);
    if (source.checkpoint.empty() || config_.lora.on()) {
      parameters.SetWeights([&](const std::vector<Parameter*>& some) {
        SetFirstWeights(some, config_, section, static_cast<uint64_t>(config.train.seed));
      });
    }
    if (!source.checkpoint.empty()) LoadCheckpointWeights(parameters, source.checkpoint);
  }

  std::vector<GivenAnswer> Answer(const QuestionList& list, const AnswerKeeping& keeping = {}) {
    AnswerSession session(*model_, *responder_, *setup_->world);
    GenerateOptions options = arguments_.options;
    options.repetition_penalty = arguments_.repetition_penalty.value_or(1);
    return session.Answer(list, arguments_.limits, options, /*stop=*/nullptr, keeping).value();
  }

  // The prompt with the frames of its videos, whose paths are relative to the working folder.
  Record ArrangedPrompt() const {
    for (const std::string& video : arguments_.videos) {
      if (video.find(',') != std::string::npos || std::filesystem::exists(video)) continue;
      throw DataError(
          fmt::format("--video: {}: no such folder or file; give a video, a folder of its "
                      "frames, or its frames with commas between them",
                      ShownText(video)));
    }
    ParsedRecord arranged = Guarded([&](Record& record) {
      record = PromptRecord(arguments_);
      ArrangeVideos(ImageFolder(".", /*allow_outside=*/true), ImageSpecOf(config_), video_limits(),
                    record);
    });
    if (arranged.defect != Defect::kNone) throw DataError("--video: " + arranged.reason);
    return std::move(arranged.record);
  }

  VideoLimits video_limits() const {
    return {data_.max_frames, {data_.limits.image_pixels, data_.limits.image_bytes}};
  }

  // Puts the objects of a question in their places. Where its pictures cannot be measured, they
  // stay where they are: such a question is not asked. Throws Refusal.
  void PlaceObjects(const ImageFolder& folder, FileQuestion& question) const {
    const Record& record = question.record;
    if (record.objects.empty()) return;
    const ImageLimits limits{data_.limits.image_pixels, data_.limits.image_bytes};
    std::vector<ImageSize> sizes;
    try {
      for (size_t i = 0; !record.objects.boxes.empty() && i < record.images.size(); ++i)
        sizes.push_back(ImageSizeOf(ReadPicture(folder, record, i).first, limits));
      WriteObjects(ImageProcessor(ImageSpecOf(config_), data_.tiles), sizes, question);
    } catch (const ImageError&) {
    }
  }

  // The bytes of a record's picture, or why there are none.
  std::pair<std::string, std::string> ReadPicture(const ImageFolder& folder, const Record& record,
                                                  size_t index) const {
    const bool in_video = record.FrameOfFile(index) != nullptr;
    if (in_video || (!record.held.empty() && !record.held[index].empty()))
      return {record.held[index], ""};
    const OpenedImage opened = folder.Open(record.images[index]);
    if (opened.defect != Defect::kNone) return {"", opened.reason};
    const std::string name = ShownText(record.images[index]);
    if (opened.bytes > data_.limits.image_bytes)
      return {"", name + ": larger than data.limits.image_bytes"};
    std::string bytes(static_cast<size_t>(opened.bytes), '\0');
    if (ReadFullyAt(opened.file, bytes.data(), bytes.size(), 0) != opened.bytes)
      return {"", name + ": cannot be read"};
    return {std::move(bytes), ""};
  }

  const Arguments& arguments_;
  std::vector<std::string> folders_;  // that the model is read from
  std::string settings_;              // of data and model, and the precision
  ModelConfig config_;
  DataConfig data_;
  std::unique_ptr<RunSetup> setup_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<ChatTemplate> template_;
  std::unique_ptr<TimelineRecorder> recorder_;
  std::unique_ptr<ParallelModel> model_;
  std::unique_ptr<Responder> responder_;
};

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

// Answers the questions of the file and writes the answers. Those of a command that was stopped
// are taken from a file beside --out.
std::vector<GivenAnswer> AnswerKept(const Arguments& arguments,
                                    std::vector<FileQuestion>& questions, Answerer& answerer,
                                    MpiEnvironment& mpi) {
  Communicator& world = answerer.world();
  const bool root = mpi.rank() == 0;
  std::optional<KeptAnswers> kept;
  AgreeOrThrowRunError(world, [&] {
    if (root) kept.emplace(arguments.out + ".part", answerer.Command(), std::ssize(questions));
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
  std::vector<GivenAnswer> answers = answerer.AnswerFile(questions, keeping);
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
  Answerer answerer(arguments, source, mpi);
  if (arguments.jsonl.empty()) {
    const std::string answer = answerer.AnswerPrompt();
    // It may contain any byte; control characters are removed for a terminal only.
    if (mpi.rank() == 0)
      std::cout << (isatty(STDOUT_FILENO) == 1 ? TerminalText(answer) : answer) << std::endl;
    return static_cast<int>(ExitCode::kDone);
  }
  AgreeOrThrowRunError(answerer.world(), [&] {
    if (mpi.rank() == 0) RequirePlaceFor(arguments.out);
  });
  const std::vector<GivenAnswer> answers = AnswerKept(arguments, questions, answerer, mpi);
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
  command->add_option("--prompt", arguments->prompt, "the question");
  command->add_option("--image", arguments->images, "a picture; may be given several times")
      ->allow_extra_args(false);
  command
      ->add_option("--video", arguments->videos,
                   "a video's file, a folder of its decoded frames, or the frames with commas "
                   "between them; may be given several times")
      ->allow_extra_args(false);
  command->add_option("--fps", arguments->fps,
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
