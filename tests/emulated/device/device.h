// Emulated CUDA device: one timeline per stream, kernels that only take time. See README.md.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>
#include "times.h"

namespace emu {

void spin(Ns ns);  // host work of a call

struct Config {
  int devices;
  uint64_t mem;            // bytes a device
  Ns launch, sync, alloc;  // host cost of a launch, of a synchronisation, of cudaMalloc/cudaFree
  Ns latency;              // from the launch to the earliest start on the device
  Ns cupti;                // more host cost of a call while CUPTI is attached
  Ns kernel;               // least duration of a kernel
  Ns collective;           // host cost of a collective, and least duration of one
  double per_thread;       // ns a thread of a kernel that no rule names
  double tflops, gbps, nccl_gbps;  // matrix rate, copy rate, rate of a ring
  int depth;               // launches a stream takes before the host blocks
  bool spin, trace;        // spin in synchronising calls; tell every unimplemented call once
  std::string name;
  int sms, major, minor;
};
const Config& config();

struct Kernel {
  const char* name;
  double rule_ns;
  int rules_seen;
  bool sleeps;
  int regs;
  int fills = -1;
};
enum class Kind : uint8_t { kernel, memcpy_, memset_, empty };
struct Op {
  Kind kind = Kind::kernel;
  const char* name = "";
  Ns ns = 0;
  unsigned grid[3] = {1, 1, 1}, block[3] = {1, 1, 1};
  unsigned smem = 0, regs = 0;
  uint64_t bytes = 0;
  uint8_t copy_kind = 0;         // CUpti_ActivityMemcpyKind
  uint64_t node = 0;             // of a graph
  std::function<void()> replay;  // what a graph's replay really does (copies)
};

struct Node {
  Op op;
  std::vector<Node*> deps;
  Ns rel_start = 0, rel_end = 0;
  uint64_t id = 0;
};
struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  uint32_t id = 0;
};
struct GraphExec {
  std::vector<std::shared_ptr<Node>> nodes;
  Ns length = 0;
  uint32_t id = 0;
};
struct Capture {
  Graph* graph;
  int mode;
  unsigned long long id;
  bool broken = false;
  std::thread::id owner = std::this_thread::get_id();
};
struct Stream {
  int dev = 0;
  unsigned flags = 0;
  int priority = 0;
  uint32_t id = 0;
  Time tail;
  uint64_t launched = 0;
  std::vector<Time> ring;
  Capture* capture = nullptr;
  bool origin = false;
  std::vector<Node*> deps;
};
struct Event {
  unsigned flags = 0;
  Time at;
  bool recorded = false;
  uint32_t id = 0;
  Capture* capture = nullptr;
  unsigned long long capture_id = 0;
  std::vector<Node*> deps;
  Stream* stream = nullptr;
};

int& device();                          // this thread's
Stream* stream_of(const void* handle);  // a handle of the runtime or of the driver
Stream* new_stream(unsigned flags, int priority);
void drop_stream(Stream*);
// Puts work on a stream (or into the capture it belongs to); returns when it will have ended.
Time enqueue(Stream*, Op&&);
// The same for work that waits for other ranks: `ends` says by its start when it ends.
Time enqueue(Stream*, Op&&, const Time& after, const std::function<Time(const Time&)>& ends);
Time enqueue_graph(Stream*, GraphExec*);
Time tail_of(Stream*);  // with what the default stream waits for
Time device_tail(int dev);
void tell_late();  // CUPTI and NVML of work whose times were not known at its launch
void record(Event*, Stream*);
void begun(Capture*);
bool break_captures(bool of_others);                 // what an unsafe call of this thread does; false: none forbids it
void end_captures(Capture*);                         // and takes out every stream that had joined it
bool live(const Event*);                             // recorded in a capture that has not ended
bool wait_event(Stream*, Event*);                    // false: not allowed in a capture
std::function<void()> effect(Kernel*, void** args);  // what little a kernel really does, in order; mostly nothing
void run_at(Time t, std::function<void()>);            // host functions
Ns named_ns(const char* name, Ns otherwise);  // by the rules, or else that
Ns kernel_ns(Kernel*, const unsigned grid[3], const unsigned block[3], void** args);
Ns copy_ns(uint64_t bytes);
Ns gemm_ns(double m, double n, double k, double batch);
void launch_named(const void* stream, const char* name, Ns ns, double tiles = 1);  // a library's kernel
const char* intern(const std::string&);

void* dev_alloc(uint64_t);  // null: out of memory
bool dev_free(void*);
uint64_t dev_used(int dev);
int dev_of(const void*);  // -1: not device memory
bool dev_range(const void*, void** base, size_t* size);
std::mutex& lock();
uint32_t next_id();

// CUPTI's side
extern bool profiling;
struct Api {
  uint32_t cbid;
  Ns t0;
  uint32_t corr;
  uint32_t before;
  bool on;
  Api(uint32_t cbid);
  ~Api();
};
uint32_t correlation();
bool profiled(Kind);  // now
void profile_op(const Op&, Stream*, Ns start, Ns end, uint32_t correlation, uint32_t graph, uint64_t node);
void profile_sync(int type, Stream*, Event*, Ns start, Ns end);
void unimplemented(const char*);

// shared with other processes: what NVML tells
void publish_busy(int dev, Ns start, Ns end);
void publish_mem(int dev, uint64_t used);
}  // namespace emu
