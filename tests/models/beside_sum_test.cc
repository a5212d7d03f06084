// Weight gradients of split linear layers are computed while the gradient of their input is summed
// over the tensor ranks.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/variable.h>

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <vector>

#include "models/ops/linear.h"
#include "models/ops/tensor_ranks.h"
#include "tests/models/model_support.h"

namespace equipoise {
namespace {

using testing::Normal;

// A group of one rank that notes what it is asked for, and whether a weight had its gradient then.
class NotingGroup : public Communicator {
 public:
  explicit NotingGroup(const Parameter& weight) : weight_(weight) {}
  std::vector<std::string> asked;

  int rank() const override { return 0; }
  int size() const override { return 1; }
  const std::string& name() const override { return name_; }
  Work AllReduce(at::Tensor& /*tensor*/, ReduceOp /*op*/) override { return Note("sum"); }
  Work AllGather(at::Tensor& output, const at::Tensor& input) override {
    output.copy_(input);
    return Note("gather");
  }
  Work ReduceScatter(at::Tensor& output, const at::Tensor& input, ReduceOp /*op*/) override {
    output.copy_(input);
    return Note("scatter");
  }
  Work Broadcast(at::Tensor& /*tensor*/, int /*root*/) override { return {}; }
  Work Send(const at::Tensor& /*tensor*/, int /*peer*/) override { return {}; }
  Work Recv(at::Tensor& /*tensor*/, int /*peer*/) override { return {}; }
  std::unique_ptr<Communicator> Split(int, int, const std::string&) override { return nullptr; }

 private:
  Work Note(const char* what) {
    const bool has = weight_.gradient.count_nonzero().item<int64_t>() > 0;
    asked.push_back(std::string(what) + (has ? " behind the weight's gradient" : ""));
    return {};
  }
  const Parameter& weight_;
  std::string name_ = "tensor";
};

struct Case {
  Parameter weight;
  at::Tensor x = Normal({6, 4}, 1), g = Normal({6, 5}, 2);
  NotingGroup group{weight};
  ops::BesideSum beside = std::make_shared<DeferredGradients>();

  explicit Case(bool needs_gradient = true) {
    weight.name = "w";
    weight.shape = {5, 4};
    weight.value = Normal({5, 4}, 3);
    weight.gradient = at::zeros({5, 4});
    x.set_requires_grad(needs_gradient);
  }
  at::Tensor OfWeight() const { return g.t().mm(x.detach()); }
};

TEST_CASE("a weight's gradient is computed beside the sum of the input's", "[models][cpu]") {
  Case c;
  const at::Tensor y = ops::FusedLinear(ops::AllReduceBackward(c.x, c.group, c.beside),
                                        {{&c.weight}}, nullptr, c.beside);
  CHECK(c.group.asked.empty());
  y.backward(c.g);
  CHECK(c.group.asked == std::vector<std::string>{"sum"});
  CHECK(c.weight.gradient.equal(c.OfWeight()));
  CHECK(c.x.grad().equal(c.g.mm(c.weight.value)));
  CHECK(c.beside->empty());
}

TEST_CASE(
    "rows are gathered again beside the input's gradient, and its sum runs beside the weight's",
    "[models][cpu]") {
  Case c;
  const at::Tensor all = ops::GatherRows(c.x, 6, c.group, c.beside);
  const auto kept = std::make_shared<ops::SharedInput>(c.x, 6, c.group);
  ops::FusedLinear(all, {{&c.weight}}, kept, c.beside).backward(c.g);
  CHECK(c.group.asked == std::vector<std::string>{"gather", "gather", "scatter"});
  CHECK(c.weight.gradient.equal(c.OfWeight()));
  CHECK(c.x.grad().equal(c.g.mm(c.weight.value)));
}

TEST_CASE("where no gradient is summed a weight's is computed at once", "[models][cpu]") {
  Case c(/*needs_gradient=*/false);
  ops::FusedLinear(ops::AllReduceBackward(c.x, c.group, c.beside), {{&c.weight}}, nullptr, c.beside)
      .backward(c.g);
  CHECK(c.group.asked.empty());
  CHECK(c.weight.gradient.equal(c.OfWeight()));
}

TEST_CASE("a split backward leaves weights' gradients to its second half", "[models][cpu]") {
  Case c;
  DeferredGradients later;
  c.weight.deferred = &later;
  ops::FusedLinear(ops::AllReduceBackward(c.x, c.group, c.beside), {{&c.weight}}, nullptr, c.beside)
      .backward(c.g);
  CHECK(c.group.asked == std::vector<std::string>{"sum"});
  CHECK(c.weight.gradient.count_nonzero().item<int64_t>() == 0);
  REQUIRE(later.size() == 1);
  later[0]();
  CHECK(c.weight.gradient.equal(c.OfWeight()));
}

}  // namespace
}  // namespace equipoise
