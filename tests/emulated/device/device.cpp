#include "device.h"
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <queue>
#include <set>
#include <sys/mman.h>
#include <sys/stat.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <unordered_set>
#include "published.h"

namespace emu {

Ns now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Ns(t.tv_sec) * 1000000000ull + Ns(t.tv_nsec);
}
void spin(Ns ns) {
  if (ns) {
    Ns end = now() + ns;
    while (now() < end) {}
  }
}

static double num(const char* name, double otherwise) {
  const char* v = getenv(name);
  return v && *v ? atof(v) : otherwise;
}
static std::string text(const char* name, const char* otherwise) {
  const char* v = getenv(name);
  return v && *v ? v : otherwise;
}
const Config& config() {
  static const Config c = [] {
    Config c;
    c.devices = int(num("EMU_DEVICES", 1));
    c.mem = uint64_t(num("EMU_MEM_GB", 80) * (1ull << 30));
    c.launch = Ns(num("EMU_LAUNCH_NS", 1800));
    c.sync = Ns(num("EMU_SYNC_NS", 4000));
    c.cupti = Ns(num("EMU_CUPTI_NS", 400));
    c.alloc = Ns(num("EMU_ALLOC_NS", 100000));
    c.latency = Ns(num("EMU_LATENCY_NS", 3000));
    c.kernel = Ns(num("EMU_KERNEL_NS", 2000));
    c.per_thread = num("EMU_THREAD_NS", 0.012);
    c.tflops = num("EMU_TFLOPS", 300);
    c.gbps = num("EMU_COPY_GBPS", 25);
    c.collective = Ns(num("EMU_NCCL_NS", 10000));
    c.nccl_gbps = num("EMU_NCCL_GBPS", 150);
    c.depth = int(num("EMU_DEPTH", 1024));
    c.spin = num("EMU_SPIN", 0) != 0;
    c.trace = num("EMU_TRACE", 0) != 0;
    c.name = text("EMU_NAME", "Emulated GPU");
    c.sms = int(num("EMU_SMS", 132));
    int cc = int(num("EMU_CC", 90));
    c.major = cc / 10;
    c.minor = cc % 10;
    return c;
  }();
  return c;
}

std::mutex& lock() {
  static std::mutex* m = new std::mutex;
  return *m;
}
using Guard = std::lock_guard<std::mutex>;
uint32_t next_id() {
  static std::atomic<uint32_t> n{1};
  return n++;
}
int& device() {
  static thread_local int d = 0;
  return d;
}

const char* intern(const std::string& s) {
  static auto* all = new std::set<std::string>;
  static auto* m = new std::mutex;
  Guard g(*m);
  return all->insert(s).first->c_str();
}

// Streams
struct Device {
  Stream null_stream;
  std::set<Stream*> streams;
};
static Device& dev_state(int d) {
  static Device* all = [] {
    auto* a = new Device[16];
    for (int i = 0; i < 16; i++) {
      a[i].null_stream.dev = i;
      a[i].null_stream.id = 7;
    }
    return a;
  }();
  return all[d];
}
Stream* stream_of(const void* h) {
  return uintptr_t(h) <= 2 ? &dev_state(device()).null_stream : static_cast<Stream*>(const_cast<void*>(h));
}
Stream* new_stream(unsigned flags, int priority) {
  auto* s = new Stream;
  s->dev = device();
  s->flags = flags;
  s->priority = priority;
  Guard g(lock());
  static uint32_t ids = 12;
  s->id = ids++;
  dev_state(s->dev).streams.insert(s);
  return s;
}
void drop_stream(Stream* s) {
  Guard g(lock());
  dev_state(s->dev).streams.erase(s); /* kept: its end may still be asked for */
}

static Time tail_locked(Stream* s) {
  Device& d = dev_state(s->dev);
  settle(s->tail);
  Time t = s->tail;
  if (s == &d.null_stream) {
    for (Stream* o : d.streams)
      if (!(o->flags & 1)) t = later(std::move(t), o->tail);
  } else if (!(s->flags & 1))
    t = later(std::move(t), d.null_stream.tail);
  return t;
}
Time tail_of(Stream* s) {
  Guard g(lock());
  return tail_locked(s);
}
Time device_tail(int dev) {
  Guard g(lock());
  Device& d = dev_state(dev);
  Time t = d.null_stream.tail;
  for (Stream* o : d.streams) t = later(std::move(t), o->tail);
  return t;
}

