#include "trainer/commands/data_groups.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>
#include <ostream>
#include <vector>

#include "balance/groups/epoch_windows.h"
#include "configs/base/error.h"
#include "trainer/settings/group_settings.h"

namespace equipoise {
namespace {

// A text file that is written in blocks of about 1 MiB.
class BlockWriter {
 public:
  explicit BlockWriter(const std::string& path) : path_(path), file_(fopen(path.c_str(), "w")) {
    if (file_ == nullptr) Fail("open");
  }
  ~BlockWriter() {
    if (file_ != nullptr) fclose(file_);
  }
  BlockWriter(const BlockWriter&) = delete;
  BlockWriter& operator=(const BlockWriter&) = delete;

  std::string& text() { return text_; }
  void FlushLarge() {
    if (text_.size() >= (1 << 20)) Flush();
  }
  void Close() {
    Flush();
    const int failed = fclose(file_);
    file_ = nullptr;
    if (failed != 0) Fail("write");
  }

 private:
  void Flush() {
    if (fwrite(text_.data(), 1, text_.size(), file_) != text_.size()) Fail("write");
    text_.clear();
  }
  [[noreturn]] void Fail(const char* what) const {
    throw RunError(fmt::format("{}: cannot {}: {}", path_, what, std::strerror(errno)));
  }

  std::string path_, text_;
  FILE* file_;
};

// Writes the groups of an epoch step by step, as windows are formed. A step may span two windows.
// The file, if any, is opened for the first full step.
class GroupWriter {
 public:
  explicit GroupWriter(const DataGroupsOptions& options) : options_(options) {}

  void Add(const EpochWindows& window) {
    const EpochGroups& part = window.groups();
    for (const int64_t group : part.order) {
      Entry& entry = step_.emplace_back();
      for (const int64_t i : part.groups[group]) {
        const int64_t place = window.places()[static_cast<size_t>(i)];
        entry.samples.push_back(options_.number_of ? options_.number_of(place) : place);
      }
      entry.load = part.loads[static_cast<size_t>(group)].load;
      if (std::ssize(step_) == options_.groups.global_batch) WriteStep();
    }
  }
  // Writes the rest after the last window. Returns false when there was no full step.
  bool Finish() {
    if (steps_ == 0) return false;
    if (!step_.empty()) WriteStep();
    if (out_) out_->Close();
    return true;
  }

 private:
  struct Entry {
    std::vector<int64_t> samples;
    LayerLoad load;
  };

  void WriteStep() {
    if (!options_.out.empty()) AppendStep();
    step_.clear();
    ++steps_;
  }

  void AppendStep() {
    if (!out_) out_.emplace(options_.out);
    std::vector<LayerLoad> loads;
    loads.reserve(step_.size());
    for (const Entry& entry : step_) loads.push_back(entry.load);
    const int64_t ranks = options_.data_ranks;
    const std::vector<int64_t> rows = RowsOfStep(loads, options_.groups, ranks);
    for (int64_t i = 0; i < std::ssize(rows); ++i) {
      out_->text() += fmt::format("{{\"step\":{}", steps_);
      out_->text() += fmt::format(",\"data_rank\":{}", i % ranks);
      out_->text() += fmt::format(",\"micro_batch\":{}", i / ranks);
      AppendEntry(step_[static_cast<size_t>(rows[static_cast<size_t>(i)])], out_->text());
    }
    out_->FlushLarge();
  }

  void AppendEntry(const Entry& entry, std::string& text) const {
    text += ",\"samples\":[";
    for (const int64_t sample : entry.samples) {
      text += std::to_string(sample);
      text += ',';
    }
    text.back() = ']';
    text += fmt::format(",\"tiles\":{}", entry.load.patches / options_.groups.patch_unit);
    text += fmt::format(",\"tokens\":{}}}\n", entry.load.tokens);
  }

  const DataGroupsOptions& options_;
  std::optional<BlockWriter> out_;
  std::vector<Entry> step_;  // groups of the step that is not full yet
  int64_t steps_ = 0;
};

[[noreturn]] void RefuseTooFew(const EpochSummary& epoch, const DataGroupsOptions& options) {
  if (epoch.groups + epoch.oversize == 0) {
    throw DataError(options.source + ": no record can be used; see `equipoise data CONFIG check`");
  }
  const GroupOptions& groups = options.groups;
  const std::string text = fmt::format("balance.tiles {} or balance.tokens {}",
                                       groups.limit_units(), groups.limits.tokens);
  if (epoch.groups == 0) {
    throw DataError(fmt::format("{}: each of the {} samples is beyond {}; raise them",
                                options.source, epoch.oversize, text));
  }
  throw DataError(fmt::format(
      "{}: gives {} packs within {}, a step needs train.global_batch {}; lower it or add data",
      options.source, epoch.groups, text, options.groups.global_batch));
}

void LogRounds(const std::vector<IsfRound>& rounds) {
  for (size_t round = 0; round < rounds.size() && round < 10; ++round) {
    spdlog::info("isf round {}: {} packs accepted, {} samples left", round + 1,
                 rounds[round].accepted, rounds[round].samples_in_pool);
  }
}

void PrintRow(const std::string& name, const EpochSummary& epoch, std::ostream& out) {
  const BalanceMetrics& m = epoch.balance;
  out << fmt::format("{:<16} {:>13} {:>7.4f} {:>11.4f} {:>12.4f} {:>10.4f} {:>15.4f}\n", name,
                     epoch.groups, m.pad_ratio, m.dist_ratio_vision, m.dist_ratio_text,
                     m.dist_ratio_time, m.step_variation);
}

}  // namespace

void WriteDataGroups(const SampleList& samples, DataGroupsOptions options, std::ostream& table) {
  ChooseLimits(samples, options.groups);
  const GroupOptions& groups = options.groups;
  const EpochWindows::Options stream{options.window, /*epoch=*/0, /*head=*/0};
  GroupWriter writer(options);
  std::vector<IsfRound> rounds;  // of the first window
  const EpochSummary after = SummarizeEpoch(EpochWindows(samples, groups, stream),
                                            options.data_ranks, [&](const EpochWindows& window) {
                                              if (window.begin() == 0)
                                                rounds = window.groups().rounds;
                                              writer.Add(window);
                                            });
  if (after.oversize > 0) {
    spdlog::warn("{} of {} samples are beyond balance.tiles {} or balance.tokens {} and left out",
                 after.oversize, after.oversize + after.samples, groups.limit_units(),
                 groups.limits.tokens);
  }
  if (!writer.Finish()) RefuseTooFew(after, options);
  LogRounds(rounds);
  table << fmt::format(
      "{} samples, at most {} tiles and {} tokens, {} data ranks, {} micro-batches "
      "a step",
      after.samples, groups.limit_units(), groups.limits.tokens, options.data_ranks,
      groups.global_batch);
  if (!HasFixedSamples(groups.method))
    table << fmt::format(", packs {:.2f} % full", 100 * after.balance.fill_share);
  table << fmt::format("\n{:<16} {:>13} {:>7} {:>11} {:>12} {:>10} {:>15}\n", "", "micro-batches",
                       "pad", "dist tiles", "dist tokens", "dist time", "step variation");
  const GroupOptions random = RandomBaseline(groups, after.samples_per_group());
  PrintRow("before (random)",
           SummarizeEpoch(EpochWindows(samples, random, stream), options.data_ranks), table);
  PrintRow(fmt::format("after ({})", ToString(groups.method)), after, table);
}

}  // namespace equipoise
