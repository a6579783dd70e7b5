// The board of a process that is a rank: memory in which others of the same user find its state and
// the Python stack of its main thread, for horovodrun --dump. It is a memfd, which they open
// through /proc/<pid>/fd, so the kernel decides who may read it. The process is asked by a signal.
// Its handler rings the engine, which writes the state, and calls the function that writes the
// stack: it runs while C code holds the GIL, too. A stopped process answers nothing, but others can
// still read its stage.
//
// The memory costs nothing until someone asks.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string_view>

#include "core/base/bytes.h"
#include "core/transport/file_descriptor.h"

namespace hvd {

/// Names of the memfds, as /proc/<pid>/fd shows them.
inline constexpr std::string_view kBoardFile = "horovod-board";
inline constexpr std::string_view kStackFile = "horovod-stack";
inline constexpr size_t kBoardBytes = 1 * MiB;
inline constexpr uint64_t kBoardMagic = 0x34647261'6f427668;  // changes with the format

/// What the process does with its job, as far as ranks wait for each other outside of operations.
enum class RankStage : uint8_t {
  before_init,  ///< since the start, or since it has got its place in the next generation
  in_init,      ///< waits for other ranks
  init_failed,
  running,
  failed,       ///< an error, as the loss of a rank, has ended the generation
  in_shutdown,  ///< waits for other ranks
  after_shutdown,
  next_generation,  ///< of an elastic job: has asked for its place, and waits for it
  over,             ///< another rank has called shutdown, which has ended the job here, too
};
inline constexpr size_t kStages = 9;

/// A stage and its beginning, in one word: others read it while it changes.
class StageWord {
 public:
  using Time = std::chrono::time_point<std::chrono::steady_clock, std::chrono::milliseconds>;

  constexpr StageWord() = default;
  StageWord(RankStage stage, Time since)
      : word_((static_cast<uint64_t>(since.time_since_epoch().count()) << 8) |
              static_cast<uint64_t>(stage)) {}
  RankStage stage() const {
    return static_cast<RankStage>(std::min<uint64_t>(word_ & 0xff, kStages - 1));
  }
  Time since() const { return Time(std::chrono::milliseconds(word_ >> 8)); }

 private:
  uint64_t word_ = 0;
};

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
  std::atomic<StageWord> stage;
  std::atomic<int32_t> rank;  ///< since the first init; negative: none yet
};
static_assert(std::atomic<StageWord>::is_always_lock_free);

/// One per process, never destroyed. Any thread may call any function, except where noted.
class RankBoard {
 public:
  /// Returns the board of this process and makes it at the first call, also in a forked child.
  /// nullptr: it cannot be made, and the process is a rank without one.
  static RankBoard* of_this_process(int signal);
  /// Returns the board of this process if it was made, otherwise nullptr. Cheap.
  static RankBoard* here();
  /// Notes the stage of this process, if it has a board. The beginning of a stage that it is in
  /// already stays. If the script has taken the signal meanwhile, the process is not asked any
  /// more.
  static void enter(RankStage stage);
  /// The same if it is running: by the engine thread, which does not know what others do.
  static void end_running(RankStage stage);

  /// Takes over the signal, unless another handler has it. A handler that was set after
  /// of_this_process() is the one that writes the stack of its thread to stack_fd(). The main
  /// thread writes the first stack, and others that take the signal append theirs.
  void arm();
  void set_rank(int rank) { header().rank = rank; }
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
  void yield_signal();
  BoardHeader& header() const { return *static_cast<BoardHeader*>(mapped_); }

  const pid_t process_;
  FileDescriptor memory_, stack_, doorbell_;
  void* const mapped_;
  void (*writes_stack_)(int) = nullptr;
  bool is_armed_ = false;
  uint32_t answered_ = 0;  ///< guarded by the progress token
};

}  // namespace hvd
