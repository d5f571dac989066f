// The part of the driver API that Triton's launcher and PyTorch's loader of compiled code use.
#include "device.h"
#include <cstdio>
#include <cstring>
#include <cuda.h>
#include <cupti_driver_cbid.h>
using namespace emu;
#define EXPORT extern "C" __attribute__((visibility("default")))
int attribute(int);
static CUcontext context() { return reinterpret_cast<CUcontext>(0x40); }
EXPORT CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
EXPORT CUresult cuDriverGetVersion(int* v) {
  *v = 13000;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGet(CUdevice* d, int i) {
  *d = i;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetCount(int* n) {
  *n = config().devices;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetName(char* n, int len, CUdevice) {
  snprintf(n, size_t(len), "%s", config().name.c_str());
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDeviceGetAttribute(int* v, CUdevice_attribute a, CUdevice) {
  *v = attribute(int(a));
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* c, CUdevice) {
  *c = context();
  return CUDA_SUCCESS;
}
EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* f, int* active) {
  *f = 0;
  *active = 1;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetCurrent(CUcontext* c) {
  *c = context();
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxPushCurrent_v2(CUcontext) { return CUDA_SUCCESS; }
EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* c) {
  if (c) *c = context();
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetDevice(CUdevice* d) {
  *d = device();
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxGetLimit(size_t* v, CUlimit) {
  *v = 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }
EXPORT CUresult cuGetErrorString(CUresult r, const char** s) {
  *s = r == CUDA_SUCCESS ? "no error" : "not supported by the emulated device";
  return CUDA_SUCCESS;
}
EXPORT CUresult cuGetErrorName(CUresult r, const char** s) {
  *s = r == CUDA_SUCCESS ? "CUDA_SUCCESS" : "CUDA_ERROR_NOT_SUPPORTED";
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleLoadData(CUmodule* m, const void*) {
  spin(50000);
  *m = reinterpret_cast<CUmodule>(0x50);
  return CUDA_SUCCESS;
}
EXPORT CUresult cuModuleLoadDataEx(CUmodule* m, const void* p, unsigned, CUjit_option*, void**) {
  return cuModuleLoadData(m, p);
}
EXPORT CUresult cuModuleLoad(CUmodule* m, const char*) { return cuModuleLoadData(m, nullptr); }
EXPORT CUresult cuModuleUnload(CUmodule) { return CUDA_SUCCESS; }
EXPORT CUresult cuModuleGetFunction(CUfunction* f, CUmodule, const char* name) {
  *f = reinterpret_cast<CUfunction>(new Kernel{intern(name), -1, 0, false, 40});
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncGetAttribute(int* v, CUfunction_attribute a, CUfunction) {
  *v = a == CU_FUNC_ATTRIBUTE_NUM_REGS ? 40 : a == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? 1024 : 0;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
EXPORT CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }
EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* n, CUfunction, int, size_t) {
  *n = 2;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuOccupancyMaxActiveClusters(int* n, CUfunction, const CUlaunchConfig*) {
  *n = 66;
  return CUDA_SUCCESS;
}
EXPORT CUresult cuPointerGetAttribute(void* v, CUpointer_attribute a, CUdeviceptr p) {
  if (a == CU_POINTER_ATTRIBUTE_DEVICE_POINTER) {
    *static_cast<CUdeviceptr*>(v) = p;
    return CUDA_SUCCESS;
  }
  if (a == CU_POINTER_ATTRIBUTE_MEMORY_TYPE) {
    *static_cast<unsigned*>(v) = dev_of(reinterpret_cast<void*>(p)) >= 0 ? 2 : 1;
    return CUDA_SUCCESS;
  }
  if (a == CU_POINTER_ATTRIBUTE_CONTEXT) {
    *static_cast<CUcontext*>(v) = context();
    return CUDA_SUCCESS;
  }
  if (a == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL) {
    *static_cast<int*>(v) = dev_of(reinterpret_cast<void*>(p));
    return CUDA_SUCCESS;
  }
  return CUDA_ERROR_INVALID_VALUE;
}
EXPORT CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_t* n, CUdeviceptr p) {
  void* b;
  if (!dev_range(reinterpret_cast<void*>(p), &b, n)) return CUDA_ERROR_INVALID_VALUE;
  *base = CUdeviceptr(b);
  return CUDA_SUCCESS;
}
EXPORT CUresult emu_tensor_map(void* map) __asm__("cuTensorMapEncodeTiled");
CUresult emu_tensor_map(void* map) {
  memset(map, 0, 128);
  return CUDA_SUCCESS;
}
static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                       unsigned bz, unsigned smem, CUstream s, void** args, uint32_t cbid) {
  Api api(cbid | 0x80000000u);
  spin(config().launch);
  auto* k = reinterpret_cast<Kernel*>(f);
  Op op;
  op.name = k->name;
  op.smem = smem;
  op.regs = unsigned(k->regs);
  op.grid[0] = gx;
  op.grid[1] = gy;
  op.grid[2] = gz;
  op.block[0] = bx;
  op.block[1] = by;
  op.block[2] = bz;
  op.ns = kernel_ns(k, op.grid, op.block, args);
  enqueue(stream_of(s), std::move(op));
  return CUDA_SUCCESS;
}
EXPORT CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                               unsigned bz, unsigned m, CUstream s, void** a, void**) {
  return launch(f, gx, gy, gz, bx, by, bz, m, s, a, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernel);
}
EXPORT CUresult cuLaunchCooperativeKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                                          unsigned by, unsigned bz, unsigned m, CUstream s, void** a) {
  return launch(f, gx, gy, gz, bx, by, bz, m, s, a, CUPTI_DRIVER_TRACE_CBID_cuLaunchCooperativeKernel);
}
EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction f, void** a, void**) {
  return launch(f, c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY, c->blockDimZ,
                c->sharedMemBytes, c->hStream, a, CUPTI_DRIVER_TRACE_CBID_cuLaunchKernelEx);
}
