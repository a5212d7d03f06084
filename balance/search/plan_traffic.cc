#include "balance/search/plan_traffic.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <vector>

#include "balance/costs/half_time.h"
#include "balance/costs/stage_costs.h"
#include "configs/base/error.h"
#include "models/families/families.h"

// Bytes are added up over all ranks, link by link. A ring collective over n ranks sends (n - 1) / n
// of the tensor over each of its n links when it gathers or reduces to shards, and twice that when
// it sums (Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms", 2009). Ranks lie on the
// nodes in order (parallel/mesh.h), so a link leaves a node where its two ranks are in different
// ones. Bytes are linear in the rows of the micro-batches: all of a step are taken as one.

namespace equipoise {
namespace {

constexpr double kGradientBytes = 4;  // of a parameter's gradient, as it is summed

LayerLoad SumOf(const std::vector<LayerLoad>& loads) {
  LayerLoad sum;
  for (const LayerLoad& load : loads) {
    sum.patches += load.patches;
    sum.patch_pairs += load.patch_pairs;
    sum.image_tokens += load.image_tokens;
    sum.tokens += load.tokens;
    sum.token_pairs += load.token_pairs;
    sum.targets += load.targets;
    sum.window_pairs += load.window_pairs;
  }
  return sum;
}

class StepBytes {
 public:
  StepBytes(const PlanRequest& request, const CostModel& costs, const Plan& plan)
      : costs_(costs),
        plan_(plan),
        per_node_(request.cluster.devices_per_node),
        packs_(static_cast<double>(request.workload.steps.front().size())),
        load_(SumOf(request.workload.steps.front())) {}

  RankTraffic OfMeanRank() {
    for (int stage = 0; stage < plan_.num_stages(); ++stage) {
      tensors_ = TensorsOf(stage);
      AddDataRanks(stage);
      AddTransfers(stage);
      AddTensorSums(stage);
      AddContextExchanges(stage);
    }
    AddEncoderCopies();
    AddTiedWeight();
    const double ranks = plan_.num_ranks();
    return {sum_.between_nodes_bytes / ranks, sum_.within_node_bytes / ranks};
  }

 private:
  // `holder`: which of the ranks with the same weights.
  int Rank(int holder, int pipeline, int tensor) const {
    return plan_.mesh.Rank({.data = holder / plan_.context(),
                            .pipeline = pipeline,
                            .context = holder % plan_.context(),
                            .tensor = tensor});
  }

  // The tensor ranks that hold a stage.
  std::vector<int> TensorsOf(int stage) const {
    const int lane = plan_.LaneOf(stage);
    const int count = lane < 0 ? plan_.tensor() : plan_.encoder_tensor();
    std::vector<int> tensors(static_cast<size_t>(count));
    std::iota(tensors.begin(), tensors.end(), std::max(lane, 0) * count);
    return tensors;
  }

  void Send(int from, int to, double bytes) {
    const bool within = from / per_node_ == to / per_node_;
    (within ? sum_.within_node_bytes : sum_.between_nodes_bytes) += bytes;
  }

  // A gather, or a reduction to shards, of a tensor of so many bytes.
  void Ring(const std::vector<int>& ranks, double bytes) {
    const auto count = static_cast<double>(ranks.size());
    if (ranks.size() < 2) return;
    for (size_t i = 0; i < ranks.size(); ++i) {
      Send(ranks[i], ranks[(i + 1) % ranks.size()], (count - 1) / count * bytes);
    }
  }

  // Rings over holders `first`, `first + stride`, ... of the weights of each tensor rank.
  void DataRing(int pipeline, int first, int stride, int count, double bytes) {
    for (const int tensor : tensors_) {
      std::vector<int> ranks;
      for (int i = 0; i < count; ++i) ranks.push_back(Rank(first + i * stride, pipeline, tensor));
      Ring(ranks, bytes);
    }
  }

  // The same tensor on every group of `shards` neighbours among the holders of the same weights.
  void OverShards(int pipeline, int shards, double bytes) {
    for (int first = 0; first < plan_.same_weights(); first += shards) {
      DataRing(pipeline, first, 1, shards, bytes);
    }
  }

  // Gradients and weights of a stage, over the ranks with the same weights: once a step, but with
  // ZeRO 2 and 3 in every micro-batch, in those too that have no work for a layer.
  void AddDataRanks(int stage) {
    const int pipeline = plan_.RankOfStage(stage);
    const int shards = plan_.shards();
    const auto trained = static_cast<double>(ParametersOfStage(costs_, plan_, stage).trained);
    const double gradients = kGradientBytes * trained;
    if (plan_.IsSharded(ShardedState::kGradients)) {
      const double micro_batches = packs_ / plan_.data();
      double bytes = micro_batches * gradients;
      if (plan_.IsSharded(ShardedState::kParameters)) {
        const LayerSpan layers = plan_.LayersOf(stage);
        for (int layer = layers.begin; layer < layers.end; ++layer) {
          bytes += micro_batches * (costs_.HasBackward(layer) ? 2 : 1) *
                   static_cast<double>(PassSharedBytes(costs_, layer));
        }
      }
      OverShards(pipeline, shards, bytes);
    } else if (shards > 1) {
      OverShards(pipeline, shards, gradients);
    }
    // Each shard is summed over its copies; with one shard, all gradients over all ranks.
    for (int first = 0; first < shards && shards < plan_.same_weights(); ++first) {
      DataRing(pipeline, first, shards, plan_.same_weights() / shards, 2 * gradients / shards);
    }
    if (shards == 1 || plan_.IsSharded(ShardedState::kParameters)) return;
    OverShards(pipeline, shards, static_cast<double>(costs_.options().element_bytes) * trained);
  }

