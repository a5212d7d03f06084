#include "parallel/data_parallel/gradient_reducer.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/equal.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "tests/parallel/run_ranks.h"

namespace equipoise {
namespace {

using namespace std::chrono_literals;

// Six parameters of 1000, 1, 300, 17, 500 and 64 elements; the fourth is frozen.
class Model {
 public:
  explicit Model(int shards = 1) {
    for (const int64_t size : {1000, 1, 300, 17, 500, 64}) {
      auto parameter = std::make_unique<Parameter>();
      parameter->name = "p" + std::to_string(owned_.size());
      parameter->shape = {size};
      parameter->trainable = size != 17;
      list_.push_back(parameter.get());
      owned_.push_back(std::move(parameter));
    }
    flat_ = std::make_unique<FlatParameters>(list_, at::kFloat, shards);
  }
  FlatParameters& flat() { return *flat_; }
  Parameter& operator[](size_t i) { return *owned_[i]; }
  const std::vector<Parameter*>& list() const { return list_; }

  // A gradient that any rank can say of any rank.
  void Fill(int rank) {
    for (size_t i = 0; i < owned_.size(); ++i) {
      if (owned_[i]->trainable)
        owned_[i]->gradient.fill_(0.1 * (rank + 1) + static_cast<double>(i));
    }
  }

 private:
  std::vector<std::unique_ptr<Parameter>> owned_;
  std::vector<Parameter*> list_;
  std::unique_ptr<FlatParameters> flat_;
};

void Require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

void RequireSum(Model& model, const Communicator& group) {
  Model sum, other;
  sum.Fill(0);
  for (int rank = 1; rank < group.size(); ++rank) {
    other.Fill(rank);
    sum.flat().gradient().add_(other.flat().gradient());
  }
  Require(at::equal(model.flat().gradient(), sum.flat().gradient()), "not the sum over the ranks");
}

// Records what is asked of a group.
class Recorder : public Communicator {
 public:
  explicit Recorder(Communicator& group) : group_(group) {}
  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  const std::string& name() const override { return group_.name(); }
  Work AllReduce(at::Tensor& tensor, ReduceOp op) override {
    offsets.push_back(tensor.storage_offset());
    return group_.AllReduce(tensor, op);
  }
  Work AllGather(at::Tensor& output, const at::Tensor& input) override {
    return group_.AllGather(output, input);
  }
  Work ReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    offsets.push_back(input.storage_offset());
    return group_.ReduceScatter(output, input, op);
  }
  Work Broadcast(at::Tensor& tensor, int root) override { return group_.Broadcast(tensor, root); }
  Work Send(const at::Tensor& tensor, int peer) override { return group_.Send(tensor, peer); }
  Work Recv(at::Tensor& tensor, int peer) override { return group_.Recv(tensor, peer); }
  void ProgressInBackground() override {
    ++background;
    group_.ProgressInBackground();
  }
  std::unique_ptr<Communicator> Split(int color, int key, const std::string& name) override {
    return group_.Split(color, key, name);
  }

  std::vector<int64_t> offsets;  // of the slices reduced, in order
  int background = 0;

 private:
  Communicator& group_;
};

TEST_CASE("the reduced gradient is the sum over the ranks for every bucket size", "[reducer]") {
  for (const int ranks : {1, 2, 3}) {
    for (const int64_t bytes : {1, 100, 2000, 4000, 1 << 20}) {
      RunRanks(ranks, [&](Communicator& group) {
        Model model;
        GradientReducer reducer(model.flat(), group, {.bucket_bytes = bytes});
        for (int step = 0; step < 3; ++step) {
          model.Fill(group.rank());
          for (size_t i = model.list().size(); i-- > 0;) reducer.Ready(model[i]);
          reducer.Finish();
          RequireSum(model, group);
        }
      });
    }
  }
}

TEST_CASE("a rank's slices of the buckets are the sum over the ranks", "[reducer]") {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int64_t numel : {1, 300, 1000, 1 << 20}) {
      RunRanks(ranks, [&](Communicator& group) {
        Model model(ranks), whole(ranks);
        const Shards shards(model.flat().gradient().numel(), ranks, numel);
        GradientReducer reducer(model.flat(), group, shards), other(whole.flat(), group);
        for (int step = 0; step < 3; ++step) {
          model.Fill(group.rank());
          whole.Fill(group.rank());
          for (size_t i = model.list().size(); i-- > 0;) {
            if (i != 2) reducer.Ready(model[i]);
          }
          reducer.Finish();
          other.Finish();
          for (size_t bucket = 0; bucket < shards.num_buckets(); ++bucket) {
            const Range slice = shards.Slice(bucket, group.rank());
            Require(at::equal(model.flat().gradient().slice(0, slice.begin, slice.end),
                              whole.flat().gradient().slice(0, slice.begin, slice.end)),
                    "not the sum over the ranks");
          }
        }
      });
    }
  }
}

