#include "parallel/schedule/schedule_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "configs/base/error.h"
#include "configs/base/nearest.h"

namespace equipoise {
namespace {

constexpr int kMaxMicroBatches = 1000000;

// Removes a number from the front of `text` and returns it.
std::optional<int> TakeNumber(std::string_view& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0 || text.front() == '-') return std::nullopt;
  text.remove_prefix(end - text.data());
  return number;
}

std::optional<int> WholeNumber(std::string_view text) {
  const std::optional<int> number = TakeNumber(text);
  return text.empty() ? number : std::nullopt;
}

std::optional<OpKind> KindOf(char letter) {
  constexpr std::string_view kLetters = "FBIWVUSR";
  constexpr OpKind kKinds[] = {OpKind::kForward,        OpKind::kBackward,
                               OpKind::kInputGradient,  OpKind::kWeightGradient,
                               OpKind::kEncoderForward, OpKind::kEncoderBackward,
                               OpKind::kSend,           OpKind::kRecv};
  const size_t at = kLetters.find(letter);
  if (at == std::string_view::npos) return std::nullopt;
  return kKinds[at];
}

std::optional<Op> FindOp(std::string_view text) {
  if (text == "OPT") return Op{OpKind::kOptimizer, 0, 0};
  const std::optional<int> stage = TakeNumber(text);
  if (!stage || text.empty()) return std::nullopt;
  if (text == "REDUCE") return Op{OpKind::kReduce, *stage, 0};
  const std::optional<OpKind> kind = KindOf(text.front());
  text.remove_prefix(1);
  const std::optional<int> micro_batch = TakeNumber(text);
  if (!kind || !micro_batch) return std::nullopt;
  Op op{*kind, *stage, *micro_batch};
  if (IsCompute(*kind) && (text == "GATHER" || text == "FREE")) {
    op.pass = *kind;
    op.kind = text == "FREE" ? OpKind::kFree : OpKind::kGather;
    return op;
  }
  if (IsTransfer(*kind)) {
    const char arrow = *kind == OpKind::kSend ? '>' : '<';
    if (text.empty() || text.front() != arrow) return std::nullopt;
    text.remove_prefix(1);
    const std::optional<int> peer = TakeNumber(text);
    if (!peer) return std::nullopt;
    op.peer = *peer;
  }
  if (!text.empty()) return std::nullopt;
  return op;
}

struct Token {
  std::string_view text;
  int line = 0, column = 0;  // from 1
};

// The words and the marks ( ) : of one line, up to a comment.
std::vector<Token> Split(std::string_view line, int number) {
  constexpr std::string_view kSpaces = " \t\r", kMarks = "():";
  std::vector<Token> tokens;
  line = line.substr(0, line.find('#'));
  for (size_t i = 0; i < line.size();) {
    size_t end = i + 1;
    if (kSpaces.find(line[i]) == std::string_view::npos) {
      if (kMarks.find(line[i]) == std::string_view::npos) {
        end = std::min(line.find_first_of(" \t\r():", i), line.size());
      }
      tokens.push_back({line.substr(i, end - i), number, static_cast<int>(i) + 1});
    }
    i = end;
  }
  return tokens;
}

class Parser {
 public:
  explicit Parser(std::string file) : file_(std::move(file)) {}

