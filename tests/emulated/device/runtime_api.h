// What the files of the runtime API share: errors, costs, and who is capturing.
#pragma once
#include "device.h"
#include <atomic>
#include <cuda_runtime_api.h>
#include <cupti_runtime_cbid.h>
#define CB(x) CUPTI_RUNTIME_TRACE_CBID_##x
#define EXPORT extern "C" __attribute__((visibility("default")))
#define fail(E) emu::failed(E, __func__)

namespace emu {
cudaError_t failed(cudaError_t, const char* where);  // sets the last error
inline Stream* S(cudaStream_t s) { return stream_of(s); }
bool is_pinned(const void*);
// Captures that forbid a synchronising call or cudaMalloc: of any thread (global), of this one (thread
// local).
extern std::atomic<int> global_captures;
extern thread_local int own_captures;
extern thread_local cudaStreamCaptureMode capture_mode;
inline bool any_capture() {
  return capture_mode != cudaStreamCaptureModeRelaxed && (global_captures > 0 || own_captures > 0);
}
}  // namespace emu
