#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "parallel/comm/communicator.h"
#include "parallel/host_copies.h"
#include "parallel/parameter.h"

namespace equipoise {

// The units (layers) of a rank whose gradients, and in ZeRO 3 values, are shared out over the data
// ranks (Rajbhandari et al. 2020, section 5; Zhao et al., FSDP, arXiv 2304.11277): they are whole
// while a pass uses them. Per pass over the layers of a stage:
//
//   Begin(uses);   for each use, in order: Acquire(); ... the layer runs ...; Release();   End();
//
// Begin() starts to gather the values of the first `prefetch` + 1 uses, Acquire() waits for those
// of the next use, and starts those of the one that comes `prefetch` uses later; Release() frees
// values that no use started so far needs, and starts to sum gradients. Slices that lie in host
// memory are copied from there one use before they are gathered, and sums are added to them by the
// device, which then copies them back (ZeRO-Infinity, arXiv 2104.07857): the host waits for none of
// that before Finish(). All data ranks make the
// same passes in the same order: a rank that does not run one, or not all its layers, has the rest
// of it done by End(), and adds zeros. Not thread-safe.
//
// Sums over several passes: each rank adds up its slices, pass by pass. So with one micro-batch a
// data rank a gradient has the bits of ZeRO 0; with several, the same terms are added in another
// order, over ranks first.
class ShardedUnits {
 public:
  // What a layer's part of a pass needs.
  struct Use {
    std::vector<size_t> values;  // units whose values it reads; empty where they are whole anyway
    std::vector<size_t> sums;  // units with trainable parameters whose gradients are then complete
  };
  // Bytes that this rank has received and sent for gathers and sums, as a ring moves them; and
  // those of slices that it sums, or has summed, over copies.
  struct Traffic {
    int64_t gathered = 0, summed = 0, copied = 0;
  };

  // `copies`: the ranks of other such groups that have this rank's slices, over which gradients are
  // summed as well (hierarchical ZeRO); null: there are none, or the caller sums. All must outlive
  // it. REQUIRES: parameters.sharding().gradients().
  ShardedUnits(FlatParameters& parameters, Communicator& data, Communicator* copies = nullptr,
               int prefetch = 1);

  // How often each unit is summed until the next Finish(): its slices are then summed over the
  // copies beside the passes that follow its last time.
  void Expect(std::map<size_t, int> sums) { expected_ = std::move(sums); }

  void Begin(std::vector<Use> uses);
  bool in_pass() const { return in_pass_; }
  void Acquire();
  void Release();
  void End();

  // Lets a unit's gradients be added to, from zero on, until its next sum.
  void ShowGradients(size_t unit);
  // Waits for all sums. REQUIRES: those that were expected.
  void Finish();

  Traffic traffic() const { return traffic_; }

 private:
  // A unit whose values are whole, or on their way.
  struct Whole {
    at::Tensor trained, frozen;  // this rank's slices until they are gathered
    StreamMark here;             // of these, where they come from host memory
    bool gathered = false;
    std::vector<Work> gathers;
    int wanted = 0;  // uses that were started and not released
    bool shown = false;
  };
  struct Sum {
    size_t unit;
    at::Tensor whole, slice;
    Work work;
  };
  // Memory of a sum that is copied to the host.
  struct Leaving {
    at::Tensor whole, slice;
    StreamMark gone;
  };
  void StartUntil(size_t end);
  void Want(const Use& use);
  void Gather(const Use& use);
  at::Tensor GatherPart(const at::Tensor& mine, std::vector<Work>& gathers);
  void StartSum(size_t unit);
  void FinishSums();
  void AddOnHost(const Sum& sum);
  void ForgetLeft();

  FlatParameters& parameters_;
  Communicator& data_;
  Communicator* copies_;
  size_t prefetch_;
  std::map<size_t, int> expected_;  // sums to come, by unit
  std::vector<Work> of_copies_;
  bool in_pass_ = false;
  std::vector<Use> uses_;
  size_t next_ = 0, wanted_ = 0, gathered_ = 0;  // uses to acquire, to copy for, to gather for
  std::map<size_t, Whole> whole_;
  std::map<size_t, at::Tensor> gradients_;  // whole ones, by unit
  std::vector<Sum> sums_;                   // under way: those of one unit, or of one layer's units
  CopyStream to_host_, to_device_;
  std::vector<Leaving> leaving_;
  std::set<size_t> summed_;  // on the host: units whose slices are no longer zero
  Traffic traffic_;
};

}  // namespace equipoise
