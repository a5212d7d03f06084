#include "trainer/data_groups.h"

#include <spdlog/spdlog.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ostream>

#include "configs/error.h"
#include "trainer/group_settings.h"

namespace equipoise {
namespace {

// A text file that is written in large blocks.
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
    throw RunError(path_ + ": cannot " + what + ": " + std::strerror(errno));
  }

  std::string path_, text_;
  FILE* file_;
};

void CheckEnough(const EpochGroups& epoch, const DataGroupsOptions& options) {
  const GroupLimits& limits = options.groups.limits;
  const std::string text = "balance.tiles " + std::to_string(limits.tiles) + " or balance.tokens " +
                           std::to_string(limits.tokens);
  if (epoch.size() == 0) {
    throw DataError(options.source + ": each of the " + std::to_string(epoch.oversize.size()) +
                    " samples is beyond " + text + "; raise them");
  }
  if (epoch.size() < options.groups.global_batch) {
    throw DataError(options.source + ": gives " + std::to_string(epoch.size()) + " packs within " +
                    text + ", a step needs train.global_batch " +
                    std::to_string(options.groups.global_batch) + "; lower it or add data");
  }
}

void AppendLine(const EpochGroups& epoch, int64_t group, const std::vector<int64_t>& ids,
                std::string& text) {
  text += ",\"samples\":[";
  for (const int64_t sample : epoch.groups[group]) {
    text += std::to_string(ids.empty() ? sample : ids[static_cast<size_t>(sample)]);
    text += ',';
  }
  text.back() = ']';
  const LayerLoad& load = epoch.loads[static_cast<size_t>(group)].load;
  text += ",\"tiles\":" + std::to_string(load.tiles);
  text += ",\"tokens\":" + std::to_string(load.tokens) + "}\n";
}

void WriteGroups(const EpochGroups& epoch, const std::vector<int64_t>& ids,
                 const DataGroupsOptions& options) {
  BlockWriter out(options.out);
  const int64_t batch = options.groups.global_batch, ranks = options.data_ranks;
  for (int64_t step = 0; step * batch < epoch.size(); ++step) {
    const int64_t begin = step * batch, end = std::min(begin + batch, epoch.size());
    std::vector<LayerLoad> loads;
    for (int64_t i = begin; i < end; ++i) {
      const int64_t group = epoch.order[static_cast<size_t>(i)];
      loads.push_back(epoch.loads[static_cast<size_t>(group)].load);
    }
    const std::vector<int64_t> rows = RowsOfStep(loads, options.groups, ranks);
    for (int64_t i = 0; i < std::ssize(rows); ++i) {
      const int64_t place = begin + rows[static_cast<size_t>(i)];
      out.text() += "{\"step\":" + std::to_string(step);
      out.text() += ",\"data_rank\":" + std::to_string(i % ranks);
      out.text() += ",\"micro_batch\":" + std::to_string(i / ranks);
      AppendLine(epoch, epoch.order[static_cast<size_t>(place)], ids, out.text());
    }
    out.FlushLarge();
  }
  out.Close();
}

void PrintRow(const std::string& name, const EpochGroups& epoch, const GroupOptions& options,
              int64_t ranks, std::ostream& out) {
  const BalanceMetrics m = MeasureEpoch(epoch, options, ranks);
  char line[160];
  snprintf(line, sizeof line, "%-16s %9ld %8.4f %12.4f %10.4f %10.4f %14.4f\n", name.c_str(),
           static_cast<long>(epoch.size()), m.pad_ratio, m.dist_ratio_vision, m.dist_ratio_text,
           m.dist_ratio_time, m.step_variation);
  out << line;
}

}  // namespace

void WriteDataGroups(const std::vector<SampleSize>& sizes, const std::vector<int64_t>& ids,
                     DataGroupsOptions options, std::ostream& table) {
  ChooseLimits(sizes, options.groups);
  const GroupOptions& groups = options.groups;
  const EpochGroups epoch = PlanEpoch(sizes, groups, /*epoch=*/0);
  if (!epoch.oversize.empty()) {
    spdlog::warn("{} of {} samples are beyond balance.tiles {} or balance.tokens {} and left out",
                 epoch.oversize.size(), sizes.size(), groups.limits.tiles, groups.limits.tokens);
  }
  CheckEnough(epoch, options);
  WriteGroups(epoch, ids, options);
  for (size_t round = 0; round < epoch.rounds.size() && round < 10; ++round) {
    spdlog::info("isf round {}: {} packs accepted, {} samples left", round + 1,
                 epoch.rounds[round].accepted, epoch.rounds[round].samples_in_pool);
  }
  table << epoch.groups.num_samples() << " samples, at most " << groups.limits.tiles
        << " tiles and " << groups.limits.tokens << " tokens, " << options.data_ranks
        << " data ranks, " << groups.global_batch << " micro-batches a step\n"
        << "                    groups PadRatio  Dist vision  Dist text  Dist time  "
           "step variation\n";
  const GroupOptions random = RandomBaseline(groups);
  PrintRow("before (random)", PlanEpoch(sizes, random, 0), random, options.data_ranks, table);
  PrintRow("after (" + GroupMethodName(groups.method) + ")", epoch, groups, options.data_ranks,
           table);
}

}  // namespace equipoise
