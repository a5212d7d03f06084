#include "parallel/comm/make_communicator.h"

#include "parallel/comm/group_communicator.h"
#include "parallel/comm/single_communicator.h"

namespace equipoise {

std::unique_ptr<Communicator> MakeWorldCommunicator(MpiEnvironment& environment,
                                                    const CommOptions& options) {
  if (environment.size() == 1) return std::make_unique<SingleCommunicator>();
  return std::make_unique<GroupCommunicator>(environment.Connect(options),
                                             GroupCommunicator::Everyone::kWorld);
}

}  // namespace equipoise
