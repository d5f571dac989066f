// The runtime API: memory, copies and fills.
#include "runtime_api.h"
#include <cstring>
#include <sys/mman.h>
#include <cupti_activity.h>
using namespace emu;

static std::map<uintptr_t, size_t>& pinned() {
  static auto* m = new std::map<uintptr_t, size_t>;
  return *m;
}
static std::mutex& pinned_lock() {
  static auto* m = new std::mutex;
  return *m;
}
bool emu::is_pinned(const void* p) {
  std::lock_guard<std::mutex> g(pinned_lock());
  auto it = pinned().upper_bound(uintptr_t(p));
  if (it == pinned().begin()) return false;
  --it;
  return uintptr_t(p) < it->first + it->second;
}
thread_local cudaStreamCaptureMode emu::capture_mode = cudaStreamCaptureModeGlobal;
EXPORT cudaError_t cudaMalloc(void** p, size_t n) {
  Api api(CB(cudaMalloc_v3020));
  if (forbidden()) return fail(cudaErrorStreamCaptureUnsupported);
  spin(config().alloc);
  *p = n ? dev_alloc(n) : nullptr;
  return *p || !n ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}
EXPORT cudaError_t cudaFree(void* p) {
  Api api(CB(cudaFree_v3020));
  if (!p) return cudaSuccess;
  if (forbidden()) return fail(cudaErrorStreamCaptureUnsupported);
  wait_until(device_tail(device()));
  spin(config().alloc);
  return dev_free(p) ? cudaSuccess : fail(cudaErrorInvalidValue);
}
EXPORT cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t) {
  Api api(CB(cudaMallocAsync_v11020));
  spin(2000);
  *p = dev_alloc(n);
  return *p ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}