// A launch into a full queue blocks the host until the oldest of the queue has ended.
static void room(Stream* s) {
  size_t depth = size_t(config().depth);
  Time until;
  {
    Guard g(lock());
    if (s->ring.size() < depth) s->ring.resize(depth);
    until = s->ring[s->launched % depth];
  }
  if (!over(until)) wait_until(until);
}

static Node* add_node(Capture* c, Op&& op, std::vector<Node*> deps) {
  auto n = std::make_unique<Node>();
  n->op = std::move(op);
  n->deps = std::move(deps);
  n->id = next_id();
  Node* p = n.get();
  c->graph->nodes.push_back(std::move(n));
  return p;
}

// Work of which CUPTI and NVML are told once its times are known.
struct Late {
  Op op;
  Stream* stream;
  Time start, end;
  uint32_t correlation, graph;
  bool busy, profiled;
};
static std::vector<Late>& late() {
  static auto* l = new std::vector<Late>;
  return *l;
}
static std::atomic<size_t> late_count{0};
static void tell(const Late& l) {
  if (l.busy) publish_busy(l.stream->dev, l.start.known, l.end.known);
  if (l.profiled)
    profile_op(l.op, l.stream, l.start.known, l.end.known, l.correlation, l.graph, l.op.node);
}
static void tell_or_keep(Late&& l) {
  if (!l.busy && !l.profiled) return;
  l.op.replay = nullptr;
  if (settle(l.start) && settle(l.end)) return tell(l);
  Guard g(lock());
  late().push_back(std::move(l));
  late_count = late().size();
}
void tell_late() {
  if (!late_count) return;
  meetings_settled();
  std::vector<Late> known;
  {
    Guard g(lock());
    std::vector<Late> rest;
    for (auto& l : late()) (settle(l.start) && settle(l.end) ? known : rest).push_back(std::move(l));
    late().swap(rest);
    late_count = late().size();
  }
  for (auto& l : known) tell(l);
}

Time enqueue(Stream* s, Op&& op, const Time& after, const std::function<Time(const Time&)>& ends) {
  if (s->capture) {
    Guard g(lock());
    Node* n = add_node(s->capture, std::move(op), s->deps);
    s->deps = {n};
    return 0;
  }
  room(s);
  tell_late();
  Time start, end;
  {
    Guard g(lock());
    start = later(later(tail_locked(s), after), now() + config().latency);
    end = ends ? ends(start) : start + op.ns;
    s->tail = end;
    s->ring[s->launched++ % s->ring.size()] = end;
  }
  bool busy = op.kind == Kind::kernel, told = profiled(op.kind);
  if (busy || told) tell_or_keep({std::move(op), s, start, end, correlation(), 0, busy, told});
  return end;
}
Time enqueue(Stream* s, Op&& op) { return enqueue(s, std::move(op), 0, nullptr); }

Time enqueue_graph(Stream* s, GraphExec* g) {
  if (s->capture) {
    Op op;
    op.ns = g->length;
    op.name = "child graph";
    return enqueue(s, std::move(op));
  }
  room(s);
  tell_late();
  Time start, end;
  {
    Guard l(lock());
    start = later(tail_locked(s), now() + config().latency);
    end = start + g->length;
    s->tail = end;
    s->ring[s->launched++ % s->ring.size()] = end;
  }
  for (auto& n : g->nodes) {
    if (n->op.replay) n->op.replay();
    if (!profiled(n->op.kind)) continue;
    Op op = n->op;
    op.node = n->id;
    tell_or_keep({std::move(op), s, start + n->rel_start, start + n->rel_end, correlation(), g->id, false, true});
  }
  tell_or_keep({Op(), s, start, end, 0, 0, true, false});
  return end;
}

