// A recording libnvidia-ml.so.1: LibTorch's allocator opens it for expandable segments, and asks it
// which processes use a GPU that is out of memory. It knows of none; what else it is asked fails.

extern "C" {

constexpr int kSuccess = 0, kNotSupported = 3;

int nvmlInit_v2() { return kSuccess; }
int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** device) {
  *device = nullptr;
  return kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
  *count = 0;
  return kSuccess;
}
int nvmlDeviceGetNvLinkRemoteDeviceType() { return kNotSupported; }
int nvmlDeviceGetNvLinkRemotePciInfo_v2() { return kNotSupported; }
int nvmlSystemGetCudaDriverVersion_v2() { return kNotSupported; }
int nvmlDeviceGetGpuFabricInfoV() { return kNotSupported; }
}
