// A step is the row function of parallel/zero/kernels: weights, remainders, gradients and moments
// are read and written once. On a GPU it is one launch, where the program's own kernels are loaded;
// on the host a loop over chunks on all threads (adamw_on_host.h).
//
// In fp16 the masters are in a buffer of their own, and a copy rounds them into the weights.
// Weights in bf16 may have none: what the step makes of them is rounded stochastically, by hashes
// of each element's place in its whole tensor, of which every mesh makes the same.
//
// A GPU without own kernels takes ATen's fused AdamW, region by region of the shard: of each, the
// fp32 numbers are made from what is kept of them, updated, rounded and split again. What is not
// kept in fp32 is thus never in memory as fp32 but for a region; so are steps that are only tried.
// Every GPU does so where moments are codes, which the own kernel does not know.
// Clipping is a factor in all of them: no pass scales the gradients before. LibTorch's AdamW knows
// none that multiplies, so there it is a region's copy of the gradients that is scaled.
//
// Offloaded (ZeRO-Offload, arXiv 2101.06840, section 4), a region's gradients arrive while the host
// updates the region before, and its values leave while it updates the next: of the copies only the
// first and the last have nothing to run beside. What lies in host memory anyway is not copied:
// both may (Sharding::offloaded). The host could start no earlier, as clipping needs the norm of
// all gradients first; copying them beside backward would save the first copy alone. All copies are
// in the compute stream, so what reads the values comes later.

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <type_traits>

#include "parallel/host_copies.h"
#include "parallel/intra_op.h"
#include "parallel/kernels/launchers.h"
#include "parallel/kernels/own_operator.h"
#include "parallel/split_master.h"
#include "parallel/stochastic_rounding.h"
#include "parallel/zero/adamw.h"
#include "parallel/zero/kernels/adamw_on_host.h"
#include "parallel/zero/magnitude.h"

