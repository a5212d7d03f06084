#pragma once

#include "parallel/comm/communicator.h"

namespace equipoise {

// A backend that can start several transfers as one call.
class JoinsTransfers {
 public:
  virtual void BeginTransfers() = 0;
  // What fails here is told by the works.
  virtual void EndTransfers() noexcept = 0;

 protected:
  ~JoinsTransfers() = default;
};

// While it lives, the transfers of a group are collected; they start together at its end, so that
// none stands before another on the GPU, whatever the peers do first. Backends whose transfers
// cannot stand before each other start them at once.
class TransferGroup {
 public:
  explicit TransferGroup(Communicator& group) : group_(dynamic_cast<JoinsTransfers*>(&group)) {
    if (group_ != nullptr) group_->BeginTransfers();
  }
  ~TransferGroup() {
    if (group_ != nullptr) group_->EndTransfers();
  }
  TransferGroup(const TransferGroup&) = delete;
  TransferGroup& operator=(const TransferGroup&) = delete;

 private:
  JoinsTransfers* group_;
};

}  // namespace equipoise
