// The math libraries: handles, descriptors, and work that takes the time of its operations.
#include "device.h"
#include <cstdio>
#include <cstring>
#include "math_libraries.h"
using namespace emu;
#define EXPORT extern "C" __attribute__((visibility("default")))
struct Handle {
  void* stream = nullptr;
  int math = 0, pointer = 0;
};
static double tiles(double m, double n, double b = 1) {
  return std::max(1.0, m / 128) * std::max(1.0, n / 128) * b;
}
static Handle* H(const void* h) { return static_cast<Handle*>(const_cast<void*>(h)); }

// CuBLAS. Unused trailing parameters are left out: the C calling convention allows it.
EXPORT int emu_cublasCreate(void** h) __asm__("cublasCreate_v2");
int emu_cublasCreate(void** h) {
  *h = new Handle;
  return 0;
}
EXPORT int emu_cublasDestroy(void* h) __asm__("cublasDestroy_v2");
int emu_cublasDestroy(void* h) {
  delete H(h);
  return 0;
}
EXPORT int emu_cublasSetStream(void* h, void* s) __asm__("cublasSetStream_v2");
int emu_cublasSetStream(void* h, void* s) {
  H(h)->stream = s;
  return 0;
}
EXPORT int emu_cublasSetWorkspace(void*, void*, size_t) __asm__("cublasSetWorkspace_v2");
int emu_cublasSetWorkspace(void*, void*, size_t) { return 0; }
EXPORT int emu_cublasGetPM(void* h, int* m) __asm__("cublasGetPointerMode_v2");
int emu_cublasGetPM(void* h, int* m) {
  *m = H(h)->pointer;
  return 0;
}
EXPORT int emu_cublasSetPM(void* h, int m) __asm__("cublasSetPointerMode_v2");
int emu_cublasSetPM(void* h, int m) {
  H(h)->pointer = m;
  return 0;
}
EXPORT int emu_cublasGetMM(void* h, int* m) __asm__("cublasGetMathMode");
int emu_cublasGetMM(void* h, int* m) {
  *m = H(h)->math;
  return 0;
}
EXPORT int emu_cublasSetMM(void* h, int m) __asm__("cublasSetMathMode");
int emu_cublasSetMM(void* h, int m) {
  H(h)->math = m;
  return 0;
}
EXPORT int emu_cublasSM(void*, int) __asm__("cublasSetSmCountTarget");
int emu_cublasSM(void*, int) { return 0; }
#define NAMED(symbol) __asm__(symbol)
#define GEMM(NAME, KERNEL)                                                    \
  EXPORT int emu_##NAME(void* h, int, int, int m, int n, int k) NAMED(#NAME); \
  int emu_##NAME(void* h, int, int, int m, int n, int k) {                    \
    launch_named(H(h)->stream, KERNEL, gemm_ns(m, n, k, 1), tiles(m, n));     \
    return 0;                                                                 \
  }
GEMM(cublasSgemm_v2, "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n")
GEMM(cublasDgemm_v2, "sm90_xmma_gemm_f64f64_f64f64_f64_tn_n")
GEMM(cublasCgemm_v2, "gemm_c32") GEMM(cublasZgemm_v2, "gemm_c64")
    GEMM(cublasSgemmEx, "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n")
        GEMM(cublasGemmEx, "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n")
#define STRIDED(NAME, KERNEL)                                                                            \
  EXPORT int emu_##NAME(void* h, long, long, long m, long n, long k, long, long, long, long, long, long, \
                        long, long, long, long, long, long b) NAMED(#NAME);                              \
  int emu_##NAME(void* h, long, long, long m, long n, long k, long, long, long, long, long, long, long,  \
                 long, long, long, long, long b) {                                                       \
    launch_named(H(h)->stream, KERNEL, gemm_ns(int(m), int(n), int(k), int(b)),                          \
                 tiles(int(m), int(n), int(b)));                                                         \
    return 0;                                                                                            \
  }
            STRIDED(cublasSgemmStridedBatched, "batched_gemm_f32")
                STRIDED(cublasDgemmStridedBatched, "batched_gemm_f64")
                    STRIDED(cublasCgemmStridedBatched, "batched_gemm_c32")
                        STRIDED(cublasZgemmStridedBatched, "batched_gemm_c64") EXPORT
    int emu_gsbe(void* h, long, long, long m, long n, long k, long, long, long, long, long, long, long, long,
                 long, long, long, long, long, long, long b) NAMED("cublasGemmStridedBatchedEx");
