// The device's memory, and what other processes see of a device.
#include "device.h"
#include "published.h"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emu {
using Guard = std::lock_guard<std::mutex>;

struct Arena {
  char* base = nullptr;
  uint64_t span = 0, used = 0;
  std::map<uint64_t, uint64_t> free_, taken;
};
static Arena* arenas() {
  static auto* a = new Arena[16];
  return a;
}
static Arena& arena(int d) {
  Arena& a = arenas()[d];
  if (!a.base) {
    a.span = config().mem * 2;  // room for holes
    void* p =
        mmap(nullptr, a.span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
      perror("emulated device memory");
      abort();
    }
    madvise(p, a.span, MADV_DONTDUMP);
    madvise(p, a.span, MADV_NOHUGEPAGE);
    a.base = static_cast<char*>(p);
    a.free_[0] = a.span;
    a.used = 500ull << 20;  // a context's own
  }
  return a;
}
void* dev_alloc(uint64_t size) {
  Guard g(lock());
  Arena& a = arena(device());
  uint64_t align = size >= (1 << 20) ? 2ull << 20 : 512;
  size = (size + align - 1) / align * align;
  if (!size) size = align;
  if (a.used + size > config().mem) return nullptr;
  for (auto it = a.free_.begin(); it != a.free_.end(); ++it) {
    uint64_t at = (it->first + align - 1) / align * align, pad = at - it->first;
    if (it->second < size + pad) continue;
    uint64_t from = it->first, len = it->second;
    a.free_.erase(it);
    if (pad) a.free_[from] = pad;
    if (len > pad + size) a.free_[at + size] = len - pad - size;
    a.taken[at] = size;
    a.used += size;
    publish_mem(device(), a.used);
    return a.base + at;
  }
  return nullptr;
}
bool dev_free(void* p) {
  int d = dev_of(p);
  if (d < 0) return false;
  Guard g(lock());
  Arena& a = arenas()[d];
  auto it = a.taken.find(uint64_t(static_cast<char*>(p) - a.base));
  if (it == a.taken.end()) return false;
  uint64_t at = it->first, size = it->second;
  a.taken.erase(it);
  a.used -= size;
  publish_mem(d, a.used);
  if (size >= 4096) madvise(a.base + at, size, MADV_DONTNEED);
  auto n = a.free_.emplace(at, size).first;
  auto next = std::next(n);
  if (next != a.free_.end() && n->first + n->second == next->first) {
    n->second += next->second;
    a.free_.erase(next);
  }
  if (n != a.free_.begin()) {
    auto prev = std::prev(n);
    if (prev->first + prev->second == n->first) {
      prev->second += n->second;
      a.free_.erase(n);
    }
  }
  return true;
}
int dev_of(const void* p) {
  for (int d = 0; d < config().devices; d++) {
    Arena& a = arenas()[d];
    if (a.base && p >= a.base && p < a.base + a.span) return d;
  }
  return -1;
}
bool dev_range(const void* p, void** base, size_t* size) {
  int d = dev_of(p);
  if (d < 0) return false;
  Guard g(lock());
  Arena& a = arenas()[d];
  uint64_t at = uint64_t(static_cast<const char*>(p) - a.base);
  auto it = a.taken.upper_bound(at);
  if (it == a.taken.begin()) return false;
  --it;
  if (at >= it->first + it->second) return false;
  if (base) *base = a.base + it->first;
  if (size) *size = it->second;
  return true;
}
uint64_t dev_used(int d) {
  Guard g(lock());
  return arena(d).used;
}

// What other processes see (NVML)
static Shared* shared(int d) {
  static Shared* all[16] = {};
  static pid_t owner = 0;
  if (owner != getpid()) {
    for (auto& a : all) a = nullptr;
    owner = getpid();
  }
  if (!all[d]) {
    mkdir(shared_folder().c_str(), 0777);
    std::string path = shared_folder() + "/" + std::to_string(getpid()) + "." + std::to_string(d);
    int fd = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd >= 0 && ftruncate(fd, sizeof(Shared)) == 0) {
      void* p = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (p != MAP_FAILED) {
        all[d] = static_cast<Shared*>(p);
        all[d]->pid = getpid();
        all[d]->magic = SHARED_MAGIC;
      }
    }
    if (fd >= 0) close(fd);
    if (!all[d]) all[d] = static_cast<Shared*>(calloc(1, sizeof(Shared)));
    static bool once =
        (atexit([] {
           for (int i = 0; i < 16; i++)
             unlink((shared_folder() + "/" + std::to_string(getpid()) + "." + std::to_string(i)).c_str());
         }),
         true);
    (void)once;
  }
  return all[d];
}
void publish_busy(int dev, Ns start, Ns end) {
  Guard g(lock());
  Shared* s = shared(dev);
  if (start < s->busy_until) start = s->busy_until;  // side by side on two streams counts once
  if (end <= start) return;
  s->busy_until = end;
  s->busy_total += end - start;
  if (end - start > BUCKET_NS * BUCKETS) start = end - BUCKET_NS * BUCKETS;
  while (start < end) {
    uint64_t id = start / BUCKET_NS;
    Ns stop = std::min<Ns>(end, (id + 1) * BUCKET_NS);
    auto& b = s->buckets[id % BUCKETS];
    if (b.id != id) {
      b.busy = 0;
      b.id = id;
    }
    b.busy += uint32_t(stop - start);
    start = stop;
  }
}
void publish_mem(int dev, uint64_t used) { shared(dev)->mem = used; }

}  // namespace emu