namespace equipoise {
namespace {

using kernels::AdamWRow;
using kernels::Bf16;

constexpr int64_t kChunk = 8192;        // elements: 8 for each thread of a team on a GPU, 4 times
constexpr int64_t kChunksOfThread = 4;  // at least
constexpr double kLargest = 3.3e38;     // finite in bf16 too

// Of each group.
struct Rates {
  std::vector<double> lr, decay;
};
Rates RatesOf(const std::vector<ParameterGroup>& groups, double lr) {
  Rates rates;
  for (const ParameterGroup& group : groups) {
    rates.lr.push_back(lr * group.lr_factor);
    rates.decay.push_back(group.weight_decay);
  }
  return rates;
}

template <class Row>
void RunOnThreads(const Row& row, Range rows) {
  IntraOpFor(rows.begin, rows.end, kChunksOfThread,
             [&row](int64_t begin, int64_t end) { kernels::RunOnHost(row, begin, end); });
}

}  // namespace

AdamW::State AdamW::Load(const Region& region) const {
  const Shards::Run& place = region.place;
  const int64_t size = place.flat.size();
  const at::Tensor values =
      masters_.defined() ? masters_.narrow(0, place.local, size) : ValuesOf(region);
  State state{values, exp_avg_.Numbers(place.local, size), exp_avg_sq_.Numbers(place.local, size)};
  if (remainders_.defined()) {
    state.masters = at::empty({size}, values.options().dtype(at::kFloat));
    JoinMaster(values, remainders_.narrow(0, place.local, size), state.masters);
  }
  if (without_masters()) state.masters = values.to(at::kFloat);
  return state;
}

void AdamW::Store(const Region& region, const State& state) {
  const Shards::Run& place = region.place;
  const int64_t size = place.flat.size();
  if (remainders_.defined()) {
    SplitMaster(state.masters, parameters_.ValueOf(place),
                remainders_.narrow(0, place.local, size));
  }
  if (masters_.defined()) RoundMaster(state.masters, parameters_.ValueOf(place));
  if (without_masters()) RoundStochastically(region, state.masters);
  if (options_.moments == at::kFloat) return;
  exp_avg_.Set(place.local, state.averages);
  exp_avg_sq_.Set(place.local, state.squares);
}

void AdamW::Update(const Region& region, State& state, const StepInput& input) const {
  if (steps_on_host()) return UpdateByRows(region, state, input);
  at::Tensor gradients = parameters_.GradientOf(region.place);
  if (input.clip != 1) gradients = gradients.mul(input.clip);
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (region.parts[i].empty()) continue;
    const auto runs_of = [&](const at::Tensor& all) {
      std::vector<at::Tensor> runs;
      for (const Part& part : region.parts[i])
        runs.push_back(all.narrow(0, part.begin, part.size()));
      return runs;
    };
    std::vector<at::Tensor> masters = runs_of(state.masters), averages = runs_of(state.averages),
                            squares = runs_of(state.squares);
    const std::vector<at::Tensor> step_of_each(
        masters.size(), at::full({}, static_cast<double>(input.number), state.masters.options()));
    at::_fused_adamw_(masters, runs_of(gradients), averages, squares,
                      /*max_exp_avg_sqs=*/{}, step_of_each, input.lr * groups_[i].lr_factor,
                      options_.beta1, options_.beta2, groups_[i].weight_decay, options_.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
  }
}

// The row function's step, but for where the numbers lie.
template <class Row>
void AdamW::BeginRow(const StepInput& input, Row& row) const {
  const Rates rates = RatesOf(groups_, input.lr);
  row.Begin({rates.lr.data(), rates.decay.data(), groups_.size(), options_.beta1, options_.beta2,
             options_.eps, input.clip, input.number});
}

// Update() of copies on the host.
void AdamW::UpdateByRows(const Region& region, State& state, const StepInput& input) const {
  const at::Tensor gradients = parameters_.GradientOf(region.place).cpu();
  std::vector<kernels::AdamWChunk> chunks;
  AddChunks(region, {}, chunks);
  AdamWRow<float, float> row = {};
  BeginRow(input, row);
  row.chunks = chunks.data();
  row.weight = kernels::MutableData<float>(state.masters);
  row.gradient = kernels::Data<float>(gradients);
  row.average = kernels::MutableData<float>(state.averages);
  row.square = kernels::MutableData<float>(state.squares);
  RunOnThreads(row, {0, static_cast<int64_t>(chunks.size())});
}

void AdamW::AddChunks(const Region& region, const Begins& at,
                      std::vector<kernels::AdamWChunk>& chunks) const {
  for (size_t group = 0; group < groups_.size(); ++group) {
    for (Part part : region.parts[group]) {
      const auto key = static_cast<int64_t>(without_masters() ? KeyOf(part.parameter) : 0);
      for (; part.begin < part.end; part.begin += kChunk) {
        const int64_t i = part.begin;
        chunks.push_back({at.weight + i, at.gradient + i, at.local + i,
                          std::min(kChunk, part.size()), static_cast<int64_t>(group), key,
                          PlaceOf(region, part)});
      }
    }
  }
}

uint64_t AdamW::KeyOf(size_t parameter) const {
  const std::string& name = parameters_.parameters()[parameter]->name;
  return XXH3_64bits(name.data(), name.size());
}

uint64_t AdamW::RandomOf(int64_t step) const {
  return without_masters() ? XXH3_64bits_withSeed(&step, sizeof step, *options_.rounding_seed) : 0;
}

kernels::WholePlace AdamW::PlaceOf(const Region& region, const Part& part) const {
  const int64_t flat = region.place.flat.begin + part.begin;
  return PlaceInWhole(*parameters_.parameters()[part.parameter],
                      flat - parameters_.gradient_offset(part.parameter));
}

void AdamW::RoundStochastically(const Region& region, const at::Tensor& masters) {
  const at::Tensor values = parameters_.ValueOf(region.place);
  for (const std::vector<Part>& parts : region.parts) {
    for (const Part& part : parts) {
      equipoise::RoundStochastically(
          masters.narrow(0, part.begin, part.size()),
          {KeyOf(part.parameter) ^ RandomOf(steps_), PlaceOf(region, part)},
          values.narrow(0, part.begin, part.size()));
    }
  }
}

void AdamW::MakeChunks() {
  for (Region& region : regions_) {
    const Shards::Run& place = region.place;
    Begins at{0, 0, place.local};  // pieces of values and of gradients
    if (!offloaded()) at.weight = parameters_.ValueAt(place);
    if (!gradients_arrive()) at.gradient = parameters_.GradientAt(place);
    if (masters_.defined()) at.weight = place.local;
    const auto begin = static_cast<int64_t>(chunks_.size());
    AddChunks(region, at, chunks_);
    region.chunks = {begin, static_cast<int64_t>(chunks_.size())};
  }
}

// All but the moments.
template <class Weight, class Row>
void AdamW::BeginHostRow(const at::Tensor& values, const at::Tensor& gradients,
                         const StepInput& input, Row& row) const {
  BeginRow(input, row);
  row.chunks = chunks_.data();
  row.weight = kernels::MutableData<Weight>(values);
  row.remainder = remainders_.defined() ? kernels::MutableData<int16_t>(remainders_) : nullptr;
  row.gradient = kernels::Data<float>(gradients);
  row.random = RandomOf(input.number);
}

template <class Weight, bool kHasMaster>
void AdamW::StepRows(Range chunks, const at::Tensor& values, const at::Tensor& gradients,
                     const StepInput& input) {
  if (moments_are_codes()) {
    kernels::AdamWOnCodes<Weight, kHasMaster> row = {};
    BeginHostRow<Weight>(values, gradients, input, row.rows);
    row.average = exp_avg_.codes();
    row.square = exp_avg_sq_.codes();
    return RunOnThreads(row, chunks);
  }
  kernels::OnType(exp_avg_.kept(), [&](auto moment) {
    using Number = decltype(moment);
    AdamWRow<Weight, Number, kHasMaster> row = {};
    BeginHostRow<Weight>(values, gradients, input, row);
    row.average = kernels::MutableData<Number>(exp_avg_.kept());
    row.square = kernels::MutableData<Number>(exp_avg_sq_.kept());
    RunOnThreads(row, chunks);
  });
}

void AdamW::StepOnHost(Range chunks, const at::Tensor& values, const at::Tensor& gradients,
                       const StepInput& input) {
  kernels::OnType(values, [&](auto weight) {
    using Weight = decltype(weight);
    if constexpr (std::is_same_v<Weight, Bf16>) {
      if (without_masters()) return StepRows<Weight, false>(chunks, values, gradients, input);
    }
    StepRows<Weight, true>(chunks, values, gradients, input);
  });
}

void AdamW::RoundMasters() {
  for (const Region& region : regions_) {
    const Shards::Run& place = region.place;
    RoundMaster(masters_.narrow(0, place.local, place.flat.size()), parameters_.ValueOf(place));
  }
}

void AdamW::StepOffloaded(const StepInput& input) {
  int64_t most = 0;
  for (const Region& region : regions_) most = std::max(most, region.place.flat.size());
  for (at::Tensor& piece : arriving_) {
    if (gradients_arrive() && !piece.defined()) piece = PinnedMemory(most, at::kFloat);
  }
  std::array<CopyToHost, 2> copies;
  const auto start = [&](size_t i) {
    if (!gradients_arrive()) return;
    const Shards::Run& place = regions_[i].place;
    copies[i % 2] =
        CopyToHost(parameters_.GradientOf(place), arriving_[i % 2].narrow(0, 0, place.flat.size()));
  };
  if (!regions_.empty()) start(0);
  for (size_t i = 0; i < regions_.size(); ++i) {
    if (i + 1 < regions_.size()) start(i + 1);
    copies[i % 2].Wait();
    const Region& region = regions_[i];
    StepOnHost(region.chunks, masters_.defined() ? masters_ : region.values,
               gradients_arrive() ? arriving_[i % 2] : parameters_.gradient(), input);
    if (masters_.defined()) {
      const Shards::Run& place = region.place;
      RoundMaster(masters_.narrow(0, place.local, place.flat.size()), region.values);
    }
    parameters_.ValueOf(region.place).copy_(region.values, /*non_blocking=*/true);
  }
}

using OwnAdamW = OwnOperator<void(
    const at::Tensor& chunks, const at::Tensor& weight, const std::optional<at::Tensor>& remainder,
    const at::Tensor& gradient, const at::Tensor& exp_avg, const at::Tensor& exp_avg_sq,
    c10::ArrayRef<double> lr, c10::ArrayRef<double> weight_decay, c10::ArrayRef<double> betas,
    double eps, double clip, int64_t step, int64_t random)>;

// Step() by the program's own kernel. Returns false, and does nothing, where there is none.
bool AdamW::StepByOwnKernel(const StepInput& input) {
  static const OwnAdamW own("equipoise::adamw_");
  const at::Tensor& gradient = parameters_.gradient();
  if (moments_are_codes() || !own.IsFor(gradient)) return false;
  if (!chunks_on_device_.defined()) {
    constexpr auto kNumbers = static_cast<int64_t>(sizeof chunks_[0] / sizeof(int64_t));
    chunks_on_device_ =
        at::from_blob(chunks_.data(), {static_cast<int64_t>(chunks_.size()), kNumbers}, at::kLong)
            .to(gradient.device(), at::kLong, /*non_blocking=*/false, /*copy=*/true);
  }
  const Rates rates = RatesOf(groups_, input.lr);
  const std::optional<at::Tensor> remainders =
      remainders_.defined() ? std::optional(remainders_) : std::nullopt;
  own(chunks_on_device_, masters_.defined() ? masters_ : parameters_.compute(), remainders,
      gradient, exp_avg_.kept(), exp_avg_sq_.kept(), rates.lr, rates.decay,
      std::array{options_.beta1, options_.beta2}, options_.eps, input.clip, input.number,
      static_cast<int64_t>(RandomOf(input.number)));
  if (masters_.defined()) RoundMasters();
  return true;
}

void AdamW::Step(double lr, double clip) {
  const StepInput input{lr, clip, ++steps_};
  if (chunks_.empty()) MakeChunks();
  if (offloaded()) return StepOffloaded(input);
  if (steps_on_host()) {
    StepOnHost({0, static_cast<int64_t>(chunks_.size())},
               masters_.defined() ? masters_ : parameters_.compute(), parameters_.gradient(),
               input);
    if (masters_.defined()) RoundMasters();
    return;
  }
  if (StepByOwnKernel(input)) return;
  for (const Region& region : regions_) {
    State state = Load(region);
    Update(region, state, input);
    Store(region, state);
  }
}

bool AdamW::StepIsFinite(double lr, double clip) const {
  const StepInput input{lr, clip, steps_ + 1};
  for (const Region& region : regions_) {
    const State now = Load(region);
    State after{now.masters.clone(), now.averages.clone(), now.squares.clone()};
    Update(region, after, input);
    for (const at::Tensor& values : {after.masters, after.averages, after.squares}) {
      if (!(Magnitude(values) <= kLargest)) return false;
    }
  }
  return true;
}

}  // namespace equipoise
