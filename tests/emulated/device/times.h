// Times on the device. A collective ends once every rank has come to it, so its end may be unknown when it is
// launched, and with it that of all work behind it: a time is the latest of a known one and of such ends plus offsets.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace emu {
using Ns = uint64_t;
Ns now();  // CLOCK_MONOTONIC, which all processes share

struct Meeting;
struct Term {
  std::shared_ptr<Meeting> meeting;
  Ns after = 0;  // its end
};
struct Time {
  Ns known = 0;
  std::vector<Term> open;
  Time(Ns ns = 0) : known(ns) {}
};
Time later(Time, const Time&);
Time operator+(Time, Ns);
bool settle(Time&);       // takes the ends that are known by now; true: the whole time is known
bool over(Time);          // it is known and past
void wait_until(Time);    // what a synchronising call does; and what was to be done by then is done
bool meetings_settled();  // whether there was news of any meeting that this process takes part in since the last call

// The board of a communicator: memory that its ranks share. On a lane, ranks meet one time after the other: all of
// them on lane 0, two of them on a lane of their own for each direction.
struct Board;
constexpr int MOST_RANKS = 16;
constexpr size_t MOST_TERMS = 8;  // of a start that a rank tells the others
constexpr size_t MOST_BYTES = 1 << 20;  // of one rank, that are really moved
std::shared_ptr<Board> open_board(const std::string& name, int ranks);  // by every rank; by name
void join(Board&);                                                     // waits for all others
void leave(Board&);
void give_up(Board&);  // whoever waits for the other ranks goes on
uint64_t lane_between(const Board&, int from, int to);
// This rank comes at `start` and needs `ns` from when all are there. Returns their end.
Time meet(const std::shared_ptr<Board>&, uint64_t lane, uint64_t number, int rank, const Time& start, Ns ns);
// Contents, in the order of a lane. False: not yet.
bool give(Board&, uint64_t lane, uint64_t number, int rank, const void* from, size_t bytes);
const char* given(Board&, uint64_t lane, uint64_t number, int rank);  // null: not yet
void taken(Board&, uint64_t lane, uint64_t number, int rank);
// What every rank says of itself at a split; waits for all.
std::vector<std::pair<int, int>> exchange(Board&, uint64_t number, int rank, int color, int key);

// What is really done to memory, at its launch, unless it touches what an earlier one that still waits for other
// ranks reads or writes: then after that.
struct Range {
  const char* from;
  size_t size;
};
struct Effect {
  std::vector<Range> reads, writes;
  std::function<bool()> attempt;  // false: not yet
  Time due = ~Ns(0);              // by when whoever waits for the device finds it done
};
void take_effect(Effect);
bool effects_wait();  // any
bool effects_done();  // does what can be done; true: nothing is left that is due
}  // namespace emu
