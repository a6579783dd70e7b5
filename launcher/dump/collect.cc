#include "launcher/dump/collect.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <fstream>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/process_tree.h"
#include "core/transport/process_watch.h"
#include "core/transport/rank_board.h"
#include "launcher/dump/proc.h"
#include "launcher/dump/py_spy.h"
#include "launcher/dump/sources.h"

namespace hvd::launcher {
namespace {

using std::chrono::milliseconds;

constexpr int kLookMilliseconds = 1;
constexpr int kThreadLooks = 100;  // at most, while other threads of a rank are asked
constexpr int kStateLooks = 5;
constexpr milliseconds kSpyTime{700};
constexpr milliseconds kSourceTime{300};
constexpr size_t kMaxStackBytes = 1 * MiB;

/// The board of a process, mapped for reading.
class BoardView {
 public:
  explicit BoardView(const std::string& path) {
    const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file) return;
    void* const mapped = mmap(nullptr, kBoardBytes, PROT_READ, MAP_SHARED, file.get(), 0);
    if (mapped != MAP_FAILED) header_ = static_cast<const BoardHeader*>(mapped);
  }
  ~BoardView() {
    if (header_ != nullptr) munmap(const_cast<BoardHeader*>(header_), kBoardBytes);
  }
  BoardView(BoardView&& other) noexcept : header_(std::exchange(other.header_, nullptr)) {}
  BoardView& operator=(BoardView&&) = delete;

  bool is_of(pid_t process) const {
    return header_ != nullptr && header_->magic == kBoardMagic && header_->process == process;
  }
  const BoardHeader& header() const { return *header_; }
  StageWord stage() const { return header_->stage.load(); }
  ConstBytes state() const {
    const auto* const begin = reinterpret_cast<const std::byte*>(header_ + 1);
    const size_t room = kBoardBytes - sizeof(BoardHeader);
    return {begin, std::min<size_t>(header_->bytes, room)};
  }

 private:
  const BoardHeader* header_ = nullptr;
};

/// A worker that is being asked.
struct Asked {
  RankReport report{};
  std::optional<BoardView> board{};
  std::string stack_file{};
  uint32_t asked = 0, noticed = 0;  ///< of the board, before
  bool is_sent = false;

  bool has_stack() const {
    const uint32_t now = board->header().asked;
    return now != asked && board->header().stacked == now;
  }
  bool has_state() const {
    const uint32_t now = board->header().noticed;
    return now != noticed && board->header().told == now;
  }
  /// Only the engine tells the state, and it does while there is one.
  bool is_done() const {
    const RankStage stage = board ? board->stage().stage() : RankStage::before_init;
    const bool has_engine = stage == RankStage::running || stage == RankStage::in_shutdown;
    return !is_sent || (has_stack() && (has_state() || !has_engine));
  }
};

std::string text_in(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  return found == environment.end() ? std::string() : found->second;
}

int number_in(const Environment& environment, std::string_view name, int otherwise) {
  const std::string text = text_in(environment, name);
  int number = otherwise;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// A thread that waits for the GIL or in a loop wakes up for moments.
char settled_state(pid_t process) {
  char state = state_of(process);
  for (int looks = 0; state == 'R' && looks < kStateLooks; ++looks) {
    poll(nullptr, 0, kLookMilliseconds);
    state = state_of(process);
  }
  return state;
}

std::optional<BoardView> board_of(pid_t process) {
  const std::string path = open_file_of(process, kBoardFile).value_or("");
  if (path.empty()) return std::nullopt;
  BoardView view(path);
  return view.is_of(process) ? std::optional(std::move(view)) : std::nullopt;
}

void take_board(Asked& one, pid_t process, BoardView&& view) {
  const StageWord stage = view.stage();
  const auto now = std::chrono::steady_clock::now();
  one.board.emplace(std::move(view));
  one.stack_file = open_file_of(process, kStackFile).value_or("");
  one.report.process = process;
  one.report.has_board = true;
  one.report.stage = stage.stage();
  one.report.stage_age =
      std::max(std::chrono::floor<milliseconds>(now - stage.since()), milliseconds(0));
  if (const int rank = one.board->header().rank; rank >= 0) one.report.rank = rank;
}

/// Several processes below one worker may have a board. The one that takes part in the job is the
/// rank, or else one that has.
int likelihood(RankStage stage) {
  switch (stage) {
    case RankStage::before_init:
      return 0;
    case RankStage::init_failed:
    case RankStage::failed:
    case RankStage::after_shutdown:
    case RankStage::over:
      return 1;
    case RankStage::in_init:
    case RankStage::running:
    case RankStage::in_shutdown:
    case RankStage::next_generation:
      break;
  }
  return 2;
}

/// Finds the process that is the rank: it or one below it has the board.
void find_board(Asked& one, pid_t worker, const ProcessParents& all) {
  one.report.process = worker;
  for (const pid_t process : tree_of(worker, all)) {
    auto view = board_of(process);
    if (!view) continue;
    if (one.board && likelihood(view->stage().stage()) <= likelihood(one.report.stage)) continue;
    one.board.reset();
    take_board(one, process, *std::move(view));
  }
  if (!all.contains(one.report.process)) return;
  one.report.run_state = settled_state(one.report.process);
  one.report.outlives_main = outlives_main_thread(one.report.process);
}

bool has_stopped_process(pid_t worker, const ProcessParents& all) {
  return std::ranges::any_of(tree_of(worker, all),
                             [](pid_t process) { return state_of(process) == kStoppedBySignal; });
}

/// With Question::process_states, the rank is the launcher's: the board has that of the last job,
/// which may have been one of some ranks. Without a board, any process of the worker may be the
/// rank, as one below a shell.
Asked asked(pid_t worker, const ProcessParents& all, Question question) {
  Asked one;
  const Environment environment = environment_of(worker);
  const int rank = number_in(environment, "HOROVOD_RANK", -1);
  one.report.rank = rank;
  one.report.host = text_in(environment, "HOROVOD_HOSTNAME");
  one.report.worker = text_in(environment, "HOROVOD_WORKER");
  find_board(one, worker, all);
  one.report.kernel = kernel_place(one.report.process);
  if (question == Question::everything) return one;
  one.report.rank = rank;
  if (!one.board && has_stopped_process(worker, all)) one.report.run_state = kStoppedBySignal;
  return one;
}

/// To the main thread. A stopped process would take the signal when it continues.
void send(Asked& one) {
  if (!one.board || one.report.is_stopped()) return;
  const pid_t process = one.report.process;
  one.asked = one.board->header().asked;
  one.noticed = one.board->header().noticed;
  const int signal = one.board->header().signal;
  if (handles_signal(process, signal))
    one.is_sent = syscall(SYS_tgkill, process, process, signal) == 0;
}

/// If its main thread does not take the signal, any other one may: its engine then tells its state.
void send_to_any_thread(const Asked& one) {
  const pid_t process = one.report.process;
  const int signal = one.is_sent ? one.board->header().signal.load() : 0;
  if (signal == 0 || one.board->header().noticed != one.noticed) return;
  if (handles_signal(process, signal)) kill(process, signal);
}

void await(const std::vector<Asked>& all, milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < until &&
         !std::ranges::all_of(all, [](const Asked& one) { return one.is_done(); }))
    poll(nullptr, 0, kLookMilliseconds);
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxStackBytes, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0)));
  return text;
}

