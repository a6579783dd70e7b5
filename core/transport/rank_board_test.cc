#include "core/transport/rank_board.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <string_view>
#include <thread>

#include "core/base/error.h"
#include "core/transport/board_state.h"

namespace hvd {
namespace {

constexpr int kSignal = 59;

BoardState some_state() {
  return {.rank = 3,
          .size = 4,
          .generation = 1,
          .step = 17,
          .batches = 450,
          .has_joined = true,
          .has_ended = true,
          .pending = {{.name = "grad.fc.weight",
                       .what = "allreduce float32 [4, 2]",
                       .between = {0, 3},
                       .age = std::chrono::milliseconds(1500),
                       .is_agreed = true,
                       .is_call = true}},
          .more_pending = 2,
          .last = {{"grad.fc.bias", "allreduce", std::chrono::milliseconds(7)}},
          .last_failure = "shapes differ",
          .since_failure = std::chrono::milliseconds(9),
          .silent = {{2, std::chrono::milliseconds(4100)}}};
}

TEST(BoardState, ReadsWhatItWrites) {
  EXPECT_EQ(read_board_state(to_bytes(some_state())), some_state());
  EXPECT_EQ(read_board_state(to_bytes(BoardState{})), BoardState{});
}

TEST(BoardState, CutsLongNames) {
  BoardState state;
  state.last.push_back({std::string(5000, 'x'), "", {}});
  EXPECT_EQ(read_board_state(to_bytes(state)).last.front().name, std::string(1000, 'x'));
}

TEST(BoardState, RejectsWhatIsCutOff) {
  const ByteVector bytes = to_bytes(some_state());
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THROW(read_board_state(ConstBytes(bytes).first(size)), Error) << size;
}

/// Runs `body` in a process of its own, since a process has one board. Returns its exit code.
template <class Body>
int in_child(Body body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool is_rung(int fd) {
  pollfd watched{fd, POLLIN, 0};
  return poll(&watched, 1, 0) == 1;
}

int writes_to = -1;

TEST(RankBoard, ASignalRingsTheDoorbellAndWritesTheStack) {
  EXPECT_EQ(in_child([] {
              RankBoard* const board = RankBoard::of_this_process(kSignal);
              writes_to = board->stack_fd();
              signal(kSignal, [](int) { static_cast<void>(!write(writes_to, "here", 4)); });
              board->arm();
              const int doorbell = eventfd(0, EFD_NONBLOCK);
              board->set_doorbell(doorbell);
              if (board->is_asked() || is_rung(doorbell)) return 1;
              raise(kSignal);
              raise(kSignal);  // the stack is that of the last one
              char text[8] = {};
              if (pread(writes_to, text, sizeof text, 0) != 4) return 2;
              if (!board->is_asked() || !is_rung(doorbell)) return 3;
              board->tell(to_bytes(BoardState{}));
              return board->is_asked() ? 4 : 0;
            }),
            0);
}

TEST(RankBoard, LeavesASignalThatHasAHandlerAlone) {
  EXPECT_EQ(in_child([] {
              static int calls = 0;
              signal(kSignal, [](int) { ++calls; });
              RankBoard* const board = RankBoard::of_this_process(kSignal);
              board->arm();
              raise(kSignal);
              return board->signal() == 0 && calls == 1 && !board->is_asked() ? 0 : 1;
            }),
            0);
}

TEST(RankBoard, LeavesASignalThatTheScriptTakesLaterAlone) {
  EXPECT_EQ(in_child([] {
              RankBoard* const board = RankBoard::of_this_process(kSignal);
              board->arm();
              RankBoard::enter(RankStage::running);
              if (board->signal() != kSignal) return 1;
              signal(kSignal, [](int) {});
              RankBoard::end_running(RankStage::failed);
              return board->signal() == 0 ? 0 : 2;
            }),
            0);
}

/// Of the board of this process, as another one reads it.
const BoardHeader* header_of(pid_t process) {
  for (int fd = 3; fd < 64; ++fd) {
    const std::string link = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(fd);
    char target[64] = {};
    if (readlink(link.c_str(), target, sizeof target - 1) <= 0) continue;
    if (!std::string_view(target).starts_with("/memfd:horovod-board")) continue;
    void* const mapped = mmap(nullptr, kBoardBytes, PROT_READ, MAP_SHARED, fd, 0);
    return static_cast<const BoardHeader*>(mapped);
  }
  return nullptr;
}

TEST(RankBoard, ShowsTheStageAndItsBeginning) {
  EXPECT_EQ(in_child([] {
              RankBoard::enter(RankStage::in_init);  // no board, no harm
              RankBoard* const board = RankBoard::of_this_process(kSignal);
              const BoardHeader* const header = header_of(getpid());
              if (header == nullptr || header->rank != -1) return 1;
              if (header->stage.load().stage() != RankStage::before_init) return 2;
              board->set_rank(3);
              RankBoard::enter(RankStage::failed);
              const StageWord first = header->stage.load();
              if (header->rank != 3 || first.stage() != RankStage::failed) return 3;
              poll(nullptr, 0, 5);
              RankBoard::enter(RankStage::failed);
              if (header->stage.load().since() != first.since()) return 4;
              RankBoard::enter(RankStage::running);
              if (header->stage.load().since() < first.since() + std::chrono::milliseconds(4))
                return 5;
              RankBoard::enter(RankStage::in_shutdown);
              RankBoard::end_running(RankStage::over);
              return header->stage.load().stage() == RankStage::in_shutdown ? 0 : 6;
            }),
            0);
}

TEST(RankBoard, AnotherThreadRingsAndAppendsItsStack) {
  EXPECT_EQ(in_child([] {
              RankBoard* const board = RankBoard::of_this_process(kSignal);
              writes_to = board->stack_fd();
              signal(kSignal, [](int) { static_cast<void>(!write(writes_to, "here", 4)); });
              board->arm();
              raise(kSignal);
              std::thread([] { raise(kSignal); }).join();
              char text[16] = {};
              return board->is_asked() && pread(writes_to, text, sizeof text, 0) == 8 ? 0 : 1;
            }),
            0);
}

TEST(RankBoard, AForkedChildHasNoneUntilItIsARankItself) {
  EXPECT_EQ(in_child([] {
              RankBoard* const parents = RankBoard::of_this_process(kSignal);
              parents->arm();
              return in_child([parents] {
                raise(kSignal);  // no harm
                if (RankBoard::here() != nullptr || parents->is_asked()) return 1;
                RankBoard* const own = RankBoard::of_this_process(kSignal);
                own->arm();
                raise(kSignal);
                return own != parents && own->is_asked() && !parents->is_asked() ? 0 : 2;
              });
            }),
            0);
}

}  // namespace
}  // namespace hvd
