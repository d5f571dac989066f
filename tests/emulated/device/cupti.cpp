// CUPTI's activity API, as Kineto uses it: records of calls and of what they put on the device.
#include "device.h"
#include <atomic>
#include <cstring>
#include <deque>
#include <sys/syscall.h>
#include <unistd.h>
#include <unordered_map>
#include <cupti.h>
using namespace emu;
#define EXPORT extern "C" __attribute__((visibility("default")))
namespace emu {
bool profiling = false;
}
static bool on[CUPTI_ACTIVITY_KIND_COUNT];
// From the first activity that is enabled to cuptiFinalize every call costs more (EMU_CUPTI_NS), as it is told of
// the real one. Kineto subscribes again after it has finalised; that alone costs nothing here.
static std::atomic<bool> attached{false};
static std::atomic<int> finalized{0};
static std::atomic<CUpti_CallbackFunc> subscriber{nullptr};
static void* subscriber_data;
static std::atomic<bool> called_back[2];  // of the runtime, of the driver
static void call_back(uint32_t cbid) {
  CUpti_CallbackFunc f = subscriber;
  bool driver = cbid >> 31;
  if (!f || !called_back[driver]) return;
  CUpti_CallbackData data{};
  data.callbackSite = CUPTI_API_EXIT;
  f(subscriber_data, driver ? CUPTI_CB_DOMAIN_DRIVER_API : CUPTI_CB_DOMAIN_RUNTIME_API, cbid & 0x7fffffffu,
    &data);
}
static std::atomic<uint32_t> next_correlation{1};
static thread_local uint32_t current = 0;
static thread_local std::vector<uint64_t> stacks[CUPTI_EXTERNAL_CORRELATION_KIND_SIZE];
static CUpti_BuffersCallbackRequestFunc request;
static CUpti_BuffersCallbackCompleteFunc complete;
static CUpti_TimestampCallbackFunc clock_of_user;
static uint64_t mono0, user0;
using Bytes = std::vector<uint8_t>;
static std::mutex& log_lock() {
  static auto* m = new std::mutex;
  return *m;
}
static std::deque<Bytes>& records() {
  static auto* d = new std::deque<Bytes>;
  return *d;
}
static uint8_t* buffer = nullptr;
static size_t buffer_size = 0;
// The user is asked for a buffer with the first record: Kineto flushes only what it has given.
static void want_buffer() {
  if (buffer || !request) return;
  size_t max = 0;
  request(&buffer, &buffer_size, &max);
}
template <class T>
static void put(const T& r) {
  Bytes b(sizeof(T));
  memcpy(b.data(), &r, sizeof(T));
  std::lock_guard<std::mutex> g(log_lock());
  want_buffer();
  records().push_back(std::move(b));
}
static uint32_t tid() {
  static thread_local uint32_t t = uint32_t(syscall(SYS_gettid));
  return t;
}