void record(Event* e, Stream* s) {
  Guard g(lock());
  e->stream = s;
  if (s->capture) {
    e->capture = s->capture;
    e->capture_id = s->capture->id;
    e->deps = s->deps;
    e->recorded = true;
    return;
  }
  e->capture = nullptr;
  e->at = later(tail_locked(s), now());
  e->recorded = true;
}
static std::map<unsigned long long, Capture*>& captures() {
  static auto* c = new std::map<unsigned long long, Capture*>;
  return *c;
}
void begun(Capture* c) {
  Guard g(lock());
  captures()[c->id] = c;
}
bool break_captures(bool of_others) {
  const int global = 0, relaxed = 2;  // cudaStreamCaptureMode
  Guard g(lock());
  bool any = false;
  for (auto& [id, c] : captures()) {
    bool own = c->owner == std::this_thread::get_id();
    if (own ? c->mode != relaxed : of_others && c->mode == global) any = c->broken = true;
  }
  return any;
}
bool live(const Event* e) { return e->capture && captures().count(e->capture_id); }
bool wait_event(Stream* s, Event* e) {
  Guard g(lock());
  if (!e->recorded) return true;
  if (e->capture && !live(e)) return true;
  if (e->capture) {
    if (s == &dev_state(s->dev).null_stream) {
      e->capture->broken = true;
      return false;
    }  // it takes part in no capture
    if (!s->capture) {
      s->capture = e->capture;
      s->deps.clear();
    }
    for (Node* n : e->deps) {
      bool has = false;
      for (Node* o : s->deps) has |= o == n;
      if (!has) s->deps.push_back(n);
    }
    return true;
  }
  if (!s->capture) s->tail = later(std::move(s->tail), e->at);
  return true;
}

void run_at(Time at, std::function<void()> act) {
  const Ns look_again = 100000;
  bool known = settle(at);
  Ns t = known ? at.known : now() + look_again;
  std::function<void()> f = known ? std::move(act) : [=] { run_at(at, act); };
  struct Item {
    Ns t;
    uint64_t n;
    std::function<void()> f;
    bool operator<(const Item& o) const { return t != o.t ? t > o.t : n > o.n; }
  };
  struct Worker {
    std::mutex m;
    std::condition_variable c;
    std::priority_queue<Item> q;
    uint64_t n = 0;
  };
  static Worker* w = [] {
    auto* w = new Worker;
    std::thread([w] {
      std::unique_lock<std::mutex> l(w->m);
      for (;;) {
        while (w->q.empty()) w->c.wait(l);
        Ns t = w->q.top().t, n = now();
        if (t > n) {
          w->c.wait_for(l, std::chrono::nanoseconds(t - n));
          continue;
        }
        auto f = w->q.top().f;
        w->q.pop();
        l.unlock();
        f();
        l.lock();
      }
    }).detach();
    return w;
  }();
  {
    Guard g(w->m);
    w->q.push({t, w->n++, std::move(f)});
  }
  w->c.notify_one();
}

// A kernel that fills memory with a value really does: what is read back (a loss scale) is what was written.
static size_t filled(const char* name) {
  const char* p = strstr(name, "FillFunctorI");
  if (!p || !strstr(name, "vectorized_elementwise_kernel")) return 0;
  p += 12;
  if (!strncmp(p, "N3c10", 5)) return strstr(p, "Half") || strstr(p, "BFloat16") ? 2 : 0;
  switch (*p) {
    case 'f':
    case 'i': return 4;
    case 'd':
    case 'l': return 8;
    case 's': return 2;
    case 'b':
    case 'h':
    case 'a': return 1;
    default: return 0;
  }
}
std::function<void()> effect(Kernel* k, void** args) {
  if (k->fills < 0) k->fills = int(filled(k->name));
  if (!k->fills || !args) return nullptr;
  int n = *static_cast<int*>(args[0]);
  size_t w = size_t(k->fills);
  char* to = *static_cast<char**>(args[2]);
  if (n <= 0 || size_t(n) * w > (1 << 20) || dev_of(to) < 0) return nullptr;
  std::string value(static_cast<char*>(args[1]), w);
  return [=] {
    auto fill = [=] {
      for (int i = 0; i < n; i++) memcpy(to + size_t(i) * w, value.data(), w);
      return true;
    };
    take_effect({{}, {{to, size_t(n) * w}}, fill});
  };
}

