// What a job with an emulated device shows to other processes: one file a process and device.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <string>
#include <unistd.h>
constexpr uint64_t BUCKET_NS = 10000000, BUCKETS = 4096, SHARED_MAGIC = 0x656d7563756461;
struct Shared {
  uint64_t magic;
  int32_t pid;
  uint32_t pad;
  uint64_t mem, busy_until, busy_total;
  struct {
    uint64_t id;
    uint32_t busy, pad;
  } buckets[BUCKETS];
};
inline std::string shared_folder() {
  const char* v = getenv("EMU_SHM");
  return v && *v ? v : "/dev/shm/emucuda." + std::to_string(getuid());
}