int emu_gsbe(void* h, long, long, long m, long n, long k, long, long, long, long, long, long, long, long,
             long, long, long, long, long, long, long b) {
  launch_named(H(h)->stream, "batched_gemm_f16", gemm_ns(int(m), int(n), int(k), int(b)),
               tiles(int(m), int(n), int(b)));
  return 0;
}
#define VECTOR(NAME)                                    \
  EXPORT int emu_##NAME(void* h) NAMED(#NAME);          \
  int emu_##NAME(void* h) {                             \
    launch_named(H(h)->stream, #NAME, config().kernel); \
    return 0;                                           \
  }
VECTOR(cublasSgemv_v2)
VECTOR(cublasDgemv_v2)
VECTOR(cublasSdot_v2) VECTOR(cublasDdot_v2) VECTOR(cublasDotEx) VECTOR(cublasSgemmBatched)
    VECTOR(cublasDgemmBatched) VECTOR(cublasStrsm_v2) VECTOR(cublasDtrsm_v2) VECTOR(cublasStrsmBatched)
        VECTOR(cublasDtrsmBatched)

            struct Layout {
  uint64_t rows, cols;
  int32_t batch = 1;
};
struct Desc {
  int32_t ta = 0, tb = 0;
};
static Layout* L(const void* p) { return static_cast<Layout*>(const_cast<void*>(p)); }
EXPORT size_t cublasLtGetVersion() { return 130100; }
EXPORT Status cublasLtMatmulDescCreate(void** d, int, int) {
  *d = static_cast<void*>(new Desc);
  return 0;
}
EXPORT Status cublasLtMatmulDescDestroy(void* d) {
  delete static_cast<Desc*>(d);
  return 0;
}
EXPORT Status cublasLtMatmulDescSetAttribute(void* d, int a, const void* v, size_t) {
  if (a == LT_DESC_TRANSA) static_cast<Desc*>(d)->ta = *static_cast<const int32_t*>(v);
  return 0;
}
EXPORT Status cublasLtMatrixLayoutCreate(void** l, int, uint64_t r, uint64_t c, int64_t) {
  auto* x = new Layout;
  x->rows = r;
  x->cols = c;
  *l = static_cast<void*>(x);
  return 0;
}
EXPORT Status cublasLtMatrixLayoutDestroy(void* l) {
  delete L(l);
  return 0;
}
EXPORT Status cublasLtMatrixLayoutSetAttribute(void* l, int a, const void* v, size_t) {
  if (a == LT_LAYOUT_BATCH_COUNT) L(l)->batch = *static_cast<const int32_t*>(v);
  return 0;
}
EXPORT Status cublasLtMatmulPreferenceCreate(void** p) {
  *p = static_cast<void*>(malloc(64));
  return 0;
}
EXPORT Status cublasLtMatmulPreferenceDestroy(void* p) {
  free(p);
  return 0;
}
EXPORT Status cublasLtMatmulPreferenceSetAttribute(void*, int, const void*, size_t) { return 0; }
EXPORT Status cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int asked,
                                             LtHeuristicResult* r, int* got) {
  spin(3000);
  *got = asked > 0;
  if (asked > 0) {
    memset(r, 0, sizeof *r);
    r->state = 0;
    r->waves_count = 1;
  }
  return 0;
}
EXPORT Status cublasLtMatmul(void*, void* d, const void*, const void*, void* a, const void*, void*,
                             const void*, const void*, void*, void*, void* o, const void*, void*, size_t,
                             cudaStream_t s) {
  double k = double(static_cast<Desc*>(d)->ta ? L(a)->rows : L(a)->cols);
  launch_named(s, "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_epilogue",
               gemm_ns(double(L(o)->rows), double(L(o)->cols), k, L(o)->batch),
               tiles(double(L(o)->rows), double(L(o)->cols), L(o)->batch));
  return 0;
}

