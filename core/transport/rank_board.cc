#include "core/transport/rank_board.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>

namespace hvd {
namespace {

// The handler reads it. A board is never destroyed; a forked child makes another one.
std::atomic<RankBoard*> board_here{nullptr};
std::mutex making;

using Handler = void (*)(int);

FileDescriptor make_file(std::string_view name) {
  return FileDescriptor(::memfd_create(std::string(name).c_str(), MFD_CLOEXEC));
}

/// Returns whether no handler has the signal.
bool is_free(int signal) {
  struct sigaction present {};
  return ::sigaction(signal, nullptr, &present) == 0 && (present.sa_flags & SA_SIGINFO) == 0 &&
         present.sa_handler == SIG_DFL;
}

bool is_main_thread() { return ::syscall(SYS_gettid) == ::getpid(); }

StageWord begins_now(RankStage stage) {
  return {stage, std::chrono::floor<std::chrono::milliseconds>(std::chrono::steady_clock::now())};
}

}  // namespace

RankBoard::RankBoard(int signal, FileDescriptor memory, FileDescriptor stack, void* mapped)
    : process_(::getpid()),
      memory_(std::move(memory)),
      stack_(std::move(stack)),
      doorbell_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      mapped_(new (mapped) BoardHeader{}) {
  header().process = process_;
  header().signal = signal;
  header().stage = begins_now(RankStage::before_init);
  header().rank = -1;
  header().magic = kBoardMagic;
}

RankBoard* RankBoard::of_this_process(int signal) {
  const std::lock_guard lock(making);
  if (RankBoard* const known = here()) return known;
  const RankBoard* const parents = board_here.load();
  FileDescriptor memory = make_file(kBoardFile), stack = make_file(kStackFile);
  if (!memory || !stack || ::ftruncate(memory.get(), kBoardBytes) != 0) return nullptr;
  void* const mapped =
      ::mmap(nullptr, kBoardBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
  if (mapped == MAP_FAILED) return nullptr;
  // A child has inherited the handler of its parent.
  const bool ours = parents != nullptr && parents->is_armed_ && parents->signal() == signal;
  const int taken = signal > 0 && (ours || is_free(signal)) ? signal : 0;
  auto* const made = new RankBoard(taken, std::move(memory), std::move(stack), mapped);
  if (ours) {
    made->writes_stack_ = parents->writes_stack_;
    made->is_armed_ = true;
  }
  board_here = made;
  return made;
}

RankBoard* RankBoard::here() {
  RankBoard* const known = board_here.load();
  return known != nullptr && known->process_ == ::getpid() ? known : nullptr;
}

void RankBoard::enter(RankStage stage) {
  RankBoard* const board = here();
  if (board == nullptr || board->header().stage.load().stage() == stage) return;
  board->header().stage = begins_now(stage);
  board->yield_signal();
}

void RankBoard::end_running(RankStage stage) {
  RankBoard* const board = here();
  StageWord now = board == nullptr ? StageWord() : board->header().stage.load();
  if (now.stage() != RankStage::running) return;
  if (board->header().stage.compare_exchange_strong(now, begins_now(stage))) board->yield_signal();
}

/// A script may have set a handler of its own.
void RankBoard::yield_signal() {
  const std::lock_guard lock(making);
  struct sigaction present {};
  const bool is_known = is_armed_ && ::sigaction(signal(), nullptr, &present) == 0;
  if (is_known && present.sa_handler != &RankBoard::on_signal) header().signal = 0;
}

void RankBoard::arm() {
  const std::lock_guard lock(making);
  if (signal() == 0 || std::exchange(is_armed_, true)) return;
  struct sigaction action {
  }, former{};
  action.sa_handler = &RankBoard::on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(signal(), nullptr, &former);
  const bool has_handler = former.sa_handler != SIG_DFL && former.sa_handler != SIG_IGN;
  if (has_handler) writes_stack_ = former.sa_handler;
  ::sigaction(signal(), &action, nullptr);
}

int RankBoard::signal() const { return header().signal.load(); }

void RankBoard::set_doorbell(int fd) {
  // Atomic for the handler, on any thread: the number stays the same.
  if (fd >= 0 && doorbell_) ::dup3(fd, doorbell_.get(), O_CLOEXEC);
  answered_ = header().noticed.load();
  header().told = answered_;
  header().bytes = 0;
}

void RankBoard::tell(ConstBytes state) {
  const uint32_t asked = header().noticed.load();
  const size_t room = kBoardBytes - sizeof(BoardHeader);
  const size_t size = state.size() <= room ? state.size() : 0;
  std::copy_n(state.begin(), size, static_cast<std::byte*>(mapped_) + sizeof(BoardHeader));
  header().bytes = static_cast<uint32_t>(size);
  answered_ = asked;
  header().told.store(asked, std::memory_order_release);  // readers acquire it
}

void RankBoard::on_signal(int number) {
  const int saved = errno;
  if (RankBoard* const board = here()) board->take_signal(number);
  errno = saved;
}

/// In a signal handler.
void RankBoard::take_signal(int number) {
  header().noticed.fetch_add(1);
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t rung = ::write(doorbell_.get(), &one, sizeof one);
  if (!is_main_thread()) {
    if (writes_stack_ != nullptr) writes_stack_(number);
    header().others.fetch_add(1);
    return;
  }
  const uint32_t asked = header().asked.fetch_add(1) + 1;
  if (writes_stack_ != nullptr && ::ftruncate(stack_.get(), 0) == 0) {
    ::lseek(stack_.get(), 0, SEEK_SET);
    writes_stack_(number);
  }
  header().stacked.store(asked, std::memory_order_release);  // readers acquire it
}

}  // namespace hvd