  Schedule Parse(std::string_view text) {
    int number = 0;
    while (!text.empty()) {
      const size_t end = std::min(text.find('\n'), text.size());
      tokens_ = Split(text.substr(0, end), ++number);
      next_ = 0;
      end_ = {"", number, static_cast<int>(end) + 1};
      if (!tokens_.empty()) ParseLine();
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    tokens_.clear();
    CheckStages();
    ResolveWork("idle", idle_, schedule_.work.runs);
    ResolveWork("silent", silent_, schedule_.work.sends);
    ResolveRanks();
    return std::move(schedule_);
  }

 private:
  [[noreturn]] void Fail(const Token& at, const std::string& what) const {
    throw ConfigError(fmt::format("{}:{}:{}: {}", file_, at.line, at.column, what));
  }

  bool AtEnd() const { return next_ == tokens_.size(); }
  const Token& Peek() const { return AtEnd() ? end_ : tokens_[next_]; }
  Token Next() {
    const Token token = Peek();
    if (!AtEnd()) ++next_;
    return token;
  }

  int NextNumber(const std::string& what) {
    const Token token = Next();
    const std::optional<int> number = WholeNumber(token.text);
    if (!number) Fail(token, fmt::format("{}; give {}", Found(token), what));
    return *number;
  }

  static std::string Found(const Token& token) {
    return token.text.empty() ? "the line ends" : fmt::format("found \"{}\"", token.text);
  }

  void ExpectEnd() {
    if (!AtEnd()) Fail(Peek(), fmt::format("{}; end the line before it", Found(Peek())));
  }

  [[noreturn]] void Unknown(const Token& word, const std::vector<std::string>& known) const {
    const std::string near = NearestName(std::string(word.text), known);
    std::string all;
    for (const std::string& each : known) all += (all.empty() ? "" : ", ") + each;
    Fail(word, fmt::format("unknown word \"{}\"; {}", word.text,
                           near.empty() ? fmt::format("known here are {}", all)
                                        : fmt::format("did you mean \"{}\"?", near)));
  }

  void ParseLine() {
    const Token word = Next();
    if (word.text == "micro_batches") {
      ParseMicroBatches(word);
    } else if (word.text == "stage") {
      ParseStage();
    } else if (word.text == "idle" || word.text == "silent") {
      std::vector<std::pair<Op, Token>>& ops = word.text == "idle" ? idle_ : silent_;
      do {
        const Token token = Next();
        ops.emplace_back(ToOp(token), token);
      } while (!AtEnd());
    } else if (word.text == "rank") {
      ParseRank(word);
    } else {
      Unknown(word, {"micro_batches", "stage", "idle", "silent", "rank"});
    }
  }

  void ParseMicroBatches(const Token& word) {
    if (schedule_.micro_batches > 0) Fail(word, "micro_batches stands twice; give it once");
    const Token number = Peek();
    schedule_.micro_batches = NextNumber("the number of micro-batches");
    if (schedule_.micro_batches < 1 || schedule_.micro_batches > kMaxMicroBatches) {
      Fail(number, fmt::format("{} micro-batches; give 1 to {}", number.text, kMaxMicroBatches));
    }
    ExpectEnd();
  }

  void ParseStage() {
    StageNode node;
    const Token number = Peek();
    if (NextNumber("the stage's number") != schedule_.graph.num_stages()) {
      Fail(number, fmt::format("found stage {}; list the stages in order, here comes {}",
                               number.text, schedule_.graph.num_stages()));
    }
    stage_tokens_.push_back(number);
    if (Peek().text != "rank")
      Fail(Peek(), fmt::format("{}; give rank and its number", Found(Peek())));
    Next();
    node.rank = NextNumber("the rank's number");
    while (!AtEnd()) ParseStageWord(node);
    schedule_.graph.stages.push_back(node);
  }

  void ParseStageWord(StageNode& node) {
    const Token word = Next();
    if (word.text == "next") {
      node.next.push_back(NextNumber("the number of the stage after it"));
      while (!AtEnd() && WholeNumber(Peek().text)) node.next.push_back(NextNumber(""));
    } else if (word.text == "encoder") {
      node.encoder = true;
    } else if (word.text == "lane") {
      node.lane = NextNumber("the lane's number");
    } else if (word.text == "no_input_gradient") {
      node.needs_input_gradient = false;
    } else if (word.text == "no_weight_gradient") {
      node.needs_weight_gradient = false;
    } else {
      Unknown(word, {"next", "encoder", "lane", "no_input_gradient", "no_weight_gradient"});
    }
  }

  Op ToOp(const Token& token) const {
    if (token.text.empty()) Fail(token, "the line ends; give an op such as 0F2");
    try {
      return ParseOp(std::string(token.text));
    } catch (const ConfigError& error) {
      Fail(token, error.what());
    }
  }

  void ParseRank(const Token& word) {
    const int rank = NextNumber("the rank's number");
    if (Peek().text != ":")
      Fail(Peek(), fmt::format("{}; give : and the rank's ops", Found(Peek())));
    Next();
    const auto [entry, first] = ranks_.try_emplace(rank, word, std::vector<Op>());
    if (!first) Fail(word, fmt::format("rank {} has two lines; join them", rank));
    std::vector<Op>& list = entry->second.second;
    std::optional<Token> open;  // the ( of the group that is being read
    size_t group = 0;           // where it begins
    while (!AtEnd()) {
      const Token token = Next();
      if (token.text == "(") {
        if (open) Fail(token, "a group within a group; close the first with )");
        open = token;
        group = list.size();
      } else if (token.text == ")") {
        if (!open) Fail(token, "no group is open; put a ( in front of its first transfer");
        if (list.size() < group + 2) Fail(*open, "a group of one; give two transfers or more");
        open.reset();
      } else {
        Op op = ToOp(token);
        if (open && !IsTransfer(op.kind)) {
          Fail(token, fmt::format("{} in a group; only transfers start together", token.text));
        }
        op.joined = open && list.size() > group;
        list.push_back(op);
      }
    }
    if (open) Fail(*open, "the group does not end; close it with )");
  }

  void CheckStages() const {
    if (schedule_.micro_batches == 0) Fail(end_, "no micro-batches; add a line micro_batches 4");
    if (stage_tokens_.empty()) Fail(end_, "no stages; add a line stage 0 rank 0");
    if (const auto fault = FindGraphFault(schedule_.graph)) {
      Fail(stage_tokens_[fault->stage], fmt::format("stage {}: {}", fault->stage, fault->message));
    }
  }

  void ResolveWork(const std::string& word, const std::vector<std::pair<Op, Token>>& ops,
                   std::vector<std::vector<bool>>& table) const {
    if (ops.empty()) return;
    const StageGraph& graph = schedule_.graph;
    table.assign(graph.num_stages(), std::vector<bool>(schedule_.micro_batches, true));
    for (const auto& [op, token] : ops) {
      if (op.stage >= graph.num_stages())
        Fail(token, fmt::format("there is no stage {}", op.stage));
      const OpKind kind =
          graph.stages[op.stage].encoder ? OpKind::kEncoderForward : OpKind::kForward;
      if (op.kind != kind) {
        Fail(token, fmt::format("{} after {}; give the forward of a stage, here {}", token.text,
                                word, ToString({kind, op.stage, op.micro_batch})));
      }
      if (op.micro_batch >= schedule_.micro_batches) {
        Fail(token, fmt::format("there is no micro-batch {}; the last is {}", op.micro_batch,
                                schedule_.micro_batches - 1));
      }
      table[op.stage][op.micro_batch] = false;
    }
  }

  void ResolveRanks() {
    const int ranks = schedule_.graph.num_ranks();
    for (const auto& [rank, entry] : ranks_) {
      if (rank >= ranks) Fail(entry.first, fmt::format("no stage lies on rank {}", rank));
    }
    for (int rank = 0; rank < ranks; ++rank) {
      const auto entry = ranks_.find(rank);
      if (entry == ranks_.end()) {
        Fail(end_, fmt::format("rank {} has no list; add a line \"rank {}:\"", rank, rank));
      }
      schedule_.ranks.push_back(entry->second.second);
    }
  }

  const std::string file_;
  Schedule schedule_;
  std::vector<Token> tokens_;  // of the line that is being read
  size_t next_ = 0;
  Token end_{"", 1, 1};  // the end of that line
  std::vector<Token> stage_tokens_;
  std::vector<std::pair<Op, Token>> idle_, silent_;
  std::map<int, std::pair<Token, std::vector<Op>>> ranks_;
};

std::string StageLine(const StageNode& node, int stage) {
  std::string line = fmt::format("stage {} rank {}", stage, node.rank);
  if (!node.next.empty()) line += " next";
  for (const int next : node.next) line += fmt::format(" {}", next);
  if (node.encoder) line += " encoder";
  if (node.lane >= 0) line += fmt::format(" lane {}", node.lane);
  if (!node.needs_input_gradient) line += " no_input_gradient";
  if (!node.needs_weight_gradient) line += " no_weight_gradient";
  return line + "\n";
}

// The `idle` or `silent` lines, one a stage.
std::string WorkLines(const Schedule& schedule, const std::string& word, bool idle) {
  std::string lines;
  for (int stage = 0; stage < schedule.graph.num_stages(); ++stage) {
    const OpKind kind =
        schedule.graph.stages[stage].encoder ? OpKind::kEncoderForward : OpKind::kForward;
    std::string ops;
    for (int m = 0; m < schedule.micro_batches; ++m) {
      const bool runs = schedule.work.Runs(stage, m);
      const bool named = idle ? !runs : runs && !schedule.work.Sends(stage, m);
      if (named) ops += " " + ToString({kind, stage, m});
    }
    if (!ops.empty()) lines += word + ops + "\n";
  }
  return lines;
}

std::string RankLine(const std::vector<Op>& list, size_t rank) {
  std::string line = fmt::format("rank {}:", rank);
  for (size_t i = 0; i < list.size(); ++i) {
    const bool joins = i > 0 && list[i].joined;
    const bool joined_by_next = i + 1 < list.size() && list[i + 1].joined;
    line += !joins && joined_by_next ? " (" : " ";
    line += ToString(list[i]);
    if (joins && !joined_by_next) line += ")";
  }
  return line + "\n";
}

}  // namespace

std::string ToText(const Schedule& schedule) {
  std::string text = fmt::format("micro_batches {}\n", schedule.micro_batches);
  for (int stage = 0; stage < schedule.graph.num_stages(); ++stage) {
    text += StageLine(schedule.graph.stages[stage], stage);
  }
  text += WorkLines(schedule, "idle", true) + WorkLines(schedule, "silent", false);
  for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    text += RankLine(schedule.ranks[rank], rank);
  }
  return text;
}

Schedule ParseSchedule(const std::string& text, const std::string& file) {
  return Parser(file).Parse(text);
}

Op ParseOp(const std::string& text) {
  const std::optional<Op> op = FindOp(text);
  if (!op) {
    throw ConfigError(fmt::format(
        "\"{}\" is no op; give one such as 2F0, 2B0, 2S0>3, 3R0<2, 2REDUCE or OPT", text));
  }
  return *op;
}

}  // namespace equipoise