TEST_CASE("slices are summed over the groups that have the same", "[reducer]") {
  for (const int64_t numel : {300, 1 << 20}) {
    RunRanks(6, [&](Communicator& world) {
      const int rank = world.rank();
      const auto group = world.Split(rank / 2, rank % 2, "group");
      const auto copies = world.Split(rank % 2, rank / 2, "copies");
      Model model(2), whole(2);
      const Shards shards(model.flat().gradient().numel(), 2, numel);
      GradientReducer reducer(model.flat(), *group, shards, copies.get());
      GradientReducer other(whole.flat(), world);
      for (int step = 0; step < 3; ++step) {
        model.Fill(rank);
        whole.Fill(rank);
        for (size_t i = model.list().size(); i-- > 1;) reducer.Ready(model[i]);
        reducer.Finish();
        other.Finish();
        for (size_t bucket = 0; bucket < shards.num_buckets(); ++bucket) {
          const Range slice = shards.Slice(bucket, group->rank());
          Require(at::allclose(model.flat().gradient().slice(0, slice.begin, slice.end),
                               whole.flat().gradient().slice(0, slice.begin, slice.end), 1e-6),
                  "not the sum over all ranks");
        }
      }
    });
  }
}

TEST_CASE("a sharded bucket starts when all parameters with a part in it are ready", "[reducer]") {
  RunRanks(2, [](Communicator& group) {
    Model model(2);
    // Buckets of 512; parameters at 0, 1024, 1280, 1792, 2304, end 2560.
    const Shards shards(2560, 2, 500);
    Recorder recorder(group);
    GradientReducer reducer(model.flat(), recorder, shards);
    const std::vector<std::pair<size_t, size_t>> started = {{4, 0}, {5, 1}, {0, 1}, {1, 1}, {2, 5}};
    for (const auto& [parameter, count] : started) {
      reducer.Ready(model[parameter]);
      Require(recorder.offsets.size() == count, "other buckets after p" + model[parameter].name);
    }
    Require(recorder.offsets == std::vector<int64_t>{2048, 1536, 1024, 512, 0}, "another order");
    Require(recorder.background == 2, "not handed over once each time that any has started");
    reducer.Finish();
  });
}

TEST_CASE("buckets are formed from the end and hold about the bytes asked for", "[reducer]") {
  RunRanks(1, [](Communicator& group) {
    Model model;
    // Aligned offsets of the trainable ones: 0, 1024, 1280, 1792, 2304, end 2560.
    Recorder recorder(group);
    GradientReducer reducer(model.flat(), recorder, {.bucket_bytes = 800 * 4});
    reducer.Finish();
    Require(recorder.offsets == std::vector<int64_t>{1792, 1024, 0}, "other slices");
    Require(reducer.spans()[0].bytes == (2560 - 1792) * 4, "other size");
  });
}

TEST_CASE("buckets start in one order, whatever order they become ready in", "[reducer]") {
  RunRanks(3, [](Communicator& group) {
    Model model;
    Recorder recorder(group);
    GradientReducer reducer(model.flat(), recorder, {.bucket_bytes = 1});
    model.Fill(group.rank());
    std::vector<size_t> order = {0, 1, 2, 3, 4, 5};
    std::rotate(order.begin(), order.begin() + group.rank() * 2, order.end());
    for (const size_t i : order) reducer.Ready(model[i]);
    Require(recorder.offsets == std::vector<int64_t>{2304, 1792, 1280, 1024, 0},
            "not started in order, or not before Finish");
    reducer.Finish();
    RequireSum(model, group);
  });
}

TEST_CASE("a bucket is reduced while backward goes on", "[reducer]") {
  RunRanks(2, [](Communicator& group) {
    Model model;
    GradientReducer reducer(model.flat(), group, {.bucket_bytes = 800 * 4});
    model.Fill(group.rank());
    reducer.Ready(model[5]);
    reducer.Ready(model[4]);
    Barrier(group);  // operations of a group end in order: the first bucket is done
    const auto backward_goes_on = Work::Clock::now();
    reducer.Ready({&model[2], &model[1], &model[0]});
    reducer.Finish();
    RequireSum(model, group);
    const auto& spans = reducer.spans();
    Require(spans.size() == 3 && spans[0].name == "reduce bucket 0", "spans");
    Require(spans[0].end <= backward_goes_on, "the first bucket has not gone ahead");
    for (const auto& span : spans) Require(span.start <= span.end, "a span ends before it starts");
    Require(spans[1].start >= backward_goes_on, "a bucket started before it was ready");
  });
}

TEST_CASE("parameters without a gradient in this step do not hang it", "[reducer]") {
  RunRanks(2, [](Communicator& group) {
    Model model;
    GradientReducer reducer(model.flat(), group, {.bucket_bytes = 1});
    for (int step = 0; step < 2; ++step) {
      model.Fill(group.rank());
      // Only one rank's last micro-batch had the module of p5 and p2.
      reducer.Ready(model[4]);
      if (group.rank() == 0) reducer.Ready({&model[5], &model[2]});
      reducer.Ready(model[3]);  // frozen
      reducer.Finish();
      RequireSum(model, group);
    }
  });
}

TEST_CASE("a parameter that is ready twice is a bug", "[reducer]") {
  RunRanks(1, [](Communicator& group) {
    Model model;
    GradientReducer reducer(model.flat(), group);
    reducer.Ready(model[0]);
    bool refused = false;
    try {
      reducer.Ready(model[0]);
    } catch (const std::logic_error&) {
      refused = true;
    }
    Require(refused, "accepted");
  });
}

}  // namespace
}  // namespace equipoise
