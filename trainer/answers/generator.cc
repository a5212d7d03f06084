// Every pass is a forward pass of the plan over the batches that have prompts left: their whole
// prompts first, then one token of each. A batch is a row of segments, each with a cache of its
// own, so that prompts of any length stand side by side and those that have ended are left out.

#include "trainer/answers/generator.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <map>
#include <memory>
#include <utility>

#include "balance/load/random.h"
#include "models/families/families.h"
#include "models/layers/kv_cache.h"
#include "models/spec/grid_positions.h"
#include "models/spec/sliding_window.h"
#include "parallel/comm/values.h"

namespace equipoise {
namespace {

// A prompt under way.
struct Row {
  const Prompt* prompt = nullptr;
  KvCache cache;
  int64_t position = 0;  // of the next token
  std::vector<int32_t> answer;
  bool ended = false;
};

// Positions of a prompt, [tokens], or [3, tokens] where it has pictures that are grids; sets that
// of the token behind it, which with such pictures is not its number.
at::Tensor PromptPositions(const Prompt& prompt, const ImageSpec& images, int64_t* next) {
  const auto tokens = std::ssize(prompt.ids);
  *next = tokens;
  if (prompt.grids.empty() || !images.has_grids()) return at::arange(tokens, at::kLong);
  at::Tensor positions = at::empty({3, tokens}, at::kLong);
  int64_t* first = positions.mutable_data_ptr<int64_t>();
  *next = WriteGridPositions(TokenGrids(prompt.begins, prompt.grids, images.merge), tokens,
                             {first, first + tokens, first + 2 * tokens});
  return positions;
}

// Positions of several rows as one.
at::Tensor Joined(std::vector<at::Tensor> positions) {
  const bool grids = std::any_of(positions.begin(), positions.end(),
                                 [](const at::Tensor& one) { return one.dim() == 2; });
  for (at::Tensor& one : positions) {
    if (grids && one.dim() == 1) one = one.expand({3, one.size(0)});
  }
  return at::cat(positions, -1);
}

// A batch under way, and the micro-batch of its next pass.
class RunningBatch {
 public:
  RunningBatch(const std::vector<Prompt>& prompts, const ModelConfig& config, bool greedy)
      : rows_(prompts.size()),
        image_token_(config.image_token_id),
        video_token_(config.video_token_id),
        short_tokens_(config.text.rope_type == "longrope"
                          ? config.text.rope_original_max_position_embeddings
                          : 0),
        images_(ImageSpecOf(config)) {
    decoding_.greedy = greedy;
    for (size_t i = 0; i < rows_.size(); ++i) rows_[i].prompt = &prompts[i];
  }

  // The rows that have not ended, in order.
  std::vector<Row*> Running() {
    std::vector<Row*> running;
    for (Row& row : rows_) {
      if (!row.ended) running.push_back(&row);
    }
    return running;
  }

  // Makes batch() and load() of the rows that run.
  void Prepare() {
    batch_ = MicroBatch();
    load_ = LayerLoad();
    decoding_.caches.clear();
    decoding_.cached.clear();
    batch_.cu_seqlens = {0};
    std::vector<at::Tensor> positions, pixels;
    std::vector<int64_t> ids;
    grids_.clear();
    for (Row* row : Running()) AddTokens(*row, ids, positions, pixels);
    batch_.input_ids = at::empty({std::ssize(ids)}, at::kLong);
    std::copy(ids.begin(), ids.end(), batch_.input_ids.mutable_data_ptr<int64_t>());
    batch_.position_ids = Joined(std::move(positions));
    if (!grids_.empty()) batch_.image_grids = GridTensor(grids_);
    if (load_.image_tokens > 0) {
      at::Tensor shown = batch_.input_ids.eq(image_token_);
      if (images_.takes_videos()) shown = shown.logical_or(batch_.input_ids.eq(video_token_));
      batch_.image_positions = shown.nonzero().reshape({-1});
    }
    if (!pixels.empty()) batch_.pixel_values = at::cat(pixels);
    batch_.decoding = &decoding_;
  }

  const MicroBatch& batch() const { return batch_; }
  const LayerLoad& load() const { return load_; }
  std::vector<std::vector<int32_t>> TakeAnswers() {
    std::vector<std::vector<int32_t>> answers;
    for (Row& row : rows_) answers.push_back(std::move(row.answer));
    return answers;
  }

