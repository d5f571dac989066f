// The runtime API: kernels and what is asked of a device.
#include "runtime_api.h"
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <unordered_map>
using namespace emu;

static thread_local cudaError_t last = cudaSuccess;
cudaError_t emu::failed(cudaError_t e, const char* where) {
  last = e;
  if (e != cudaErrorNotReady && config().trace) fprintf(stderr, "emu: %s: error %d\n", where, int(e));
  return e;
}

// Kernels
static std::unordered_map<const void*, Kernel*>& kernels() {
  static auto* m = new std::unordered_map<const void*, Kernel*>(1 << 16);
  return *m;
}
static std::mutex& kernels_lock() {
  static auto* m = new std::mutex;
  return *m;
}
static Kernel* kernel_of(const void* f) {
  std::lock_guard<std::mutex> g(kernels_lock());
  auto it = kernels().find(f);
  if (it != kernels().end()) return it->second;
  auto* k = new Kernel{"unknown_kernel", -1, 0, false, 32};
  kernels()[f] = k;
  return k;
}
EXPORT void** __cudaRegisterFatBinary(void*) {
  static void* h[4];
  return h;
}
EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
EXPORT void __cudaUnregisterFatBinary(void**) {}
EXPORT char __cudaInitModule(void**) { return 1; }
EXPORT void __cudaRegisterFunction(void**, const char* host, char*, const char* name, int, void*, void*,
                                   void*, void*, int*) {
  std::lock_guard<std::mutex> g(kernels_lock());
  kernels()[host] = new Kernel{name, -1, 0, false, 32};
}
static std::unordered_map<const void*, std::pair<void*, size_t>>& vars() {
  static auto* m = new std::unordered_map<const void*, std::pair<void*, size_t>>;
  return *m;
}
EXPORT void __cudaRegisterVar(void**, char* host, char*, const char*, int, size_t size, int, int) {
  vars()[host] = {nullptr, size};
}
struct Call {
  dim3 grid, block;
  size_t smem;
  void* stream;
};
static thread_local std::vector<Call> calls;
EXPORT unsigned __cudaPushCallConfiguration(dim3 g, dim3 b, size_t smem, struct CUstream_st* s) {
  calls.push_back({g, b, smem, s});
  return 0;
}
EXPORT cudaError_t __cudaPopCallConfiguration(dim3* g, dim3* b, size_t* smem, void* s) {
  if (calls.empty()) return cudaErrorMissingConfiguration;
  Call c = calls.back();
  calls.pop_back();
  *g = c.grid;
  *b = c.block;
  *smem = c.smem;
  *static_cast<void**>(s) = c.stream;
  return cudaSuccess;
}
static cudaError_t launch(Kernel* k, dim3 g, dim3 b, void** args, size_t smem, Stream* s, uint32_t cbid) {
  Api api(cbid);
  spin(config().launch);
  if (!g.x || !g.y || !g.z || !b.x || !b.y || !b.z || uint64_t(b.x) * b.y * b.z > 1024)
    return fail(cudaErrorInvalidConfiguration);
  Op op;
  op.name = k->name;
  op.grid[0] = g.x;
  op.grid[1] = g.y;
  op.grid[2] = g.z;
  op.block[0] = b.x;
  op.block[1] = b.y;
  op.block[2] = b.z;
  op.smem = unsigned(smem);
  op.regs = unsigned(k->regs);
  op.ns = kernel_ns(k, op.grid, op.block, args);
  if (auto act = effect(k, args)) {
    if (s->capture)
      op.replay = act;
    else
      act();
  }
  enqueue(s, std::move(op));
  return cudaSuccess;
}
EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* f) {
  *out = reinterpret_cast<cudaKernel_t>(kernel_of(f));
  return cudaSuccess;
}
EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 g, dim3 b, void** args, size_t smem,
                                      cudaStream_t s) {
  return launch(reinterpret_cast<Kernel*>(k), g, b, args, smem, S(s), CB(cudaLaunchKernel_v7000));
}
EXPORT cudaError_t cudaLaunchKernel(const void* f, dim3 g, dim3 b, void** args, size_t smem, cudaStream_t s) {
  return launch(kernel_of(f), g, b, args, smem, S(s), CB(cudaLaunchKernel_v7000));
}
EXPORT cudaError_t cudaLaunchCooperativeKernel(const void* f, dim3 g, dim3 b, void** args, size_t smem,
                                               cudaStream_t s) {
  return launch(kernel_of(f), g, b, args, smem, S(s), CB(cudaLaunchCooperativeKernel_v9000));
}
EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* f, void** args) {
  return launch(kernel_of(f), c->gridDim, c->blockDim, args, c->dynamicSmemBytes, S(c->stream),
                CB(cudaLaunchKernelExC_v11060));
}
EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void*) {
  memset(a, 0, sizeof *a);
  a->maxThreadsPerBlock = 1024;
  a->numRegs = 32;
  a->ptxVersion = a->binaryVersion = config().major * 10 + config().minor;
  a->maxDynamicSharedSizeBytes = 227 << 10;
  a->preferredShmemCarveout = -1;
  return cudaSuccess;
}
EXPORT cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
EXPORT cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) {
  return cudaSuccess;
}
EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void*, int block, size_t) {
  *n = block > 0 ? std::max(1, std::min(32, 2048 / block)) : 1;
  return cudaSuccess;
}
EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void* f, int block,
                                                                          size_t m, unsigned) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, f, block, m);
}
EXPORT cudaError_t cudaGetSymbolAddress(void** p, const void* symbol) {
  auto& v = vars()[symbol];
  if (!v.second) v.second = 256;
  if (!v.first) v.first = dev_alloc(v.second);
  *p = v.first;
  return cudaSuccess;
}

