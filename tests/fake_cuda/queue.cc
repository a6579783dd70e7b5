// Queue, Mark and Arena of the stand-in driver.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "tests/fake_cuda/state.h"

namespace fake {

void Mark::finish() {
  const std::lock_guard lock(mutex_);
  done_ = true;
  time_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

void Mark::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return done_; });
}

bool Mark::done() {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::chrono::steady_clock::time_point Mark::time() {
  const std::lock_guard lock(mutex_);
  return time_;
}

Queue::Queue(size_t number)
    : longest_delay_us_(fake::number("FAKE_CUDA_DELAY_US", 300)),
      stuck_(fake::number("FAKE_CUDA_STUCK", 0) != 0),
      dice_(static_cast<unsigned>(fake::number("FAKE_CUDA_SEED", 1) * 1000 +
                                  static_cast<int64_t>(number) + 1)) {
  std::thread([this] { main(); }).detach();  // streams are never freed
}

void Queue::push(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  changed_.notify_all();
}

void Queue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return tasks_.empty() && !busy_; });
}

bool Queue::empty() {
  const std::lock_guard lock(mutex_);
  return tasks_.empty() && !busy_;
}

void Queue::main() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return !stuck_ && !tasks_.empty(); });
    const auto task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    pass_time();
    task();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void Queue::pass_time() {
  if (longest_delay_us_ <= 0) return;
  const auto delay = static_cast<int64_t>(dice_()) % longest_delay_us_;
  std::this_thread::sleep_for(std::chrono::microseconds(delay));
}

Arena::Arena(size_t bytes) : bytes_(bytes), file_(::memfd_create("fake_cuda", MFD_CLOEXEC)) {
  void* memory = MAP_FAILED;
  if (file_ >= 0 && ::ftruncate(file_, static_cast<off_t>(bytes)) == 0)
    memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (memory == MAP_FAILED) misuse("no memory for a GPU");
  memory_ = static_cast<char*>(memory);
}

char* Arena::allocate(size_t bytes) {
  constexpr size_t kAlignment = 512;
  const size_t needed = std::max(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  size_t begin = 0;
  for (const auto& [used, end] : used_) {
    if (used - begin >= needed) break;
    begin = end;
  }
  if (begin + needed > bytes_) return nullptr;
  used_[begin] = begin + needed;
  return memory_ + begin;
}

void Arena::free(char* address) { used_.erase(offset_of(address)); }

size_t Arena::free_bytes() const {
  size_t used = 0;
  for (const auto& [begin, end] : used_) used += end - begin;
  return bytes_ - used;
}

size_t Arena::offset_of(const void* address) const {
  return static_cast<size_t>(static_cast<const char*>(address) - memory_);
}

}  // namespace fake