void read_stacks(Asked& one) {
  for (WrittenStack& written : parse_stacks(file_text(one.stack_file))) {
    if (written.is_main) {
      one.report.holds_gil = written.holds_gil;
      one.report.stack = std::move(written.frames);
    } else if (written.holds_gil) {
      one.report.gil_holder = std::move(written.frames);
    }
  }
}

/// A thread that sleeps and holds the GIL blocks all Python code. Asks the others one by one, since
/// they append to one file.
void look_for_gil_holder(const Asked& one) {
  if (!one.is_sent || !one.has_stack() || one.report.run_state == 'R') return;
  const pid_t process = one.report.process;
  const int signal = one.board->header().signal;
  int looks = kThreadLooks;
  for (const pid_t thread : sleeping_threads(process, signal)) {
    const uint32_t before = one.board->header().others;
    if (!handles_signal(process, signal) || syscall(SYS_tgkill, process, thread, signal) != 0)
      continue;
    while (one.board->header().others == before && looks-- > 0) poll(nullptr, 0, kLookMilliseconds);
  }
}

/// A process that writes while it is read leaves nothing to read.
void read_state(Asked& one) try {
  one.report.state = read_board_state(one.board->state());
  one.report.rank = one.report.state->rank;
} catch (const Error&) {
  one.report.state.reset();
}

void read_answers(Asked& one) {
  if (!one.is_sent) return;
  one.report.answers = one.has_stack();
  if (one.report.answers) read_stacks(one);
  if (one.has_state() && one.board->header().bytes > 0) read_state(one);
}

void ask(std::vector<Asked>& all, milliseconds patience) {
  for (Asked& one : all) send(one);
  await(all, patience / 2);
  for (const Asked& one : all) send_to_any_thread(one);
  await(all, patience / 2);
  for (const Asked& one : all) look_for_gil_holder(one);
  for (Asked& one : all) read_answers(one);
}

}  // namespace

bool has_called_init(pid_t process) {
  const auto view = board_of(process);
  return view && view->stage().stage() != RankStage::before_init;
}

std::vector<RankReport> collect_below(pid_t supervisor, milliseconds patience, Question question) {
  const auto processes = all_processes();
  std::vector<Asked> all;
  for (const pid_t worker : children_of(supervisor, processes)) {
    all.push_back(asked(worker, processes, question));
    const RankReport& report = all.back().report;
    if (report.rank < 0 && report.worker.empty() && !all.back().board) all.pop_back();  // an orphan
  }
  if (question == Question::everything) ask(all, patience);
  std::vector<RankReport> reports;
  for (Asked& one : all) reports.push_back(std::move(one.report));
  std::ranges::sort(reports, {}, &RankReport::rank);
  if (question != Question::everything) return reports;
  add_spied_stacks(reports, std::chrono::steady_clock::now() + kSpyTime);
  add_sources(reports, std::chrono::steady_clock::now() + kSourceTime);
  return reports;
}

}  // namespace hvd::launcher
