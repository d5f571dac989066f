// Times that depend on other ranks, the boards on which ranks meet, and what waits for them.
#include "times.h"
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <list>
#include <map>
#include <mutex>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "device.h"
#include "published.h"

namespace emu {
using Guard = std::lock_guard<std::recursive_mutex>;
static std::recursive_mutex& boards_lock() {
  static auto* m = new std::recursive_mutex;
  return *m;
}

// What lies in the memory of a board
constexpr uint64_t MEETINGS = 4096;  // of a lane that are kept: more than a queue is deep
constexpr uint64_t CONTENTS = 16;    // of a lane that may wait to be read
struct Reference {
  char board[20];
  uint64_t lane, number;
  Ns after;
};
struct Arrival {
  std::atomic<uint64_t> stamp;  // number of the meeting + 1, written last
  Ns known, ns;
  int terms;
  Reference term[MOST_TERMS];
};
struct Held {  // one meeting
  std::atomic<uint64_t> over;  // its number + 1 once its end is known
  Ns end;
  Arrival by[MOST_RANKS];
};
struct Content {
  std::atomic<uint64_t> posted[MOST_RANKS], read[MOST_RANKS];
};
struct Lane {
  Held held[MEETINGS];
  Content content[CONTENTS];
};
struct Head {
  std::atomic<int> ranks, joined, left;
  struct {
    std::atomic<uint64_t> stamp;
    int color, key;
  } said[MOST_RANKS];
};
constexpr size_t HEAD = 4096;
static_assert(sizeof(Head) <= HEAD, "room for the head");

struct Board {
  std::string name, path;
  int ranks = 0;
  char* base = nullptr;
  size_t size = 0;
  std::atomic<Ns> given_up{0};
  std::atomic<bool> joined{false};
  ~Board() {
    if (base) munmap(base, size);
  }
  Head& head() { return *reinterpret_cast<Head*>(base); }
  uint64_t lanes() const { return 1 + uint64_t(ranks) * uint64_t(ranks); }
  Lane& lane(uint64_t i) { return reinterpret_cast<Lane*>(base + HEAD)[i]; }
  char* contents(uint64_t lane, uint64_t number, int rank) {
    uint64_t at = (lane * CONTENTS + number % CONTENTS) * uint64_t(ranks) + uint64_t(rank);
    return base + HEAD + lanes() * sizeof(Lane) + at * MOST_BYTES;
  }
};
struct Meeting {
  std::shared_ptr<Board> board;
  uint64_t lane, number;
  bool known = false;
  Ns end = 0;
};

static std::map<std::string, std::weak_ptr<Board>>& boards() {
  static auto* m = new std::map<std::string, std::weak_ptr<Board>>;
  return *m;
}
std::shared_ptr<Board> open_board(const std::string& name, int ranks) {
  Guard g(boards_lock());
  if (auto there = boards()[name].lock()) return there;
  auto b = std::make_shared<Board>();
  b->name = name;
  mkdir(shared_folder().c_str(), 0777);
  b->path = shared_folder() + "/board." + name;
  int fd = open(b->path.c_str(), ranks ? O_RDWR | O_CREAT : O_RDWR, 0644);
  if (fd < 0) return nullptr;
  b->ranks = ranks;
  if (!ranks && pread(fd, &b->ranks, sizeof(int), 0) != sizeof(int)) b->ranks = 0;
  b->size = HEAD + b->lanes() * sizeof(Lane) + b->lanes() * CONTENTS * uint64_t(b->ranks) * MOST_BYTES;
  void* p = MAP_FAILED;
  if (b->ranks && ftruncate(fd, off_t(b->size)) == 0)  // nearly all of it is never touched
    p = mmap(nullptr, b->size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  close(fd);
  if (p == MAP_FAILED) return nullptr;
  madvise(p, b->size, MADV_DONTDUMP);
  b->base = static_cast<char*>(p);
  b->head().ranks = b->ranks;
  boards()[name] = b;
  return b;
}
static void nap() {
  if (config().spin) return;
  timespec ts{0, 30000};
  nanosleep(&ts, nullptr);
}
static void leave_all() {
  for (auto& [name, board] : boards())
    if (auto b = board.lock())
      if (b->joined) leave(*b);
}
void join(Board& b) {
  static bool once = (atexit(leave_all), true);
  (void)once;
  b.joined = true;
  b.head().joined++;
  while (b.head().joined < b.ranks && !b.given_up) nap();
}
void leave(Board& b) {
  if (!b.joined.exchange(false)) return;
  if (++b.head().left >= b.ranks) unlink(b.path.c_str());
}
void give_up(Board& b) {
  b.given_up = now();
  unlink(b.path.c_str());
}
uint64_t lane_between(const Board& b, int from, int to) {
  return 1 + uint64_t(from) * uint64_t(b.ranks) + uint64_t(to);
}
std::vector<std::pair<int, int>> exchange(Board& b, uint64_t number, int rank, int color, int key) {
  auto& said = b.head().said;
  // Nobody writes again before all have read: a split is followed by a board on which they join.
  said[rank].color = color;
  said[rank].key = key;
  said[rank].stamp.store(2 * number + 1, std::memory_order_release);
  std::vector<std::pair<int, int>> all;
  for (int r = 0; r < b.ranks; r++) {
    while (said[r].stamp.load(std::memory_order_acquire) < 2 * number + 1) nap();
    all.emplace_back(said[r].color, said[r].key);
  }
  said[rank].stamp.store(2 * number + 2, std::memory_order_release);
  for (int r = 0; r < b.ranks; r++)
    while (said[r].stamp.load(std::memory_order_acquire) < 2 * number + 2) nap();
  return all;
}

// When a meeting ends: the latest start plus the longest that a rank needs. Every rank can work it out.
static bool end_of(Board& b, uint64_t lane, uint64_t number, Ns* end) {
  Held& h = b.lane(lane).held[number % MEETINGS];
  uint64_t known = h.over.load(std::memory_order_acquire);
  if (known > number) {  // of a later one: this is long over
    *end = known == number + 1 ? h.end : 0;
    return true;
  }
  if (Ns at = b.given_up) {
    *end = at;
    return true;
  }
  int first = 0, last = b.ranks - 1;
  if (lane) first = int((lane - 1) / uint64_t(b.ranks)), last = int((lane - 1) % uint64_t(b.ranks));
  Ns latest = 0, longest = 0;
  auto came = [&](int rank) {
    Arrival& a = h.by[rank];
    if (a.stamp.load(std::memory_order_acquire) != number + 1) return false;
    Ns start = a.known;
    for (int i = 0; i < a.terms; i++) {
      Reference& t = a.term[i];
      auto other = t.board == b.name ? nullptr : open_board(t.board, 0);
      Ns ends = 0;
      if ((other || t.board == b.name) && !end_of(other ? *other : b, t.lane, t.number, &ends)) return false;
      start = std::max(start, ends + t.after);
    }
    latest = std::max(latest, start);
    longest = std::max(longest, a.ns);
    return true;
  };
  if (lane) {
    if (!came(first) || !came(last)) return false;
  } else
    for (int r = first; r <= last; r++)
      if (!came(r)) return false;
  *end = h.end = latest + longest;
  h.over.store(number + 1, std::memory_order_release);
  return true;
}
static bool look(Meeting& m) {
  Guard g(boards_lock());
  if (!m.known) m.known = end_of(*m.board, m.lane, m.number, &m.end);
  return m.known;
}
static std::list<std::shared_ptr<Meeting>>& awaited() {
  static auto* l = new std::list<std::shared_ptr<Meeting>>;
  return *l;
}
static std::atomic<size_t> awaited_count{0};
bool meetings_settled() {
  if (!awaited_count) return false;
  Guard g(boards_lock());
  size_t before = awaited().size();
  awaited().remove_if([](auto& m) { return look(*m); });
  awaited_count = awaited().size();
  return awaited_count < before;
}

Time operator+(Time t, Ns ns) {
  t.known += ns;
  for (auto& each : t.open) each.after += ns;
  return t;
}
Time later(Time a, const Time& b) {
  a.known = std::max(a.known, b.known);
  for (auto& more : b.open) {
    bool told = false;
    for (auto& each : a.open) {  // the ranks of a lane meet in order: the later meeting says all
      auto &x = *each.meeting, &y = *more.meeting;
      if (x.board != y.board || x.lane != y.lane) continue;
      if (x.number == y.number)
        each.after = std::max(each.after, more.after);
      else if (x.number < y.number && each.after <= more.after)
        each = more;
      else if (!(y.number < x.number && more.after <= each.after))
        continue;
      told = true;
      break;
    }
    if (!told) a.open.push_back(more);
  }
  return a;
}
bool settle(Time& t) {
  for (size_t i = 0; i < t.open.size();) {
    Meeting& m = *t.open[i].meeting;
    if (!look(m)) {
      i++;
      continue;
    }
    t.known = std::max(t.known, m.end + t.open[i].after);
    t.open.erase(t.open.begin() + long(i));
  }
  return t.open.empty();
}
bool over(Time t) { return settle(t) && now() >= t.known; }
static void wait_for(Ns t) {
  const Config& c = config();
  for (Ns n = now(); n < t; n = now()) {
    if (!c.spin && t - n > 80000) {
      Ns s = t - n - 60000;
      timespec ts{time_t(s / 1000000000ull), long(s % 1000000000ull)};
      nanosleep(&ts, nullptr);
    }
  }
}
void wait_until(Time t) {
  while (!settle(t)) {
    effects_done();
    nap();
  }
  wait_for(t.known);
  while (!effects_done()) nap();
}

Time meet(const std::shared_ptr<Board>& b, uint64_t lane, uint64_t number, int rank, const Time& start, Ns ns) {
  Time t = start;
  settle(t);
  Guard g(boards_lock());
  Arrival& a = b->lane(lane).held[number % MEETINGS].by[rank];
  a.known = t.known;
  a.ns = ns;
  a.terms = int(std::min(t.open.size(), MOST_TERMS));
  for (int i = 0; i < a.terms; i++) {
    Meeting& m = *t.open[size_t(i)].meeting;
    Reference& r = a.term[i];
    snprintf(r.board, sizeof r.board, "%s", m.board->name.c_str());
    r.lane = m.lane;
    r.number = m.number;
    r.after = t.open[size_t(i)].after;
  }
  a.stamp.store(number + 1, std::memory_order_release);
  auto m = std::make_shared<Meeting>(Meeting{b, lane, number});
  Time end;
  if (look(*m))
    end = m->end;
  else {
    awaited().push_back(m);
    awaited_count = awaited().size();
    end.open.push_back({m, 0});
  }
  return end;
}

bool give(Board& b, uint64_t lane, uint64_t number, int rank, const void* from, size_t bytes) {
  Content& c = b.lane(lane).content[number % CONTENTS];
  if (number >= CONTENTS)
    for (int r = 0; r < b.ranks; r++) {
      bool reads = !lane || r == int((lane - 1) % uint64_t(b.ranks));
      if (reads && c.read[r].load(std::memory_order_acquire) < number + 1 - CONTENTS) return false;
    }
  memcpy(b.contents(lane, number, rank), from, bytes);
  c.posted[rank].store(number + 1, std::memory_order_release);
  return true;
}
const char* given(Board& b, uint64_t lane, uint64_t number, int rank) {
  Content& c = b.lane(lane).content[number % CONTENTS];
  bool there = c.posted[rank].load(std::memory_order_acquire) == number + 1;
  return there ? b.contents(lane, number, rank) : nullptr;
}
void taken(Board& b, uint64_t lane, uint64_t number, int rank) {
  b.lane(lane).content[number % CONTENTS].read[rank].store(number + 1, std::memory_order_release);
}

// Effects
static std::list<Effect>& effects() {
  static auto* l = new std::list<Effect>;
  return *l;
}
static std::recursive_mutex& effects_lock() {
  static auto* m = new std::recursive_mutex;
  return *m;
}
static std::atomic<size_t> effects_count{0};
static bool meets(const std::vector<Range>& a, const std::vector<Range>& b) {
  for (auto& x : a)
    for (auto& y : b)
      if (x.from < y.from + y.size && y.from < x.from + x.size) return true;
  return false;
}
static bool in_order(const Effect& one, const Effect& earlier) {
  return !meets(one.writes, earlier.writes) && !meets(one.writes, earlier.reads) &&
         !meets(one.reads, earlier.writes);
}
static void do_effects() {
  auto& all = effects();
  for (auto one = all.begin(); one != all.end();) {
    bool may = true;
    for (auto earlier = all.begin(); earlier != one && may; ++earlier) may = in_order(*one, *earlier);
    one = may && one->attempt() ? all.erase(one) : std::next(one);
  }
  effects_count = all.size();
}
void take_effect(Effect e) {
  if (!effects_count && e.attempt()) return;
  Guard g(effects_lock());
  effects().push_back(std::move(e));
  effects_count = effects().size();
  do_effects();
}
bool effects_wait() { return effects_count; }
bool effects_done() {
  if (!effects_count) return true;
  Guard g(effects_lock());
  do_effects();
  for (auto& each : effects())
    if (over(each.due)) return false;
  return true;
}
}  // namespace emu