  // What a stage sends to the next one, and the gradient of it that comes back.
  void AddTransfers(int stage) {
    const int next = plan_.NextStage(stage);
    if (next < 0) return;
    const int last = plan_.LayersOf(stage).end - 1;
    const RunStyle& style = costs_.options().style;
    const bool scattered = style.program->scatters_boundaries && !style.sequence_parallel;
    const double whole = static_cast<double>(costs_.BoundaryBytes(last, load_)) / Sharing(stage);
    const double bytes = whole / (scattered ? plan_.tensor() : 1);
    if (plan_.LaneOf(stage) >= 0 && plan_.LaneOf(next) < 0) {  // to all tensor ranks there
      for (int holder = 0; holder < plan_.same_weights(); ++holder) {
        Ring(TensorRing(holder, plan_.RankOfStage(next), TensorsOf(next)), whole);
      }
    }
    if (plan_.RankOfStage(next) == plan_.RankOfStage(stage)) return;
    for (int holder = 0; holder < plan_.same_weights(); ++holder) {
      for (const int tensor : tensors_) {
        const int from = Rank(holder, plan_.RankOfStage(stage), tensor);
        const int to = Rank(holder, plan_.RankOfStage(next), tensor);
        Send(from, to, bytes);
        if (costs_.HasBackward(last)) Send(to, from, bytes);
      }
    }
  }

  std::vector<int> TensorRing(int holder, int pipeline, const std::vector<int>& tensors) const {
    std::vector<int> ranks;
    ranks.reserve(tensors.size());
    for (const int tensor : tensors) ranks.push_back(Rank(holder, pipeline, tensor));
    return ranks;
  }

  // Among how many the micro-batches of a step are dealt: data ranks, and copies of the encoder.
  double Sharing(int stage) const {
    return plan_.data() * plan_.CopiesOf(plan_.ComponentOfStage(stage));
  }

  // Whether tensor ranks exchange rows in place of some of their sums.
  bool ExchangesRows() const {
    const RunStyle& style = costs_.options().style;
    return style.sequence_parallel && !style.program->shares_all_rows;
  }

  // What is gathered or reduced to shards, each half of an all-reduce.
  double RowBytes(const std::vector<PerRow>& exchanges) const {
    double elements = 0;
    for (const PerRow& each : exchanges) elements += ExchangesRows() ? each.At(load_) : 0;
    return static_cast<double>(costs_.options().element_bytes) * elements / 2;
  }

  double SumBytes(const std::vector<TensorAllReduce>& sums, double micro_batches) const {
    double bytes = 0;
    for (const TensorAllReduce& sum : sums) {
      if (ExchangesRows() ? sum.of_rows : sum.of_shares) continue;
      const auto element = static_cast<double>(sum.fp32 ? 4 : costs_.options().element_bytes);
      bytes += element * (sum.elements.At(load_) + micro_batches * sum.fixed);
    }
    return bytes;
  }

  // Bytes of a layer's sums over tensor ranks in a step, forward, backward and in recomputation.
  double SumBytes(int layer) const {
    const LayerSpec& spec = costs_.Work(layer);
    const Recompute kind = RecomputeOf(plan_, layer);
    const auto of_half = [&](const HalfCost& half, Recompute alone) {
      const bool whole = kind == Recompute::kFull || kind == Recompute::kFullOffload;
      const bool again = !spec.gradient_with_loss &&
                         (whole || (spec.has_halves && kind == alone)) && costs_.HasBackward(layer);
      double bytes =
          (again ? 2 : 1) * (SumBytes(half.all_reduces, packs_) + RowBytes(half.row_exchanges));
      if (costs_.HasBackward(layer)) {
        bytes +=
            SumBytes(half.gradient_all_reduces, packs_) + RowBytes(half.gradient_row_exchanges);
        if (costs_.Trainable(layer)) bytes += RowBytes(half.weight_row_exchanges);
      }
      return bytes;
    };
    return of_half(spec.attention, Recompute::kAttention) + of_half(spec.mlp, Recompute::kMlp);
  }