 private:
  void AddTokens(Row& row, std::vector<int64_t>& ids, std::vector<at::Tensor>& positions,
                 std::vector<at::Tensor>& pixels) {
    const Prompt& prompt = *row.prompt;
    const auto length = std::ssize(prompt.ids), answered = std::ssize(row.answer);
    const int64_t end = length + answered;
    // Keys of the cache have turned by the frequencies of a short sequence: as Transformers does
    // for Phi-3, a sequence that becomes a long one is computed anew.
    const bool anew = short_tokens_ > 0 && end == short_tokens_ + 1;
    const int64_t begin = answered == 0 || anew ? 0 : end - 1;
    if (begin > 0) {
      ids.push_back(row.answer.back());
      positions.push_back(at::arange(row.position, row.position + 1, at::kLong));
      ++row.position;
    } else {
      ids.insert(ids.end(), prompt.ids.begin(), prompt.ids.end());
      ids.insert(ids.end(), row.answer.begin(), row.answer.end());
      if (prompt.pixel_values.defined()) pixels.push_back(prompt.pixel_values);
      positions.push_back(PromptPositions(prompt, images_, &row.position));
      if (answered > 0) {
        row.cache = KvCache();
        positions.push_back(at::arange(row.position, row.position + answered, at::kLong));
        row.position += answered;
      }
      grids_.insert(grids_.end(), prompt.grids.begin(), prompt.grids.end());
      load_.patches += prompt.pictures.patches;
      load_.patch_pairs += prompt.pictures.patch_pairs;
      load_.window_pairs += prompt.pictures.window_pairs;
      load_.image_tokens += prompt.pictures.image_tokens;
    }
    batch_.cu_seqlens.push_back(batch_.cu_seqlens.back() + end - begin);
    decoding_.caches.push_back(&row.cache);
    decoding_.cached.push_back(begin);
    load_.tokens += end - begin;
    load_.token_pairs += CausalPairs(end) - CausalPairs(begin);
    load_.targets += 1;
  }

