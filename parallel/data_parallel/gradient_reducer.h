#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/parameter.h"
#include "parallel/shards.h"

namespace equipoise {

// The reduction of the flat fp32 gradient over the data-parallel ranks, in buckets that start as
// soon as backward has filled them (Li et al., arXiv 2006.15704). Every rank gets the whole sum, or
// with ZeRO its shard of it, with the same bits.
//
// Buckets are slices of the gradient, formed from its end, where backward begins. All ranks start
// them in the order in which they were formed, whatever order they become ready in. Per step:
//
//   flat.ZeroGradient();
//   ... forward and backward of all micro-batches but the last ...
//   ... backward of the last, calling Ready(parameter) for each whose gradient is complete ...
//   reducer.Finish();   // the gradient (this rank's slices of it) is the sum over all ranks
//
// Parameters for which Ready() was not called (a module that had no input) are reduced by Finish().
// Not thread-safe. `parameters` and `group` must outlive it.
class GradientReducer {
 public:
  struct Options {
    // Larger buckets use the network better; smaller ones start earlier and hide more of it.
    int64_t bucket_bytes = int64_t{25} << 20;
  };
  // The reduction of one bucket in the last step.
  struct Span {
    std::string name;  // "reduce bucket 2"
    int64_t bytes = 0;
    Work::Clock::time_point start, end;
  };

  GradientReducer(FlatParameters& parameters, Communicator& group, Options options);
  GradientReducer(FlatParameters& parameters, Communicator& group)
      : GradientReducer(parameters, group, Options()) {}
  // Reduce-scatters: the sum is left in this rank's slice of each bucket only; the rest of the
  // gradient is undefined after Finish(). With `copies`, the ranks that have the same slice in
  // other groups, it is the sum over these groups too.
  GradientReducer(FlatParameters& parameters, Communicator& group, const Shards& shards,
                  Communicator* copies = nullptr);

  // Marks the gradient of a parameter as complete for this step. Frozen and unknown parameters are
  // ignored; a second call in one step is a bug (a gradient added after its reduction began).
  void Ready(const Parameter& parameter);
  // Ready() for all parameters of a layer.
  void Ready(const std::vector<Parameter*>& parameters);

  // Starts the remaining buckets and waits for all. Throws RunError.
  void Finish();

  int64_t num_buckets() const { return static_cast<int64_t>(buckets_.size()); }
  // Spans of the last finished step, in the order of their start.
  const std::vector<Span>& spans() const { return spans_; }

 private:
  struct Bucket {
    at::Tensor gradient;     // a slice of the flat buffer
    at::Tensor mine;         // this rank's slice of it; undefined: every rank gets the whole sum
    int64_t parameters = 0;  // that have elements in it
    int64_t missing = 0;     // of those, not ready yet
    Work work;
    Work::Clock::time_point start;
  };
  void StartReady();
  void Start(Bucket& bucket);
  void SumCopies();

  Communicator& group_;
  Communicator* copies_ = nullptr;
  std::vector<Bucket> buckets_;
  size_t started_ = 0;
  struct Place {
    size_t first, last;  // buckets that hold a part of it
    bool ready;
  };
  std::unordered_map<const Parameter*, Place> places_;  // trainable ones
  std::vector<Span> spans_;
};

}  // namespace equipoise