  // Heads of queries, keys, values and results that context ranks exchange in a step; backward as
  // in forward.
  void AddContextExchanges(int stage) {
    const int context = plan_.context();
    if (context == 1) return;
    double elements = 0;
    const LayerSpan layers = plan_.LayersOf(stage);
    for (int layer = layers.begin; layer < layers.end; ++layer) {
      const HalfCost& half = costs_.Work(layer).attention;
      if (half.attention_flops_per_pair == 0) continue;
      const double queries = half.attention_flops_per_pair / 4 * static_cast<double>(load_.tokens);
      const Recompute kind = RecomputeOf(plan_, layer);
      const bool again = kind == Recompute::kAttention || kind == Recompute::kFull ||
                         kind == Recompute::kFullOffload;
      const int passes = costs_.HasBackward(layer) ? (again ? 3 : 2) : 1;
      elements += passes * (2 * queries + half.keys_values.At(load_) +
                            CopiedKeysValues(half, load_, costs_.options().style));
    }
    const double bytes = static_cast<double>(costs_.options().element_bytes) * elements /
                         plan_.data() / context / context;  // from one rank to another
    const int pipeline = plan_.RankOfStage(stage);
    for (int holder = 0; holder < plan_.same_weights(); ++holder) {
      const int first = holder / context * context;
      for (int tensor = 0; tensor < plan_.tensor(); ++tensor) {
        for (int other = first; other < first + context; ++other) {
          if (other != holder)
            Send(Rank(holder, pipeline, tensor), Rank(other, pipeline, tensor), bytes);
        }
      }
    }
  }

  void AddTensorSums(int stage) {
    if (tensors_.size() == 1) return;
    double bytes = 0;
    const LayerSpan layers = plan_.LayersOf(stage);
    for (int layer = layers.begin; layer < layers.end; ++layer) bytes += SumBytes(layer);
    const int pipeline = plan_.RankOfStage(stage);
    for (int holder = 0; holder < plan_.same_weights(); ++holder) {
      Ring(TensorRing(holder, pipeline, tensors_), 2 * bytes / Sharing(stage) / plan_.context());
    }
  }

  // Rings over ranks at these places of the pipeline, for each data and tensor rank.
  void PipelineRings(const std::vector<int>& places, double bytes) {
    for (int holder = 0; holder < plan_.same_weights(); ++holder) {
      for (int tensor = 0; tensor < plan_.tensor(); ++tensor) {
        std::vector<int> ranks;
        ranks.reserve(places.size());
        for (const int place : places) ranks.push_back(Rank(holder, place, tensor));
        Ring(ranks, bytes);
      }
    }
  }

  // The copies of an encoder in the bubbles add their gradients, and gather what each has updated
  // where they share out its optimizer state.
  void AddEncoderCopies() {
    const int copies = plan_.encoder_copies();
    if (copies == 1) return;
    const int stages = plan_.components.front().num_stages();
    for (int stage = 0; stage < stages; ++stage) {
      const auto trained = static_cast<double>(ParametersOfStage(costs_, plan_, stage).trained);
      const bool gathers = StateCopies(plan_) > 1;
      const auto element = static_cast<double>(costs_.options().element_bytes);
      const double gathered = gathers ? element * trained / plan_.shards() : 0;
      for (int holder = 0; holder < plan_.same_weights(); ++holder) {
        for (int part = 0; part < plan_.encoder_tensor(); ++part) {
          std::vector<int> ranks;
          for (int copy = 0; copy < copies; ++copy) {
            const int same = stage + copy * stages;
            ranks.push_back(
                Rank(holder, plan_.RankOfStage(same), TensorsOf(same)[static_cast<size_t>(part)]));
          }
          Ring(ranks, 2 * kGradientBytes * trained + gathered);
        }
      }
    }
  }

  // The embedding and the head's copy of it add their gradients where they lie apart; with ZeRO 2
  // and 3, of slices that are summed over the data ranks already.
  void AddTiedWeight() {
    if (!costs_.tied_trained()) return;
    const int head = plan_.RankOfStage(plan_.num_stages() - 1);
    double bytes = 2 * kGradientBytes * static_cast<double>(costs_.tied_parameters());
    if (plan_.IsSharded(ShardedState::kGradients)) bytes /= plan_.shards();
    for (int stage = 0; stage < plan_.num_stages(); ++stage) {
      const LayerSpan layers = plan_.LayersOf(stage);
      for (int layer = layers.begin; layer < layers.end; ++layer) {
        if (costs_.Work(layer).kind != kTokenEmbedding) continue;
        const int embedding = plan_.RankOfStage(stage);
        if (embedding != head) PipelineRings({embedding, head}, bytes);
      }
    }
  }

  const CostModel& costs_;
  const Plan& plan_;
  const int per_node_;
  const double packs_;        // of the step
  const LayerLoad load_;      // of all of them
  std::vector<int> tensors_;  // that hold the stage of which bytes are added
  RankTraffic sum_;           // over all ranks
};

}  // namespace

RankTraffic TrafficOf(const PlanRequest& request, const CostModel& costs, const Plan& plan) {
  EQUIPOISE_CHECK(costs.Fits(plan), costs.options().tensor, " tensor ranks");
  return StepBytes(request, costs, plan).OfMeanRank();
}

}  // namespace equipoise