  std::vector<Row> rows_;
  int64_t image_token_, video_token_;
  int64_t short_tokens_;  // beyond which a sequence turns by other frequencies; 0: never
  ImageSpec images_;
  std::vector<PatchGrid> grids_;  // of this pass's pictures
  Decoding decoding_;
  MicroBatch batch_;
  LayerLoad load_;
};

// A row's logits with those of tokens that it has already made less likely.
at::Tensor Penalized(const at::Tensor& logits, const Row& row, double penalty) {
  std::vector<int32_t> seen = row.prompt->ids;
  seen.insert(seen.end(), row.answer.begin(), row.answer.end());
  std::sort(seen.begin(), seen.end());
  seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
  at::Tensor penalized = logits.to(at::kFloat, /*non_blocking=*/false, /*copy=*/true).contiguous();
  auto* values = penalized.mutable_data_ptr<float>();
  const auto factor = static_cast<float>(penalty);
  for (const int32_t id : seen) {
    float& value = values[id];
    value = value < 0 ? value * factor : value / factor;
  }
  return penalized;
}

// The next token of a row by its logits, at a place of its answer.
int64_t NextToken(const at::Tensor& computed, const Row& row, const GenerateOptions& options) {
  const at::Tensor logits = options.repetition_penalty == 1
                                ? computed
                                : Penalized(computed, row, options.repetition_penalty);
  if (options.temperature <= 0) return at::argmax(logits).item<int64_t>();
  return SampleToken(logits, options, row.prompt->number, row.answer.size());
}

// The next token of each row, by what the head has computed of them.
std::vector<int64_t> NextTokens(const at::Tensor& result, const std::vector<Row*>& rows,
                                const GenerateOptions& options) {
  const at::Tensor here = result.cpu();
  std::vector<int64_t> tokens;
  for (size_t i = 0; i < rows.size(); ++i) {
    const auto row = static_cast<int64_t>(i);
    tokens.push_back(options.plain_greedy() ? here.const_data_ptr<int64_t>()[row]
                                            : NextToken(here[row], *rows[i], options));
  }
  return tokens;
}

// One pass over these batches; returns the next token of each row that runs, batch after batch.
std::vector<int64_t> RunPass(ParallelModel& model, const std::vector<RunningBatch*>& batches,
                             const GenerateOptions& options) {
  ModelPart::Pass pass;
  int64_t count = 0;
  for (RunningBatch* batch : batches) {
    batch->Prepare();
    pass.loads.push_back(batch->load());
    count += batch->load().targets;
  }
  const MicroBatch empty;  // where another data rank has more batches (ParallelModel::units())
  pass.batch = [&](int i) -> const MicroBatch& {
    const auto batch = static_cast<size_t>(i);
    return batch < batches.size() ? batches[batch]->batch() : empty;
  };
  std::map<int, std::vector<int64_t>> results;
  pass.on_result = [&](int i, const at::Tensor& result) {
    if (static_cast<size_t>(i) >= batches.size()) return;
    results[i] = NextTokens(result, batches[static_cast<size_t>(i)]->Running(), options);
  };
  model.Evaluate(std::move(pass));
  at::Tensor tokens = at::empty({count}, at::kLong);
  auto* next = tokens.mutable_data_ptr<int64_t>();
  for (const auto& [i, made] : results) next = std::copy(made.begin(), made.end(), next);
  const Plan& plan = model.plan();
  const int last = plan.RankOfStage(plan.num_stages() - 1);
  model.groups().along(Axis::kPipeline).Broadcast(tokens, last).Wait();
  const auto* all = tokens.const_data_ptr<int64_t>();
  return {all, all + count};
}

// The tokens to draw from, the most likely first, that are the nucleus; `p` sorted, descending.
int64_t NucleusSize(const at::Tensor& p, double top_p) {
  const double* probability = p.const_data_ptr<double>();
  double sum = 0;
  int64_t size = 0;
  while (size < p.size(0) && (size == 0 || sum < top_p)) sum += probability[size++];
  return size;
}

}  // namespace

int32_t SampleToken(const at::Tensor& logits, const GenerateOptions& options, uint64_t number,
                    uint64_t place) {
  const at::Tensor all =
      at::softmax(logits.to(at::kDouble).div(options.temperature), 0).contiguous();
  auto [p, order] = at::sort(all, /*stable=*/true, /*dim=*/0, /*descending=*/true);
  const int64_t size = NucleusSize(p, options.top_p);
  const double* probability = p.const_data_ptr<double>();
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += probability[i];
  // 53 random bits: a number in [0, 1).
  const uint64_t bits = KeyedRandom(options.seed, number, place).Next() >> 11;
  double rest = static_cast<double>(bits) * 0x1p-53 * sum;
  int64_t chosen = 0;
  while (chosen + 1 < size && (rest -= probability[chosen]) >= 0) ++chosen;
  return static_cast<int32_t>(order.const_data_ptr<int64_t>()[chosen]);
}

std::vector<std::vector<std::vector<int32_t>>> Generator::Continue(
    const std::vector<std::vector<Prompt>>& batches, const std::vector<int32_t>& stop_ids,
    const GenerateOptions& options, const GiveUp& give_up) {
  for (const std::vector<Prompt>& prompts : batches) {
    for (const Prompt& prompt : prompts) {
      RequireWithinWindow(model_.part().config().text,
                          std::ssize(prompt.ids) + options.max_new_tokens - 1,
                          "a question with --max-new-tokens for its answer");
    }
  }
  std::vector<RunningBatch> all;
  for (const std::vector<Prompt>& prompts : batches)
    all.emplace_back(prompts, model_.part().config(), options.plain_greedy());
  const auto running = [&] {
    std::vector<RunningBatch*> left;
    for (RunningBatch& batch : all) {
      if (!batch.Running().empty()) left.push_back(&batch);
    }
    return left;
  };
  // Passes are collective where data ranks share the weights out: one goes on while any has to.
  const auto any = [&](const std::vector<RunningBatch*>& left) {
    if (model_.units() == nullptr) return !left.empty();
    const double mine = left.empty() ? 0 : 1;
    return AllReduceValue(model_.groups().same_weights(), mine, ReduceOp::kMax) > 0;
  };
  for (int64_t pass = 0;; ++pass) {
    const std::vector<RunningBatch*> left = running();
    if (give_up.agree && pass % GiveUp::kPassesBetween == 0) {
      if (give_up.agree() || !AnyRank(*give_up.world, !left.empty())) break;
    }
    if (!any(left)) {
      if (give_up.agree) continue;  // to ask with the ranks that have answers left
      break;
    }
    const std::vector<int64_t> tokens = RunPass(model_, left, options);
    size_t next = 0;
    for (RunningBatch* batch : left) {
      for (Row* row : batch->Running()) {
        const auto token = static_cast<int32_t>(tokens[next++]);
        row->ended = std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end();
        if (row->ended) continue;
        row->answer.push_back(token);
        row->ended = std::ssize(row->answer) >= options.max_new_tokens;
      }
    }
  }
  std::vector<std::vector<std::vector<int32_t>>> answers;
  for (RunningBatch& batch : all) answers.push_back(batch.TakeAnswers());
  return answers;
}

}  // namespace equipoise