// CuDNN: the backend (graph) API keeps what it is told, and has one engine for every graph of operations
// ---
struct Item {
  int type;
  int64_t count;
  std::vector<uint8_t> raw;
  std::vector<std::shared_ptr<struct Fact>> linked;
};
struct Fact {
  int type;
  std::map<int, Item> items;
};
struct Backend {
  std::shared_ptr<Fact> fact;
};
static size_t width(int type) {
  switch (type) {
    case TYPE_HANDLE:
    case TYPE_INT64:
    case TYPE_DOUBLE:
    case TYPE_VOID_PTR:
    case TYPE_DESCRIPTOR: return 8;
    case TYPE_BOOLEAN:
    case TYPE_CHAR: return 1;
    case TYPE_FRACTION: return 16;
    default: return 4;
  }
}
static Backend* B(const void* d) { return static_cast<Backend*>(const_cast<void*>(d)); }
EXPORT Status cudnnCreate(void** h) {
  *h = static_cast<void*>(new Handle);
  return 0;
}
EXPORT Status cudnnDestroy(void*) { return 0; }
EXPORT Status cudnnSetStream(void* h, cudaStream_t s) {
  H(h)->stream = s;
  return 0;
}
EXPORT Status cudnnGetStream(void* h, cudaStream_t* s) {
  *s = static_cast<cudaStream_t>(H(h)->stream);
  return 0;
}
EXPORT size_t cudnnGetVersion() { return 92000; }
EXPORT size_t cudnnGetCudartVersion() { return 13000; }
EXPORT Status cudnnGetProperty(libraryPropertyType t, int* v) {
  *v = t == MAJOR_VERSION ? 9 : t == MINOR_VERSION ? 20 : 0;
  return 0;
}
EXPORT const char* cudnnGetErrorString(Status s) {
  return s == 0 ? "CUDNN_STATUS_SUCCESS" : "CUDNN_STATUS_NOT_SUPPORTED";
}
EXPORT void cudnnGetLastErrorString(char* m, size_t n) {
  if (n) snprintf(m, n, "emulated");
}
EXPORT Status cudnnBackendCreateDescriptor(int t, void** d) {
  auto* b = new Backend;
  b->fact = std::make_shared<Fact>();
  b->fact->type = t;
  *d = b;
  return 0;
}
EXPORT Status cudnnBackendDestroyDescriptor(void* d) {
  delete B(d);
  return 0;
}
EXPORT Status cudnnBackendFinalize(void*) { return 0; }
EXPORT Status cudnnBackendSetAttribute(void* d, int a, int t, int64_t n, const void* v) {
  Item i;
  i.type = t;
  i.count = n;
  auto* p = static_cast<const uint8_t*>(v);
  i.raw.assign(p, p + size_t(n) * width(t));
  if (t == TYPE_DESCRIPTOR)
    for (int64_t k = 0; k < n; k++) i.linked.push_back(B(static_cast<void* const*>(v)[k])->fact);
  B(d)->fact->items[a] = std::move(i);
  return 0;
}
static std::shared_ptr<Fact> linked(const std::shared_ptr<Fact>& f, int a) {
  auto it = f->items.find(a);
  return it == f->items.end() || it->second.linked.empty() ? nullptr : it->second.linked[0];
}
static void link(Fact& f, int a, std::shared_ptr<Fact> to) {
  Item i;
  i.type = TYPE_DESCRIPTOR;
  i.count = 1;
  i.linked = {to};
  f.items[a] = i;
}
EXPORT Status cudnnBackendGetAttribute(void* d, int a, int t, int64_t asked, int64_t* count, void* v) {
  auto f = B(d)->fact;
  int64_t none;
  if (!count) count = &none;
  switch (int(a)) {
    case HEURISTIC_RESULTS:
      *count = 1;
      if (asked > 0 && v) {
        auto cfg = B(static_cast<void**>(v)[0])->fact;
        auto engine = std::make_shared<Fact>();
        engine->type = ENGINE_DESCRIPTOR;
        link(*engine, ENGINE_GRAPH, linked(f, HEURISTIC_GRAPH));
        link(*cfg, CONFIG_ENGINE, engine);
      }
      return 0;
    case ENGINE_NUMERICS:
    case ENGINE_BEHAVIOUR:
    case ENGINE_KNOBS:
    case CONFIG_KNOBS: *count = 0; return 0;
    case ENGINE_INDEX:
    case PLAN_WORKSPACE:
    case CONFIG_WORKSPACE:
      *count = 1;
      if (v && asked) *static_cast<int64_t*>(v) = 0;
      return 0;
    case GRAPH_ENGINES:
      *count = 1;
      if (v && asked) *static_cast<int64_t*>(v) = 1;
      return 0;
    default: break;
  }
  auto it = f->items.find(a);
  if (it == f->items.end()) {
    *count = 0;
    return 0;
  }
  *count = it->second.count;
  if (v && asked) {
    if (t == TYPE_DESCRIPTOR) {
      for (int64_t k = 0; k < std::min<int64_t>(asked, int64_t(it->second.linked.size())); k++)
        B(static_cast<void**>(v)[k])->fact = it->second.linked[size_t(k)];
    } else
      memcpy(v, it->second.raw.data(), std::min(it->second.raw.size(), size_t(asked) * width(t)));
  }
  return 0;
}
static std::vector<int64_t> dims(const std::shared_ptr<Fact>& t) {
  std::vector<int64_t> r;
  if (!t) return r;
  auto it = t->items.find(TENSOR_DIMENSIONS);
  if (it == t->items.end()) return r;
  r.resize(it->second.raw.size() / 8);
  memcpy(r.data(), it->second.raw.data(), r.size() * 8);
  return r;
}
EXPORT Status cudnnBackendExecute(void* h, void* plan, void*) {
  auto f = B(plan)->fact;
  double flop = 0;
  auto cfg = linked(f, PLAN_CONFIG), engine = cfg ? linked(cfg, CONFIG_ENGINE) : nullptr,
       graph = engine ? linked(engine, ENGINE_GRAPH) : nullptr;
  const char* name = "cudnn_generated_graph";
  if (graph)
    for (auto& op : graph->items[GRAPH_OPS].linked) {
      struct {
        int w, y;
        const char* name;
      } forms[] = {{FORWARD_W, FORWARD_Y, "sm90_xmma_fprop_implicit_gemm"},
                   {BACKWARD_DATA_W, BACKWARD_DATA_DY, "sm90_xmma_dgrad_implicit_gemm"},
                   {BACKWARD_FILTER_DW, BACKWARD_FILTER_DY, "sm90_xmma_wgrad_implicit_gemm"}};
      for (auto& form : forms) {
        auto w = dims(linked(op, form.w)), y = dims(linked(op, form.y));
        if (w.empty() || y.empty()) continue;
        double n = 2;
        for (auto v : y) n *= double(v);
        for (size_t i = 1; i < w.size(); i++) n *= double(w[i]);
        flop += n;
        name = form.name;
      }
    }
  launch_named(H(h)->stream, name, gemm_ns(flop / 2, 1, 1, 1), 132);
  return 0;
}
#define MAKES(NAME)                             \
  EXPORT int emu_##NAME(void** p) NAMED(#NAME); \
  int emu_##NAME(void** p) {                    \
    *p = calloc(1, 64);                         \
    return 0;                                   \
  }