// The device
EXPORT cudaError_t cudaGetDeviceCount(int* n) {
  *n = config().devices;
  return *n ? cudaSuccess : fail(cudaErrorNoDevice);
}
EXPORT cudaError_t cudaGetDevice(int* d) {
  *d = device();
  return cudaSuccess;
}
EXPORT cudaError_t cudaSetDevice(int d) {
  if (d < 0 || d >= config().devices) return fail(cudaErrorInvalidDevice);
  device() = d;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDriverGetVersion(int* v) {
  *v = 13000;
  return cudaSuccess;
}
EXPORT cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = 13000;
  return cudaSuccess;
}
EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int d) {
  const Config& c = config();
  if (d < 0 || d >= c.devices) return fail(cudaErrorInvalidDevice);
  memset(p, 0, sizeof *p);
  snprintf(p->name, sizeof p->name, "%s", c.name.c_str());
  memcpy(p->uuid.bytes, "emulated device0", 16);
  p->uuid.bytes[15] = char('0' + d);
  p->totalGlobalMem = c.mem;
  p->sharedMemPerBlock = 48 << 10;
  p->regsPerBlock = 65536;
  p->warpSize = 32;
  p->memPitch = 2147483647;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 2147483647;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->totalConstMem = 65536;
  p->major = c.major;
  p->minor = c.minor;
  p->textureAlignment = 512;
  p->texturePitchAlignment = 32;
  p->multiProcessorCount = c.sms;
  p->canMapHostMemory = 1;
  p->concurrentKernels = 1;
  p->ECCEnabled = 1;
  p->pciBusID = 1 + d;
  p->asyncEngineCount = 3;
  p->unifiedAddressing = 1;
  p->memoryBusWidth = 5120;
  p->l2CacheSize = 50 << 20;
  p->persistingL2CacheMaxSize = 32 << 20;
  p->maxThreadsPerMultiProcessor = 2048;
  p->streamPrioritiesSupported = 1;
  p->globalL1CacheSupported = p->localL1CacheSupported = 1;
  p->sharedMemPerMultiprocessor = 228 << 10;
  p->regsPerMultiprocessor = 65536;
  p->managedMemory = 1;
  p->concurrentManagedAccess = 1;
  p->computePreemptionSupported = 1;
  p->canUseHostPointerForRegisteredMem = 1;
  p->cooperativeLaunch = 1;
  p->sharedMemPerBlockOptin = 227 << 10;
  p->maxBlocksPerMultiProcessor = 32;
  p->reservedSharedMemPerBlock = 1024;
  p->hostRegisterSupported = 1;
  p->memoryPoolsSupported = 1;
  p->clusterLaunch = 1;
  return cudaSuccess;
}
int attribute(int a) {
  const Config& c = config();
  switch (a) {
    case 1: return 1024;
    case 2:
    case 3: return 1024;
    case 4: return 64;
    case 5: return 2147483647;
    case 6:
    case 7: return 65535;
    case 8: return 48 << 10;
    case 9: return 65536;
    case 10: return 32;
    case 11: return 2147483647;
    case 12: return 65536;
    case 13: return 1980000;
    case 14: return 512;
    case 15: return 1;
    case 16: return c.sms;
    case 19: return 1;
    case 31: return 1;
    case 32: return 1;
    case 33: return 1;
    case 36: return 2619000;
    case 37: return 5120;
    case 38: return 50 << 20;
    case 39: return 2048;
    case 40: return 3;
    case 41: return 1;
    case 75: return c.major;
    case 76: return c.minor;
    case 78:
    case 79:
    case 80: return 1;
    case 81: return 228 << 10;
    case 82: return 65536;
    case 83: return 1;
    case 89: return 1;
    case 90: return 1;
    case 91: return 1;
    case 95: return 1;
    case 97: return 227 << 10;
    case 99: return 1;
    case 106: return 32;
    case 108: return 32 << 20;
    case 111: return 1024;
    case 115: return 1;
    case 120: return 1;
    default: return 0;
  }
}
EXPORT cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int) {
  *v = attribute(int(a));
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceGetPCIBusId(char* s, int len, int d) {
  snprintf(s, size_t(len), "0000:%02x:00.0", 1 + d);
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceCanAccessPeer(int* can, int a, int b) {
  *can = a != b;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }
EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* most) {
  *least = 0;
  *most = -5;
  return cudaSuccess;
}
EXPORT cudaError_t cudaDeviceSynchronize() {
  Api api(CB(cudaDeviceSynchronize_v3020));
  if (forbidden()) return fail(cudaErrorStreamCaptureUnsupported);
  spin(config().sync);
  Ns t0 = now();
  wait_until(device_tail(device()));
  if (profiling) profile_sync(4, nullptr, nullptr, t0, now());
  return cudaSuccess;
}
EXPORT cudaError_t cudaGetLastError() {
  cudaError_t e = last;
  last = cudaSuccess;
  return e;
}
EXPORT cudaError_t cudaPeekAtLastError() { return last; }
static const std::pair<int, std::pair<const char*, const char*>> errors[] = {
    {0, {"cudaSuccess", "no error"}},
    {1, {"cudaErrorInvalidValue", "invalid argument"}},
    {2, {"cudaErrorMemoryAllocation", "out of memory"}},
    {3, {"cudaErrorInitializationError", "initialization error"}},
    {9, {"cudaErrorInvalidConfiguration", "invalid configuration argument"}},
    {100, {"cudaErrorNoDevice", "no CUDA-capable device is detected"}},
    {101, {"cudaErrorInvalidDevice", "invalid device ordinal"}},
    {600, {"cudaErrorNotReady", "device not ready"}},
    {801, {"cudaErrorNotSupported", "operation not supported"}},
    {900, {"cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing"}},
    {901, {"cudaErrorStreamCaptureInvalidated", "operation failed due to a previous error during capture"}},
    {400, {"cudaErrorInvalidResourceHandle", "invalid resource handle"}}};
EXPORT const char* cudaGetErrorName(cudaError_t e) {
  for (auto& x : errors)
    if (x.first == int(e)) return x.second.first;
  return "cudaErrorUnknown";
}
EXPORT const char* cudaGetErrorString(cudaError_t e) {
  for (auto& x : errors)
    if (x.first == int(e)) return x.second.second;
  return "unknown error";
}
EXPORT cudaError_t cudaProfilerStart() { return cudaSuccess; }
EXPORT cudaError_t cudaProfilerStop() { return cudaSuccess; }
EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** f, unsigned, unsigned long long,
                                                    cudaDriverEntryPointQueryResult* r) {
  std::string v2 = std::string(name) + "_v2";
  *f = dlsym(RTLD_DEFAULT, name);
  if (!*f) *f = dlsym(RTLD_DEFAULT, v2.c_str());
  if (r) *r = *f ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  if (!*f) unimplemented(name);
  return cudaSuccess;
}
