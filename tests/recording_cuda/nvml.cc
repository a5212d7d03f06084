// A recording libnvidia-ml.so.1: LibTorch's allocator opens it for expandable segments. It knows
// nothing of the machine: every question fails, as where NVML does not work.

extern "C" {

constexpr int kUnknownError = 999;

int nvmlInit_v2() { return kUnknownError; }
int nvmlDeviceGetHandleByPciBusId_v2() { return kUnknownError; }
int nvmlDeviceGetNvLinkRemoteDeviceType() { return kUnknownError; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2() { return kUnknownError; }
int nvmlDeviceGetComputeRunningProcesses() { return kUnknownError; }
int nvmlSystemGetCudaDriverVersion_v2() { return kUnknownError; }
int nvmlDeviceGetGpuFabricInfoV() { return kUnknownError; }
}
