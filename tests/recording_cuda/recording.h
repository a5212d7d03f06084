#pragma once

#include <cstdint>

// What the recording CUDA (docs/gpu.md) has seen since the program began. The functions are those
// of the preloaded libcudart.so.13: a program looks them up by dlsym, and finds none where nothing
// records. Thread-safe.

extern "C" {

// Calls, by what they cost a host or a device. A product of cuBLAS counts as one launch, whatever
// it launches inside; copies within the device and fills are counted apart.
struct RecordingCudaCounts {
  int64_t launches;        // kernels
  int64_t copies_to_host;  // from the device
  int64_t copies_to_device;
  int64_t copies_within;     // from the device to itself, and fills
  int64_t synchronizations;  // the host waits: of the device, a stream or an event, blocking copies
  int64_t events;            // recorded
  int64_t stream_waits;      // a stream waits for an event
  int64_t reserved_bytes;    // of device memory, now
};

void RecordingCudaRead(RecordingCudaCounts* counts);
// Launches, copies within the device and fills by the calling thread.
int64_t RecordingCudaThreadWork(void);
// Calls `each` for every kernel that was launched, by its symbol's name.
void RecordingCudaKernels(void (*each)(void* context, const char* kernel, int64_t launches),
                          void* context);

// For the other recording libraries: a launch of a kernel or product of this name.
void RecordingCudaLaunch(const char* kernel);
// Takes bytes of a GPU's memory, or gives some back (below 0); 0 where there are not so many left.
int RecordingCudaTake(int gpu, int64_t bytes);
// Addresses of the virtual memory that are, or are no longer, backed by memory of a GPU.
void RecordingCudaMap(const void* begin, int64_t bytes);
void RecordingCudaUnmap(const void* begin);
}
