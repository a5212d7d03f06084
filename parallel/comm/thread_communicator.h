#pragma once

#include <memory>
#include <vector>

#include "parallel/comm/communicator.h"

namespace equipoise {

// Makes the world communicators of `ranks` ranks that are threads of this process, for tests:
// thread i uses the i-th. A send ends only when it is received. Destroying a rank's last
// communicator makes that rank leave: operations that wait for it fail at once.
std::vector<std::unique_ptr<Communicator>> MakeThreadCommunicators(int ranks,
                                                                   CommOptions options = {});

}  // namespace equipoise