namespace emu {
uint32_t correlation() { return current; }
Api::Api(uint32_t id) : cbid(id), t0(0), corr(0), before(current), on(profiling) {
  if (attached) spin(config().cupti);
  if (!on) return;
  t0 = now();
  corr = current = next_correlation++;
  if (::on[CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION])
    for (int k = 0; k < CUPTI_EXTERNAL_CORRELATION_KIND_SIZE; k++)
      if (!stacks[k].empty()) {
        CUpti_ActivityExternalCorrelation r{};
        r.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
        r.externalKind = CUpti_ExternalCorrelationKind(k);
        r.externalId = stacks[k].back();
        r.correlationId = corr;
        put(r);
      }
}
Api::~Api() {
  call_back(cbid);
  if (!on) return;
  current = before;
  auto kind = cbid >> 31 ? CUPTI_ACTIVITY_KIND_DRIVER : CUPTI_ACTIVITY_KIND_RUNTIME;
  if (!::on[kind]) return;
  CUpti_ActivityAPI r{};
  r.kind = kind;
  r.cbid = cbid & 0x7fffffffu;
  r.start = t0;
  r.end = now();
  r.processId = uint32_t(getpid());
  r.threadId = tid();
  r.correlationId = corr;
  put(r);
}
bool profiled(Kind kind) {
  if (!profiling) return false;
  switch (kind) {
    case Kind::kernel: return on[CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL];
    case Kind::memcpy_: return on[CUPTI_ACTIVITY_KIND_MEMCPY];
    case Kind::memset_: return on[CUPTI_ACTIVITY_KIND_MEMSET];
    default: return false;
  }
}
void profile_op(const Op& op, Stream* s, Ns start, Ns end, uint32_t correlation, uint32_t graph, uint64_t node) {
  if (op.kind == Kind::kernel) {
    CUpti_ActivityKernel10 r{};
    r.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
    r.start = start;
    r.end = r.completed = end;
    r.deviceId = uint32_t(s->dev);
    r.contextId = 1;
    r.streamId = s->id;
    r.gridX = int(op.grid[0]);
    r.gridY = int(op.grid[1]);
    r.gridZ = int(op.grid[2]);
    r.blockX = int(op.block[0]);
    r.blockY = int(op.block[1]);
    r.blockZ = int(op.block[2]);
    r.dynamicSharedMemory = int(op.smem);
    r.registersPerThread = uint16_t(op.regs);
    r.correlationId = correlation;
    r.name = op.name;
    r.graphId = graph;
    r.graphNodeId = node;
    r.gridId = int64_t(next_id());
    put(r);
  } else if (op.kind == Kind::memcpy_) {
    CUpti_ActivityMemcpy6 r{};
    r.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
    r.copyKind = op.copy_kind;
    r.bytes = op.bytes;
    r.start = start;
    r.end = end;
    r.deviceId = uint32_t(s->dev);
    r.contextId = 1;
    r.streamId = s->id;
    bool to = op.copy_kind == 1 || op.copy_kind == 8, from = op.copy_kind == 2 || op.copy_kind == 8;
    r.srcKind = from ? 3 : 2;
    r.dstKind = to ? 3 : 2;
    r.correlationId = correlation;
    r.graphId = graph;
    r.graphNodeId = node;
    put(r);
  } else if (op.kind == Kind::memset_) {
    CUpti_ActivityMemset4 r{};
    r.kind = CUPTI_ACTIVITY_KIND_MEMSET;
    r.bytes = op.bytes;
    r.start = start;
    r.end = end;
    r.deviceId = uint32_t(s->dev);
    r.contextId = 1;
    r.streamId = s->id;
    r.memoryKind = 3;
    r.correlationId = correlation;
    r.graphId = graph;
    r.graphNodeId = node;
    put(r);
  }
}
void profile_sync(int type, Stream* s, Event* e, Ns start, Ns end) {
  if (!on[CUPTI_ACTIVITY_KIND_SYNCHRONIZATION]) return;
  CUpti_ActivitySynchronization2 r{};
  r.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  r.type = CUpti_ActivitySynchronizationType(type);
  r.start = start;
  r.end = end;
  r.correlationId = current;
  r.contextId = 1;
  r.streamId = s ? s->id : CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  r.cudaEventId = e ? e->id : CUPTI_SYNCHRONIZATION_INVALID_VALUE;
  put(r);
}
}  // namespace emu

