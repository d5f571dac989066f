// What the files of the runtime API share: errors, costs, and who is capturing.
#pragma once
#include "device.h"
#include <cuda_runtime_api.h>
#include <cupti_runtime_cbid.h>
#define CB(x) CUPTI_RUNTIME_TRACE_CBID_##x
#define EXPORT extern "C" __attribute__((visibility("default")))
#define fail(E) emu::failed(E, __func__)

namespace emu {
cudaError_t failed(cudaError_t, const char* where);  // sets the last error
inline Stream* S(cudaStream_t s) { return stream_of(s); }
bool is_pinned(const void*);
extern thread_local cudaStreamCaptureMode capture_mode;
// A call that CUDA counts as unsafe fails while a capture forbids it, and that capture is invalid from then on:
// a global one forbids it to all threads, a thread's own one to this thread, a relaxed one to none.
inline bool forbidden() {
  return capture_mode != cudaStreamCaptureModeRelaxed && break_captures(capture_mode == cudaStreamCaptureModeGlobal);
}
}  // namespace emu