EXPORT cudaError_t cudaFreeAsync(void* p, cudaStream_t) {
  Api api(CB(cudaFreeAsync_v11020));
  spin(1000);
  dev_free(p);
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* p, int) {
  *p = reinterpret_cast<cudaMemPool_t>(0x10);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t, cudaMemPoolAttr, void* v) {
  *static_cast<uint64_t*>(v) = 0;
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) {
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }
EXPORT cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  Api api(CB(cudaMemGetInfo_v3020));
  *total = config().mem;
  *free = *total - dev_used(device());
  return cudaSuccess;
}
EXPORT cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) {
  Api api(CB(cudaHostAlloc_v3020));
  if (forbidden()) return fail(cudaErrorStreamCaptureUnsupported);
  spin(config().alloc);
  size_t size = (n + 4095) & ~size_t(4095);
  if (!size) size = 4096;
  *p = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (*p == MAP_FAILED) return fail(cudaErrorMemoryAllocation);
  std::lock_guard<std::mutex> g(pinned_lock());
  pinned()[uintptr_t(*p)] = size;
  return cudaSuccess;
}
EXPORT cudaError_t cudaFreeHost(void* p) {
  Api api(CB(cudaFreeHost_v3020));
  size_t n = 0;
  {
    std::lock_guard<std::mutex> g(pinned_lock());
    auto it = pinned().find(uintptr_t(p));
    if (it != pinned().end()) {
      n = it->second;
      pinned().erase(it);
    }
  }
  if (n) munmap(p, n);
  return cudaSuccess;
}
EXPORT cudaError_t cudaHostRegister(void* p, size_t n, unsigned) {
  std::lock_guard<std::mutex> g(pinned_lock());
  pinned()[uintptr_t(p)] = n;
  return cudaSuccess;
}
EXPORT cudaError_t cudaHostUnregister(void* p) {
  std::lock_guard<std::mutex> g(pinned_lock());
  pinned().erase(uintptr_t(p));
  return cudaSuccess;
}
EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  memset(a, 0, sizeof *a);
  int d = dev_of(p);
  if (d >= 0) {
    a->type = cudaMemoryTypeDevice;
    a->device = d;
    a->devicePointer = const_cast<void*>(p);
  } else if (is_pinned(p)) {
    a->type = cudaMemoryTypeHost;
    a->device = device();
    a->hostPointer = a->devicePointer = const_cast<void*>(p);
  } else {
    a->type = cudaMemoryTypeUnregistered;
    a->device = -2;
    a->hostPointer = const_cast<void*>(p);
  }
  return cudaSuccess;
}
// Copies are done at once, and take their time on the stream. Pageable memory makes the host wait, as it
// does, and takes three times as long: it goes by a buffer of the driver's.
static cudaError_t copy(void* dst, const void* src, size_t n, Stream* s, bool sync,
                        std::function<void(const void* from)> act) {
  bool to = dev_of(dst) >= 0, from = dev_of(src) >= 0;
  spin(config().launch);
  Op op;
  op.kind = Kind::memcpy_;
  op.bytes = n;
  op.ns = to && from ? 2000 + Ns(double(n) / 1500) : copy_ns(n);
  bool pageable = n > 65536 && ((to && !from && !is_pinned(src)) || (from && !to && !is_pinned(dst)));
  if (pageable) op.ns *= 3;
  op.name = "memcpy";
  op.copy_kind = to && from ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOD
                 : to       ? CUPTI_ACTIVITY_MEMCPY_KIND_HTOD
                 : from     ? CUPTI_ACTIVITY_MEMCPY_KIND_DTOH
                            : CUPTI_ACTIVITY_MEMCPY_KIND_HTOH;
  auto take = [=](const Time& due) {
    Effect e{{{static_cast<const char*>(src), n}}, {{static_cast<char*>(dst), n}}, nullptr, due};
    std::string staged;  // pageable memory is the caller's again at once
    bool stages = effects_wait() && !from && !is_pinned(src);
    if (stages) staged.assign(static_cast<const char*>(src), n), e.reads.clear();
    e.attempt = [=] {
      act(stages ? staged.data() : src);
      return true;
    };
    take_effect(std::move(e));
  };
  if (s->capture) {
    if (sync) return fail(cudaErrorStreamCaptureUnsupported);
    op.replay = [=] { take(0); };
    enqueue(s, std::move(op));
    return cudaSuccess;
  }
  bool blocks = sync || pageable || (from && !to && !is_pinned(dst));
  Time end = enqueue(s, std::move(op));
  Ns t0 = now();
  take(end);  // while it takes its time
  if (blocks) {
    wait_until(end);
    if (profiling) profile_sync(3, s, nullptr, t0, now());
  }
  return cudaSuccess;
}
static void move(void* dst, const void* src, size_t n) {
  bool both = dev_of(dst) >= 0 && dev_of(src) >= 0;
  if (both && n > (1 << 20)) return;  // nobody reads it: spare the host
  memmove(dst, src, n);
}
EXPORT cudaError_t cudaMemcpyAsync(void* d, const void* s, size_t n, cudaMemcpyKind, cudaStream_t st) {
  Api api(CB(cudaMemcpyAsync_v3020));
  return copy(d, s, n, S(st), false, [=](const void* from) { move(d, from, n); });
}
EXPORT cudaError_t cudaMemcpy(void* d, const void* s, size_t n, cudaMemcpyKind) {
  Api api(CB(cudaMemcpy_v3020));
  return copy(d, s, n, S(nullptr), true, [=](const void* from) { move(d, from, n); });
}
EXPORT cudaError_t cudaMemcpyPeerAsync(void* d, int, const void* s, int, size_t n, cudaStream_t st) {
  Api api(CB(cudaMemcpyPeerAsync_v4000));
  return copy(d, s, n, S(st), false, [=](const void* from) { move(d, from, n); });
}
EXPORT cudaError_t cudaMemcpy2DAsync(void* d, size_t dp, const void* s, size_t sp, size_t w, size_t h,
                                     cudaMemcpyKind, cudaStream_t st) {
  Api api(CB(cudaMemcpy2DAsync_v3020));
  return copy(d, s, w * h, S(st), false, [=](const void*) {
    for (size_t i = 0; i < h; i++)
      memmove(static_cast<char*>(d) + i * dp, static_cast<const char*>(s) + i * sp, w);
  });
}
EXPORT cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* src, size_t n, size_t off,
                                      cudaMemcpyKind) {
  void* p;
  cudaGetSymbolAddress(&p, symbol);
  memcpy(static_cast<char*>(p) + off, src, n);
  return cudaSuccess;
}
static cudaError_t set(void* p, int v, size_t n, Stream* s, bool sync) {
  spin(config().launch);
  Op op;
  op.kind = Kind::memset_;
  op.bytes = n;
  op.ns = 1500 + Ns(double(n) / 2500);
  op.name = "memset";
  auto act = [=] {
    auto fill = [=] {
      if (n <= (4 << 20)) memset(p, v, n);
      return true;
    };
    take_effect({{}, {{static_cast<char*>(p), n}}, fill});
  };
  if (s->capture)
    op.replay = act;
  else
    act();
  Time end = enqueue(s, std::move(op));
  if (sync) wait_until(end);
  return cudaSuccess;
}
EXPORT cudaError_t cudaMemsetAsync(void* p, int v, size_t n, cudaStream_t s) {
  Api api(CB(cudaMemsetAsync_v3020));
  return set(p, v, n, S(s), false);
}
EXPORT cudaError_t cudaMemset(void* p, int v, size_t n) {
  Api api(CB(cudaMemset_v3020));
  return set(p, v, n, S(nullptr), false);
}
EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t*, void*) { return fail(cudaErrorNotSupported); }
EXPORT cudaError_t cudaIpcOpenMemHandle(void**, cudaIpcMemHandle_t, unsigned) {
  return fail(cudaErrorNotSupported);
}
EXPORT cudaError_t cudaIpcCloseMemHandle(void*) { return fail(cudaErrorNotSupported); }
EXPORT cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t*, cudaEvent_t) {
  return fail(cudaErrorNotSupported);
}
EXPORT cudaError_t cudaIpcOpenEventHandle(cudaEvent_t*, cudaIpcEventHandle_t) {
  return fail(cudaErrorNotSupported);
}