// Record times are monotonic; the user's clock is met at two points and drawn through them.
static void at_user_clock(Bytes& b, double rate) {
  auto conv = [&](uint64_t& t) {
    if (t) t = clock_of_user ? user0 + uint64_t(int64_t(double(int64_t(t - mono0)) * rate)) : t;
  };
  auto* a = reinterpret_cast<CUpti_Activity*>(b.data());
  switch (a->kind) {
#define TIMES(KIND, TYPE)                        \
  case KIND: {                                   \
    auto* r = reinterpret_cast<TYPE*>(b.data()); \
    uint64_t s = r->start, e = r->end;           \
    conv(s);                                     \
    conv(e);                                     \
    r->start = s;                                \
    r->end = e;                                  \
    break;                                       \
  }
    TIMES(CUPTI_ACTIVITY_KIND_RUNTIME, CUpti_ActivityAPI)
    TIMES(CUPTI_ACTIVITY_KIND_DRIVER, CUpti_ActivityAPI)
    TIMES(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUpti_ActivityKernel10)
    TIMES(CUPTI_ACTIVITY_KIND_MEMCPY, CUpti_ActivityMemcpy6)
    TIMES(CUPTI_ACTIVITY_KIND_MEMSET, CUpti_ActivityMemset4)
    TIMES(CUPTI_ACTIVITY_KIND_SYNCHRONIZATION, CUpti_ActivitySynchronization2) default : break;
  }
}
static size_t size_of(CUpti_ActivityKind k) {
  switch (k) {
    case CUPTI_ACTIVITY_KIND_RUNTIME:
    case CUPTI_ACTIVITY_KIND_DRIVER: return sizeof(CUpti_ActivityAPI);
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_SYNCHRONIZATION: return sizeof(CUpti_ActivitySynchronization2);
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return sizeof(CUpti_ActivityExternalCorrelation);
    default: return 0;
  }
}
static uint64_t user_now() { return clock_of_user ? clock_of_user() : now(); }
static void calibrate() {
  mono0 = now();
  user0 = user_now();
}
EXPORT CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc r,
                                                  CUpti_BuffersCallbackCompleteFunc c) {
  request = r;
  complete = c;
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc f) {
  clock_of_user = f;
  calibrate();
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiGetTimestamp(uint64_t* t) {
  *t = user_now();
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityEnable(CUpti_ActivityKind k) {
  if (!profiling) calibrate();
  attached = true;
  on[k] = true;
  profiling = true;
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityDisable(CUpti_ActivityKind k) {
  on[k] = false;
  bool any = false;
  for (bool b : on) any |= b;
  profiling = any;
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityFlushAll(uint32_t) {
  tell_late();  // what other ranks have not come to yet is told at a later flush
  std::deque<Bytes> all;
  uint8_t* buf;
  size_t size, used = 0, max = 0;
  {
    std::lock_guard<std::mutex> g(log_lock());
    all.swap(records());
    buf = buffer;
    size = buffer_size;
    buffer = nullptr;
  }
  if (!buf || !request) return CUPTI_SUCCESS;
  uint64_t m1 = now(), u1 = user_now();
  double rate = m1 > mono0 + 1000 ? double(u1 - user0) / double(m1 - mono0) : 1;
  for (auto& b : all) {
    at_user_clock(b, rate);
    if (used + b.size() > size) {
      complete(nullptr, 0, buf, size, used);
      buf = nullptr;
      request(&buf, &size, &max);
      used = 0;
      if (!buf) return CUPTI_SUCCESS;
    }
    memcpy(buf + used, b.data(), b.size());
    used += b.size();
  }
  complete(nullptr, 0, buf, size, used);
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityGetNextRecord(uint8_t* buf, size_t valid, CUpti_Activity** r) {
  uint8_t* next = *r ? reinterpret_cast<uint8_t*>(*r) + size_of((*r)->kind) : buf;
  if (next >= buf + valid) return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *r = reinterpret_cast<CUpti_Activity*>(next);
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind k, uint64_t id) {
  stacks[k].push_back(id);
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind k, uint64_t* last) {
  if (stacks[k].empty()) return CUPTI_ERROR_QUEUE_EMPTY;
  if (last) *last = stacks[k].back();
  stacks[k].pop_back();
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t* n) {
  *n = 0;
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivitySetAttribute(CUpti_ActivityAttribute, size_t*, void*) {
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiActivityEnableRuntimeApi(uint32_t, uint8_t) { return CUPTI_SUCCESS; }
EXPORT CUptiResult cuptiActivityEnableDriverApi(uint32_t, uint8_t) { return CUPTI_SUCCESS; }
EXPORT CUptiResult cuptiActivityEnableCudaEventDeviceTimestamps(uint8_t) { return CUPTI_SUCCESS; }
EXPORT CUptiResult cuptiSubscribe(CUpti_SubscriberHandle* s, CUpti_CallbackFunc f, void* data) {
  if (subscriber) return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
  subscriber_data = data;
  subscriber = f;
  *s = reinterpret_cast<CUpti_SubscriberHandle>(8);
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiUnsubscribe(CUpti_SubscriberHandle) {
  subscriber = nullptr;
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiEnableCallback(uint32_t, CUpti_SubscriberHandle, CUpti_CallbackDomain,
                                       CUpti_CallbackId) {
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiEnableDomain(uint32_t enable, CUpti_SubscriberHandle, CUpti_CallbackDomain domain) {
  called_back[domain == CUPTI_CB_DOMAIN_DRIVER_API] = enable != 0;
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiFinalize() {
  subscriber = nullptr;
  called_back[0] = called_back[1] = false;
  attached = false;
  finalized++;
  return CUPTI_SUCCESS;
}
EXPORT int emu_cupti_attached() { return attached; }
EXPORT int emu_cupti_finalized() { return finalized; }
EXPORT CUptiResult cuptiGetVersion(uint32_t* v) {
  *v = CUPTI_API_VERSION;
  return CUPTI_SUCCESS;
}
EXPORT CUptiResult cuptiGetResultString(CUptiResult r, const char** s) {
  *s = r == CUPTI_SUCCESS ? "CUPTI_SUCCESS" : "CUPTI_ERROR";
  return CUPTI_SUCCESS;
}
static const std::unordered_map<uint32_t, const char*>& names() {
  static auto* m = new std::unordered_map<uint32_t, const char*>{
#include "call_names.inc"
  };
  return *m;
}
EXPORT CUptiResult cuptiGetCallbackName(CUpti_CallbackDomain d, uint32_t cbid, const char** n) {
  auto it = names().find(cbid | (d == CUPTI_CB_DOMAIN_DRIVER_API ? 0x80000000u : 0u));
  if (it == names().end()) return CUPTI_ERROR_INVALID_PARAMETER;
  *n = it->second;
  return CUPTI_SUCCESS;
}
