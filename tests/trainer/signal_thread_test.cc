#include "trainer/common/signal_thread.h"

#include <ATen/ATen.h>
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "models/ops/matrix_product.h"
#include "tests/models/model_support.h"

namespace equipoise {
namespace {

std::atomic<int> handled{0}, on_computing_thread{0}, held_one{0};
thread_local bool computes = false;

extern "C" void Count(int signal) {
  ++(signal == SIGUSR2 ? held_one : handled);
  if (computes) ++on_computing_thread;
}

void SetHandler(int signal) {
  struct sigaction action {};
  action.sa_handler = Count;
  action.sa_flags = SA_RESTART;
  sigaction(signal, &action, nullptr);
}

bool Within(const std::atomic<int>& count, int least) {
  for (int i = 0; i < 1000 && count < least; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return count >= least;
}

// Without the thread the heap is damaged within some signals where products are oneDNN's.
TEST_CASE("signals that come while products are computed do no harm", "[signals][cpu]") {
  TakeSignalsOnOwnThread();
  computes = true;
  SetHandler(SIGALRM);
  const itimerval often = {{0, 500}, {0, 500}}, never = {};
  const int threads = at::get_num_threads();
  at::set_num_threads(2);
  const at::Tensor a = testing::Normal({640, 384}, 1), b = testing::Normal({384, 768}, 2);
  const at::Tensor product = ops::MatrixProduct(a, b);
  setitimer(ITIMER_REAL, &often, nullptr);
  bool same = true;
  for (int i = 0; i < 50 || (i < 5000 && handled < 200); ++i) {
    same = same && ops::MatrixProduct(a, b).equal(product);
    same = same && ops::MatrixProduct(b.t(), a.t()).sizes() == at::IntArrayRef({768, 640});
  }
  setitimer(ITIMER_REAL, &never, nullptr);
  at::set_num_threads(threads);
  CHECK(same);
  CHECK(handled > 0);
  CHECK(on_computing_thread == 0);

  SetHandler(SIGUSR2);
  CHECK_FALSE(HoldBackSignal(SIGUSR2, true));
  kill(getpid(), SIGUSR2);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  CHECK(held_one == 0);
  CHECK(HoldBackSignal(SIGUSR2, false));
  CHECK(Within(held_one, 1));
}

}  // namespace
}  // namespace equipoise
