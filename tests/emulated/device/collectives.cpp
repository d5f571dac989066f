// NCCL: communicators of processes on this machine, collectives, and messages between two ranks.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <random>
#include "device.h"
using namespace emu;
#define EXPORT extern "C" __attribute__((visibility("default")))

// What is needed of nccl.h: numbers that callers see
enum Result { SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 };
constexpr int VERSION = 22907, NO_COLOR = -1;
enum Reduction { SUM, PROD, MAX, MIN, AVG };
static size_t width(int type) {
  static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return type >= 0 && type < 12 ? bytes[type] : 1;
}
static const char* type_name(int type) {
  static const char* names[] = {"i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};
  return type >= 0 && type < 12 ? names[type] : "i8";
}
static const char* reduction_name(int op) {
  static const char* names[] = {"Sum", "Prod", "MinMax", "MinMax", "Sum"};
  return op >= 0 && op < 5 ? names[op] : "PreMulSum";
}
struct UniqueId {
  char name[128];
};
struct Comm {
  std::shared_ptr<Board> board;
  std::string name;
  int rank, ranks;
  uint64_t splits = 0;
  std::vector<uint64_t> met, gave;  // on each lane: meetings, and those of them whose contents moved
  Time last;                        // its work runs in order, in whatever streams
};

// The contents of a collective: who gives what, and what is made of it
constexpr size_t MOST_REDUCED = 16 << 10;
struct Contents {
  std::vector<int> givers;
  const char* from = nullptr;
  size_t gives = 0;
  char* to = nullptr;
  size_t gets = 0;
  std::function<void(const std::vector<const char*>&)> put;  // null: this rank gets nothing
};
struct Part {  // one call
  Comm* comm;
  void* stream;
  const char* name;
  Ns ns;
  uint64_t lane;
  Contents contents;
};
static thread_local int depth = 0;
static thread_local std::vector<Part> parts;

static void move(const Part& p, const Time& end) {
  const Contents& c = p.contents;
  if (c.givers.empty()) return;
  Comm* comm = p.comm;
  bool gives = std::count(c.givers.begin(), c.givers.end(), comm->rank) > 0;
  auto lane = p.lane, number = comm->gave[p.lane]++;
  auto board = comm->board;
  int rank = comm->rank;
  if (gives) {
    Effect giving;
    giving.reads = {{c.from, c.gives}};
    giving.attempt = [=] { return give(*board, lane, number, rank, c.from, c.gives); };
    take_effect(std::move(giving));
  }
  bool reader = !lane || !gives || lane == lane_between(*board, rank, rank);
  if (!reader) return;
  Effect getting;
  if (c.put) getting.writes = {{c.to, c.gets}};
  getting.due = end;
  getting.attempt = [=] {
    std::vector<const char*> all;
    for (int giver : c.givers) {
      all.push_back(given(*board, lane, number, giver));
      if (!all.back()) return false;
    }
    if (c.put) c.put(all);
    taken(*board, lane, number, rank);
    return true;
  };
  take_effect(std::move(getting));
}
// The parts of a group of one communicator are one kernel, which ends when all it meets have come.
static void launch(Comm* comm, const std::vector<Part>& all) {
  Api api(430);  // cudaLaunchKernelExC_v11060
  spin(config().collective);
  Stream* s = stream_of(all[0].stream);
  Op op;
  op.name = all[0].name;
  op.grid[0] = 24;
  op.block[0] = 544;
  op.regs = 96;
  std::vector<std::pair<uint64_t, Ns>> lanes;
  for (auto& p : all) {
    auto same = std::find_if(lanes.begin(), lanes.end(), [&](auto& l) { return l.first == p.lane && !p.lane; });
    if (same == lanes.end())
      lanes.emplace_back(p.lane, p.ns);
    else
      same->second += p.ns;
    op.ns += p.ns;
  }
  if (Time before = tail_of(s); !settle(before) && before.open.size() >= MOST_TERMS) wait_until(before);
  bool captured = s->capture;
  Time end = enqueue(s, std::move(op), comm->last, [&](const Time& start) {
    Time ends;
    for (auto& [lane, ns] : lanes)
      ends = later(ends, meet(comm->board, lane, comm->met[lane]++, comm->rank, start, ns));
    return ends;
  });
  if (captured) return;  // in a graph it waits for nobody and moves nothing
  comm->last = end;
  for (auto& p : all) move(p, end);
}
static void flush() {
  std::vector<Part> all;
  all.swap(parts);
  std::vector<Comm*> comms;
  for (auto& p : all)
    if (std::find(comms.begin(), comms.end(), p.comm) == comms.end()) comms.push_back(p.comm);
  for (Comm* comm : comms) {
    std::vector<Part> own;
    for (auto& p : all)
      if (p.comm == comm) own.push_back(std::move(p));
    launch(comm, own);
  }
}
static int call(Part&& p) {
  parts.push_back(std::move(p));
  if (!depth) flush();
  return SUCCESS;
}
static Ns ring_ns(const char* name, double bytes) {
  return named_ns(name, config().collective + Ns(bytes / config().nccl_gbps));
}
static const char* kernel(const std::string& what) {
  return intern("ncclDevKernel_" + what + "(ncclDevKernelArgsStorage<4096ul>)");
}
static std::vector<int> everyone(const Comm* c) {
  std::vector<int> all;
  for (int r = 0; r < c->ranks; r++) all.push_back(r);
  return all;
}
static const char* bytes_of(const void* p) { return static_cast<const char*>(p); }
static char* bytes_of(void* p) { return static_cast<char*>(p); }

template <class T>
static void reduce_as(char* to, const std::vector<const char*>& all, size_t at, size_t count, int op) {
  auto* out = reinterpret_cast<T*>(to);
  for (size_t i = 0; i < count; i++) {
    T v = reinterpret_cast<const T*>(all[0] + at)[i];
    for (size_t r = 1; r < all.size(); r++) {
      T w = reinterpret_cast<const T*>(all[r] + at)[i];
      v = op == PROD ? T(v * w) : op == MAX ? std::max(v, w) : op == MIN ? std::min(v, w) : T(v + w);
    }
    out[i] = op == AVG ? T(v / T(all.size())) : v;
  }
}
static void reduce(char* to, const std::vector<const char*>& all, size_t at, size_t count, int type, int op) {
  switch (type) {
    case 0: return reduce_as<int8_t>(to, all, at, count, op);
    case 1: return reduce_as<uint8_t>(to, all, at, count, op);
    case 2: return reduce_as<int32_t>(to, all, at, count, op);
    case 3: return reduce_as<uint32_t>(to, all, at, count, op);
    case 4: return reduce_as<int64_t>(to, all, at, count, op);
    case 5: return reduce_as<uint64_t>(to, all, at, count, op);
    case 7: return reduce_as<float>(to, all, at, count, op);
    case 8: return reduce_as<double>(to, all, at, count, op);
    default: break;  // half precision stays as it was
  }
}
// Contents of `bytes` of each giver, where they are few enough to be moved
static Contents moved(std::vector<int> givers, const void* from, size_t bytes, size_t most, void* to, size_t gets,
                      std::function<void(const std::vector<const char*>&)> put) {
  if (!bytes || bytes > most) return {};
  return {std::move(givers), bytes_of(from), bytes, bytes_of(to), gets, std::move(put)};
}

// Collectives
EXPORT int ncclAllReduce(const void* from, void* to, size_t n, int type, int op, Comm* c, void* stream) {
  size_t bytes = n * width(type);
  const char* name = kernel(std::string("AllReduce_") + reduction_name(op) + "_" + type_name(type) + "_RING_LL");
  auto put = [=](auto& all) { reduce(bytes_of(to), all, 0, n, type, op); };
  return call({c, stream, name, ring_ns(name, 2.0 * double(bytes) * (c->ranks - 1) / c->ranks), 0,
               moved(everyone(c), from, bytes, MOST_REDUCED, to, bytes, put)});
}
EXPORT int ncclReduce(const void* from, void* to, size_t n, int type, int op, int root, Comm* c, void* stream) {
  size_t bytes = n * width(type);
  const char* name = kernel(std::string("Reduce_") + reduction_name(op) + "_" + type_name(type) + "_RING_LL");
  bool gets = c->rank == root;
  auto put = [=](auto& all) {
    if (gets) reduce(bytes_of(to), all, 0, n, type, op);
  };
  return call({c, stream, name, ring_ns(name, double(bytes)), 0,
               moved(everyone(c), from, bytes, MOST_REDUCED, to, gets ? bytes : 0, put)});
}
EXPORT int ncclReduceScatter(const void* from, void* to, size_t n, int type, int op, Comm* c, void* stream) {
  size_t own = n * width(type), bytes = own * size_t(c->ranks);
  const char* name = kernel(std::string("ReduceScatter_") + reduction_name(op) + "_" + type_name(type) + "_RING_LL");
  size_t at = own * size_t(c->rank);
  auto put = [=](auto& all) { reduce(bytes_of(to), all, at, n, type, op); };
  return call({c, stream, name, ring_ns(name, double(bytes - own)), 0,
               moved(everyone(c), from, bytes, MOST_REDUCED, to, own, put)});
}
EXPORT int ncclAllGather(const void* from, void* to, size_t n, int type, Comm* c, void* stream) {
  size_t bytes = n * width(type), whole = bytes * size_t(c->ranks);
  const char* name = kernel("AllGather_RING_LL");
  auto put = [=](auto& all) {
    for (size_t r = 0; r < all.size(); r++) memcpy(bytes_of(to) + r * bytes, all[r], bytes);
  };
  return call({c, stream, name, ring_ns(name, double(whole - bytes)), 0,
               moved(everyone(c), from, bytes, MOST_BYTES, to, whole, put)});
}
EXPORT int ncclBroadcast(const void* from, void* to, size_t n, int type, int root, Comm* c, void* stream) {
  size_t bytes = n * width(type);
  const char* name = kernel("Broadcast_RING_LL");
  auto put = [=](auto& all) { memcpy(to, all[0], bytes); };
  return call({c, stream, name, ring_ns(name, double(bytes)), 0,
               moved({root}, from, bytes, MOST_BYTES, to, bytes, put)});
}
EXPORT int ncclBcast(void* buffer, size_t n, int type, int root, Comm* c, void* stream) {
  return ncclBroadcast(buffer, buffer, n, type, root, c, stream);
}
EXPORT int ncclAlltoAll(const void* from, void* to, size_t n, int type, Comm* c, void* stream) {
  size_t bytes = n * width(type), whole = bytes * size_t(c->ranks);
  const char* name = kernel("SendRecv");
  size_t at = size_t(c->rank) * bytes;
  auto put = [=](auto& all) {
    for (size_t r = 0; r < all.size(); r++) memcpy(bytes_of(to) + r * bytes, all[r] + at, bytes);
  };
  return call({c, stream, name, ring_ns(name, double(whole - bytes)), 0,
               moved(everyone(c), from, whole, MOST_BYTES, to, whole, put)});
}
// Between two ranks: both wait for the other, however little it is
EXPORT int ncclSend(const void* from, size_t n, int type, int peer, Comm* c, void* stream) {
  size_t bytes = n * width(type);
  const char* name = kernel("SendRecv");
  return call({c, stream, name, ring_ns(name, double(bytes)), lane_between(*c->board, c->rank, peer),
               moved({c->rank}, from, bytes, MOST_BYTES, nullptr, 0, nullptr)});
}
EXPORT int ncclRecv(void* to, size_t n, int type, int peer, Comm* c, void* stream) {
  size_t bytes = n * width(type);
  const char* name = kernel("SendRecv");
  auto put = [=](auto& all) { memcpy(to, all[0], bytes); };
  return call({c, stream, name, ring_ns(name, double(bytes)), lane_between(*c->board, peer, c->rank),
               moved({peer}, nullptr, bytes, MOST_BYTES, to, bytes, put)});
}
EXPORT int ncclGroupStart() {
  depth++;
  return SUCCESS;
}
EXPORT int ncclGroupEnd() {
  if (depth && !--depth) flush();
  return SUCCESS;
}
EXPORT int ncclGroupSimulateEnd(void*) { return ncclGroupEnd(); }
EXPORT int ncclRedOpCreatePreMulSum(int* op, void*, int, int, Comm*) {
  *op = AVG + 1;
  return SUCCESS;
}
EXPORT int ncclRedOpDestroy(int, Comm*) { return SUCCESS; }

// Communicators
EXPORT int ncclGetVersion(int* v) {
  *v = VERSION;
  return SUCCESS;
}
EXPORT const char* ncclGetErrorString(int r) {
  return r == SUCCESS ? "no error" : r == INVALID_USAGE ? "invalid usage" : "unhandled system error";
}
EXPORT const char* ncclGetLastError(Comm*) { return ""; }
EXPORT int ncclGetUniqueId(UniqueId* id) {
  std::random_device random;
  memset(id, 0, sizeof *id);
  snprintf(id->name, sizeof id->name, "%08x%08x", random(), random());
  return SUCCESS;
}
static int joined(Comm** out, const std::string& name, int ranks, int rank) {
  if (ranks < 1 || ranks > MOST_RANKS || rank < 0 || rank >= ranks) return INVALID_ARGUMENT;
  auto board = open_board(name, ranks);
  if (!board) return SYSTEM_ERROR;
  auto* c = new Comm{board, name, rank, ranks};
  c->met.resize(1 + size_t(ranks) * size_t(ranks));
  c->gave.resize(c->met.size());
  join(*board);
  *out = c;
  return SUCCESS;
}
EXPORT int ncclCommInitRank(Comm** out, int ranks, UniqueId id, int rank) { return joined(out, id.name, ranks, rank); }
EXPORT int ncclCommInitRankConfig(Comm** out, int ranks, UniqueId id, int rank, void*) {
  return joined(out, id.name, ranks, rank);
}
EXPORT int ncclCommInitRankScalable(Comm** out, int ranks, int rank, int, UniqueId* ids, void*) {
  return joined(out, ids[0].name, ranks, rank);
}
EXPORT int ncclCommSplit(Comm* c, int color, int key, Comm** out, void*) {
  auto number = c->splits++;
  auto all = exchange(*c->board, number, c->rank, color, key);
  *out = nullptr;
  if (color == NO_COLOR) return SUCCESS;
  std::vector<std::pair<int, int>> members;  // key, rank
  for (int r = 0; r < c->ranks; r++)
    if (all[size_t(r)].first == color) members.emplace_back(all[size_t(r)].second, r);
  std::sort(members.begin(), members.end());
  auto own = std::find(members.begin(), members.end(), std::make_pair(key, c->rank));
  char name[20];
  size_t hash = std::hash<std::string>()(c->name + "." + std::to_string(number) + "." + std::to_string(color));
  snprintf(name, sizeof name, "%016zx", hash);
  return joined(out, name, int(members.size()), int(own - members.begin()));
}
EXPORT int ncclCommFinalize(Comm*) { return SUCCESS; }
EXPORT int ncclCommDestroy(Comm* c) {
  wait_until(c->last);
  leave(*c->board);
  delete c;
  return SUCCESS;
}
EXPORT int ncclCommAbort(Comm* c) {
  give_up(*c->board);
  delete c;
  return SUCCESS;
}
EXPORT int ncclCommGetAsyncError(Comm*, int* error) {
  *error = SUCCESS;
  return SUCCESS;
}
EXPORT int ncclCommCount(const Comm* c, int* n) {
  *n = c->ranks;
  return SUCCESS;
}
EXPORT int ncclCommUserRank(const Comm* c, int* rank) {
  *rank = c->rank;
  return SUCCESS;
}
EXPORT int ncclCommRegister(Comm*, void*, size_t, void** handle) {
  *handle = nullptr;
  return SUCCESS;
}
EXPORT int ncclCommDeregister(Comm*, void*) { return SUCCESS; }
EXPORT int ncclMemAlloc(void** p, size_t n) { return (*p = dev_alloc(n)) ? SUCCESS : SYSTEM_ERROR; }
EXPORT int ncclMemFree(void* p) { return dev_free(p) ? SUCCESS : INVALID_ARGUMENT; }