#define FREES(NAME)                            \
  EXPORT int emu_##NAME(void* p) NAMED(#NAME); \
  int emu_##NAME(void* p) {                    \
    free(p);                                   \
    return 0;                                  \
  }
MAKES(cudnnCreateTensorDescriptor)
FREES(cudnnDestroyTensorDescriptor)
MAKES(cudnnCreateActivationDescriptor) FREES(cudnnDestroyActivationDescriptor)
    MAKES(cudnnCreateFilterDescriptor) FREES(cudnnDestroyFilterDescriptor) MAKES(cudnnCreateDropoutDescriptor)
        FREES(cudnnDestroyDropoutDescriptor) MAKES(cudnnCreateConvolutionDescriptor)
            FREES(cudnnDestroyConvolutionDescriptor) MAKES(cudnnCreateRNNDescriptor)
                FREES(cudnnDestroyRNNDescriptor) MAKES(cudnnCreatePoolingDescriptor)
#define FINE(NAME)                      \
  EXPORT int emu_##NAME() NAMED(#NAME); \
  int emu_##NAME() { return 0; }
                    FINE(cudnnSetTensorNdDescriptor) FINE(cudnnSetActivationDescriptor)
                        FINE(cudnnSetFilterNdDescriptor) EXPORT
    int emu_bnf(long, long, long, long, long, long, long, long, size_t* n)
        NAMED("cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize");
int emu_bnf(long, long, long, long, long, long, long, long, size_t* n) {
  *n = 0;
  return 0;
}
EXPORT int emu_bnb(long, long, long, long, long, long, long, long, long, long, size_t* n)
    NAMED("cudnnGetBatchNormalizationBackwardExWorkspaceSize");
int emu_bnb(long, long, long, long, long, long, long, long, long, long, size_t* n) {
  *n = 0;
  return 0;
}
EXPORT int emu_bnr(long, long, long, long, long, size_t* n)
    NAMED("cudnnGetBatchNormalizationTrainingExReserveSpaceSize");
int emu_bnr(long, long, long, long, long, size_t* n) {
  *n = 0;
  return 0;
}
VECTOR(cudnnBatchNormalizationForwardTrainingEx)
VECTOR(cudnnBatchNormalizationBackwardEx) VECTOR(cudnnBatchNormalizationForwardInference)