// How long things take
struct Rule {
  std::string part;
  double ns;
};
static std::vector<Rule>* rules;
static std::atomic<int> rules_version{1};
static std::atomic<double> scale{1.0};
static std::mutex& rules_lock() {
  static auto* m = new std::mutex;
  return *m;
}
static void rules_ready() {
  if (rules) return;
  auto* r = new std::vector<Rule>;
  std::string t = text("EMU_KERNELS", "");  // part=us;part=us
  for (size_t i = 0; i < t.size();) {
    size_t e = t.find(';', i);
    if (e == std::string::npos) e = t.size();
    std::string one = t.substr(i, e - i);
    size_t q = one.rfind('=');
    if (q != std::string::npos) r->push_back({one.substr(0, q), atof(one.c_str() + q + 1) * 1000});
    i = e + 1;
  }
  rules = r;
  scale = num("EMU_SCALE", 1);
}
static double rule_for(const char* name) {
  Guard g(rules_lock());
  rules_ready();
  for (auto& r : *rules)
    if (strstr(name, r.part.c_str())) return r.ns;
  return -1;
}
Ns named_ns(const char* name, Ns otherwise) {
  double r = rule_for(name);
  return Ns((r >= 0 ? r : double(otherwise)) * scale);
}
Ns kernel_ns(Kernel* k, const unsigned g[3], const unsigned b[3], void** args) {
  if (k->rules_seen != rules_version) {
    k->rule_ns = rule_for(k->name);
    k->sleeps = strstr(k->name, "spin_kernel") != nullptr;
    k->rules_seen = rules_version;
  }
  if (k->rule_ns >= 0) return Ns(k->rule_ns * scale);
  if (k->sleeps && args && args[0])
    return Ns(double(*static_cast<int64_t*>(args[0])) / 1.98);  // torch.cuda._sleep: cycles at 1.98 GHz
  double threads = double(g[0]) * g[1] * g[2] * b[0] * b[1] * b[2];
  return Ns((double(config().kernel) + threads * config().per_thread) * scale);
}
Ns copy_ns(uint64_t bytes) { return 2000 + Ns(double(bytes) / config().gbps); }
Ns gemm_ns(double m, double n, double k, double batch) {
  double r = rule_for("gemm");
  if (r >= 0) return Ns(r * scale);
  return Ns((double(config().kernel) + 2 * m * n * k * batch / (config().tflops * 1000)) * scale);
}
void launch_named(const void* stream, const char* name, Ns ns, double tiles) {
  Api api(430);  // cudaLaunchKernelExC_v11060
  spin(config().launch);
  Op op;
  op.name = name;
  op.ns = ns;
  op.grid[0] = unsigned(std::max(1.0, std::min(tiles, 2e9)));
  op.block[0] = 256;
  op.regs = 168;
  op.smem = 160 << 10;
  enqueue(stream_of(stream), std::move(op));
}
extern "C" __attribute__((visibility("default"))) void emu_rule(const char* part,
                                                                double us) {  // -1 takes it away
  Guard g(rules_lock());
  rules_ready();
  for (size_t i = 0; i < rules->size(); i++)
    if ((*rules)[i].part == part) {
      rules->erase(rules->begin() + long(i));
      break;
    }
  if (us >= 0) rules->insert(rules->begin(), {part, us * 1000});
  rules_version++;
}
extern "C" __attribute__((visibility("default"))) void emu_scale(double s) {
  {
    Guard g(rules_lock());
    rules_ready();
  }
  scale = s;
}
extern "C" __attribute__((visibility("default"))) double emu_ahead_us(int dev) {
  Time tail = device_tail(dev);
  settle(tail);
  Ns t = tail.known, n = now();
  return t > n ? double(t - n) / 1000 : 0;
}

void unimplemented(const char* name) {
  if (!config().trace) return;
  static auto* seen = new std::unordered_set<std::string>;
  static auto* m = new std::mutex;
  Guard g(*m);
  if (seen->insert(name).second) fprintf(stderr, "emu: stub %s\n", name);
}
extern "C" __attribute__((visibility("default"))) void emu_unimplemented(const char* name) {
  unimplemented(name);
}
// A capture that ends takes every stream out that had joined it.
void end_captures(Capture* c) {
  std::lock_guard<std::mutex> g(lock());
  for (int d = 0; d < config().devices; d++)
    for (auto* s : dev_state(d).streams)
      if (s->capture == c) {
        s->capture = nullptr;
        s->deps.clear();
      }
  captures().erase(c->id);
  delete c;
}
}  // namespace emu
