// The board of a process that is a rank: memory in which others of the same user find its state and
// the Python stack of its main thread, for horovodrun --dump. It is a memfd, which they open
// through /proc/<pid>/fd, so the kernel decides who may read it. The process is asked by a signal.
// Its handler rings the engine, which writes the state, and calls the function that writes the
// stack: it runs while C code holds the GIL, too. A stopped process answers nothing.
//
// The memory costs nothing until someone asks.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <string_view>

#include "core/base/bytes.h"
#include "core/transport/file_descriptor.h"

namespace hvd {

/// Names of the memfds, as /proc/<pid>/fd shows them.
inline constexpr std::string_view kBoardFile = "horovod-board";
inline constexpr std::string_view kStackFile = "horovod-stack";
inline constexpr size_t kBoardBytes = 1 * MiB;
inline constexpr uint64_t kBoardMagic = 0x32647261'6f427668;  // changes with the format

/// The first bytes of the board; the state follows. All fields are 0 until they are set.
struct BoardHeader {
  std::atomic<uint64_t> magic;    ///< kBoardMagic, written last
  std::atomic<int32_t> process;   ///< as it sees its own number
  std::atomic<int32_t> signal;    ///< which asks; 0: another handler has the signal
  std::atomic<uint32_t> asked;    ///< how often the main thread has taken it
  std::atomic<uint32_t> noticed;  ///< how often any thread has taken it
  std::atomic<uint32_t> stacked;  ///< the value of `asked` for which the stack is written
  std::atomic<uint32_t> told;     ///< the value of `noticed` for which the state is written
  std::atomic<uint32_t> bytes;    ///< of the state
  std::atomic<uint32_t> others;   ///< stacks of other threads that were appended
  std::atomic<uint64_t> step;     ///< counted by the framework
};

/// One per process, never destroyed. Any thread may call any function, except where noted.
class RankBoard {
 public:
  /// Returns the board of this process and makes it at the first call, also in a forked child.
  /// nullptr: it cannot be made, and the process is a rank without one.
  static RankBoard* of_this_process(int signal);
  /// Returns the board of this process if it was made, otherwise nullptr. Cheap.
  static RankBoard* here();

  /// Takes over the signal, unless another handler has it. A handler that was set after
  /// of_this_process() is the one that writes the stack of its thread to stack_fd(). The main
  /// thread writes the first stack, and others that take the signal append theirs.
  void arm();
  int signal() const;  ///< 0: another handler has it
  int stack_fd() const { return stack_.get(); }
  void count_step() { header().step.fetch_add(1, std::memory_order_relaxed); }
  uint64_t steps() const { return header().step.load(std::memory_order_relaxed); }

  /// For the holder of the progress token. A signal rings this doorbell, until the next one is set.
  void set_doorbell(int fd);
  /// True if the state is wanted. Costs one load.
  bool is_asked() const { return header().noticed.load(std::memory_order_relaxed) != answered_; }
  void tell(ConstBytes state);

 private:
  RankBoard(int signal, FileDescriptor memory, FileDescriptor stack, void* mapped);
  static void on_signal(int number);
  void take_signal(int number);
  BoardHeader& header() const { return *static_cast<BoardHeader*>(mapped_); }

  const pid_t process_;
  FileDescriptor memory_, stack_, doorbell_;
  void* const mapped_;
  void (*writes_stack_)(int) = nullptr;
  bool is_armed_ = false;
  uint32_t answered_ = 0;  ///< guarded by the progress token
};

}  // namespace hvd
