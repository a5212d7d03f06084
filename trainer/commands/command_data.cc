#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "configs/base/error.h"
#include "configs/yaml/overrides.h"
#include "data/index/cost_lines.h"
#include "data/text/tokenize_lines.h"
#include "models/families/families.h"
#include "models/families/presets.h"
#include "parallel/comm/mpi_environment.h"
#include "parallel/comm/single_communicator.h"
#include "trainer/commands/data_groups.h"
#include "trainer/commands/data_report.h"
#include "trainer/commands/sample_view.h"
#include "trainer/common/commands.h"
#include "trainer/common/logging.h"
#include "trainer/settings/group_settings.h"
#include "trainer/settings/model_section.h"
#include "trainer/settings/source_lists.h"
#include "trainer/settings/vocabulary.h"

namespace equipoise {
namespace {

struct Arguments {
  std::string config;
  std::vector<std::string> set;
  bool eval = false, answers = false;
  bool json = false;
  bool colours = false;              // of standard output
  std::string sample, pixels, html;  // for `show`
  std::string costs, out;            // for `groups`
};

std::string DumpLine(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

RunConfig ConfigOf(const Arguments& arguments) {
  return ReadRunConfig(arguments.config, ParseOverrides(arguments.set));
}

const std::vector<SourceConfig>& SourcesOf(const Arguments& arguments, const RunConfig& config) {
  if (arguments.answers) return config.eval.answers;
  return arguments.eval ? config.data.eval : config.data.train;
}

// The configuration and its opened data; the cost index is built if it does not exist.
struct DataSession {
  DataSession(const Arguments& arguments, bool rebuild)
      : config(ConfigOf(arguments)),
        sources(SourcesOf(arguments, config)),
        data(config, sources, world, {rebuild, /*enforce_bad_share=*/false}) {
    WarnOfLeftOut(data.tokenizer);
  }

  RunConfig config;
  std::vector<SourceConfig> sources;
  SingleCommunicator world;
  OpenedData data;
};

int Stats(const Arguments& arguments) {
  const DataSession session(arguments, /*rebuild=*/false);
  const Json statistics = DataStatistics(session.config, session.sources, session.data);
  if (arguments.json) {
    std::cout << DumpLine(statistics);
  } else {
    PrintStatistics(statistics, std::cout);
  }
  return 0;
}

int Show(const Arguments& arguments) {
  RequireOtherFile("--html", arguments.html, {arguments.config});
  RequireOtherFile("--pixels", arguments.pixels, {arguments.config});
  const DataSession session(arguments, /*rebuild=*/false);
  const int64_t number = FindSample(session.data, arguments.sample);
  const Json sample = DescribeSample(session.data, number);
  if (!arguments.pixels.empty()) WriteSample(session.data, number, arguments.pixels);
  if (!arguments.html.empty()) WriteSamplePage(session.data, sample, arguments.html);
  if (arguments.json) {
    std::cout << DumpLine(sample);
    return 0;
  }
  PrintSample(sample, arguments.colours, std::cout);
  if (arguments.colours) DrawPictures(session.data, number, std::cout);
  return 0;
}

int Check(const Arguments& arguments) {
  const DataSession session(arguments, /*rebuild=*/false);
  const CheckedRecords checked =
      CheckRecords(session.data, session.config.data.LoaderThreads(1), [&](const Json& defect) {
        if (arguments.json) {
          std::cout << DumpLine(defect);
          return;
        }
        std::cout << defect["file"].get<std::string>() << ":" << defect["line"] << ": "
                  << defect["defect"].get<std::string>() << ": "
                  << defect["reason"].get<std::string>() << "\n";
      });
  const std::vector<int64_t>& counts = checked.by_defect;
  const int64_t dropped = counts[static_cast<size_t>(Defect::kTooLong)];
  const int64_t records = session.data.index.size(), bad = records - counts[0] - dropped;
  std::ostream& summary = arguments.json ? std::cerr : std::cout;
  summary << bad << " of " << records << " records cannot be used\n";
  for (size_t i = 1; i < counts.size(); ++i) {
    if (counts[i] > 0 && static_cast<Defect>(i) != Defect::kTooLong)
      summary << "  " << DefectName(static_cast<Defect>(i)) << " " << counts[i] << "\n";
  }
  if (dropped > 0) {
    summary << dropped << " of " << records << " records have more tokens than data.max_tokens "
            << session.config.data.max_tokens << " and are dropped\n";
  }
  if (checked.cut > 0) {
    summary << checked.cut << " of " << records << " records are cut at data.max_tokens "
            << session.config.data.max_tokens << ", the longest from " << checked.longest
            << " tokens\n";
  }
  const double share = static_cast<double>(bad) / static_cast<double>(records);
  const bool too_many = share > session.config.data.max_bad_share;
  return static_cast<int>(too_many ? ExitCode::kBadData : ExitCode::kDone);
}

int BuildIndex(const Arguments& arguments) {
  const DataSession session(arguments, /*rebuild=*/true);
  const double seconds = session.data.opened.seconds;
  const CostIndex& index = session.data.index;
  const Json result = {
      {"path", index.path()},    {"bytes", std::filesystem::file_size(index.path())},
      {"records", index.size()}, {"usable", index.CountDefects()[0]},
      {"seconds", seconds},      {"samples_per_s", static_cast<double>(index.size()) / seconds}};
  if (arguments.json) {
    std::cout << DumpLine(result);
    return 0;
  }
  std::cout << index.path() << ": " << result["bytes"] << " bytes, " << index.size() << " records, "
            << result["usable"] << " usable\n";
  std::printf("%.2f s, %.0f samples/s with data.threads %ld\n", seconds,
              result["samples_per_s"].get<double>(),
              static_cast<long>(session.config.data.LoaderThreads(1)));
  return 0;
}

int Tokenize(const Arguments& arguments) {
  const std::filesystem::path path(arguments.config);
  const bool is_tokenizer = std::filesystem::is_directory(path) || path.extension() == ".json" ||
                            path.extension() == ".model";
  const auto of_config = [&] {
    const RunConfig config = ConfigOf(arguments);
    if (!NamesModel(config.model)) return Tokenizer::Read(TokenizerPath(config));
    return ReadTokenizer(config, ModelConfigOf(config));
  };
  const Tokenizer tokenizer = is_tokenizer ? Tokenizer::Read(arguments.config) : of_config();
  std::ios::sync_with_stdio(false);
  TokenizeLines(tokenizer, std::cin, std::cout);
  std::cout.flush();
  return 0;
}

// The model for which micro-batches are balanced: that of the configuration, or a preset if it
// specifies none.
struct PredictedModel {
  explicit PredictedModel(const ModelSection& section) {
    if (NamesModel(section)) {
      config = ModelConfigOf(section);
      frozen = section.freeze;
      return;
    }
    const char* preset = "internvl2-26b";
    spdlog::info("the configuration names no model: time is predicted for {}", preset);
    config = PresetConfig(preset);
  }

  ModelConfig config;
  std::vector<std::string> frozen;
};

int Groups(const Arguments& arguments) {
  RequireOtherFile("--out", arguments.out, {arguments.config, arguments.costs});
  const RunConfig config = ConfigOf(arguments);
  DataGroupsOptions options;
  const PredictedModel model(config.model);
  const ImageSpec images = ImageSpecOf(model.config);
  options.groups = GroupOptionsOf(config, FlopsOfLoad(model.config, model.frozen), images);
  options.window = config.balance.window;
  options.data_ranks = config.parallel.data.value_or(1) * config.train.diloco.islands;
  if (!config.parallel.data && options.data_ranks == 1) {
    spdlog::info(
        "of one data rank, which waits for none; --set parallel.data=8 shows how even eight are");
  }
  options.out = arguments.out;
  if (config.train.global_batch % options.data_ranks != 0) {
    throw ConfigError(
        fmt::format("train.global_batch: {} packs cannot be divided among {} data ranks; use a "
                    "multiple of that",
                    config.train.global_batch, options.data_ranks));
  }
  if (!arguments.costs.empty()) {
    options.source = arguments.costs;
    const std::vector<SampleSize> sizes = ReadCostLines(arguments.costs, images);
    WriteDataGroups(ListOf(sizes), options, std::cout);
    return 0;
  }
  const DataSession session(arguments, /*rebuild=*/false);
  options.source = arguments.answers ? "eval.answers" : arguments.eval ? "data.eval" : "data.train";
  const EpochSamples samples(&session.data.index, SourceRepeats(session.sources),
                             options.groups.seed, /*epoch=*/0);
  options.number_of = [&samples](int64_t place) { return samples[place]; };
  WriteDataGroups(samples.list(), options, std::cout);
  return 0;
}

using Action = int (*)(const Arguments&);

}  // namespace

void AddDataCommand(CLI::App& app, MpiEnvironment& mpi, bool colours, std::function<int()>& run) {
  CLI::App* command =
      app.add_subcommand("data", "Shows, checks and indexes the data of a configuration");
  auto arguments = std::make_shared<Arguments>();
  arguments->colours = colours;
  command->add_option("CONFIG", arguments->config, "YAML file")->required();
  command->add_option("--set", arguments->set, "a.b=c: one setting in place of the file's")
      ->allow_extra_args(false);
  CLI::Option* eval =
      command->add_flag("--eval", arguments->eval, "data.eval in place of data.train");
  command->add_flag("--answers", arguments->answers, "eval.answers in place of data.train")
      ->excludes(eval);
  command->add_flag("--json", arguments->json, "JSON, one object a line");
  command->require_subcommand(1);
  command->footer(
      "Examples:\n  equipoise data configs/quickstart.yaml stats\n  equipoise data "
      "configs/quickstart.yaml show 3 --json\n"
      "  equipoise data configs/quickstart.yaml groups\n"
      "  equipoise data path/to/model tokenize < text.txt");
  const auto add = [&](const char* name, const char* help, Action action) {
    CLI::App* sub = command->add_subcommand(name, help);
    sub->fallthrough();
    sub->callback([arguments, &mpi, &run, action] {
      run = [arguments, &mpi, action] {
        RequireOneProcess(mpi, "data");
        SetUpLogging({mpi.rank(), mpi.size(), "", false});
        return action(*arguments);
      };
    });
    return sub;
  };
  add("stats", "Histograms of tokens and tiles, defects, and how an epoch packs", Stats);
  CLI::App* show =
      add("show", "One sample as the model sees it: tokens with their mask, pictures, what is cut",
          Show);
  show->add_option("N", arguments->sample, "number of the record, from 0, or its id")->required();
  show->add_option(
      "--pixels", arguments->pixels,
      "safetensors file to write: pixel_values, input_ids and labels, as `check` reads "
      "them");
  show->add_option("--html", arguments->html,
                   "HTML file to write: one page with the tiles and the tokens, which opens "
                   "anywhere");
  show->footer(
      "On a terminal trained tokens are green, context is dim, and pictures are drawn; NO_COLOR=1 "
      "in\nthe environment, or a pipe, gives plain text.");
  add("check",
      "Every record's defects, pictures decoded; exit code 4 when more than data.max_bad_share is "
      "bad",
      Check);
  add("index", "Builds a new cost index, also where there is one", BuildIndex);
  CLI::App* groups = add(
      "groups", "How even the micro-batches of the first epoch are, and which they are", Groups);
  groups->add_option("--costs", arguments->costs,
                     "JSONL of {\"vit_num\":..,\"token_num\":..} in place of the cost index");
  groups->add_option("--out", arguments->out,
                     "JSONL file to write them to, one a line; absent = the table alone");
  groups->footer(
      "Columns of the table (before: random micro-batches of as many samples, padded to the "
      "longest "
      "as\nother trainers do; after: those of balance.group):\n"
      "  pad             share of the computed token positions that are padding; packs have none\n"
      "  dist            share of tiles, tokens, predicted time that data ranks wait for the one "
      "with\n                  the most, mean over micro-batches\n"
      "  step variation  standard deviation of a step's tokens over their mean");
  add("tokenize",
      "A JSON list of ids for each line of standard input; CONFIG may be a tokenizer's file or "
      "folder",
      Tokenize);
}

}  // namespace equipoise
