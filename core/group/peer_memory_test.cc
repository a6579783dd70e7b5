// A peer is a forked child that waits until it is killed; its memory has the addresses of ours.
#include "core/group/peer_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace hvd {
namespace {

class Child {
 public:
  explicit Child(void (*prepare)()) {
    std::array<int, 2> ready{};
    EXPECT_EQ(::pipe(ready.data()), 0);
    process_ = ::fork();
    if (process_ == 0) {
      prepare();
      if (::write(ready[1], "x", 1) == 1) ::pause();
      ::_exit(1);
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    for (const int end : ready) ::close(end);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() { kill(); }

  pid_t process() const { return process_; }
  void kill() {
    if (process_ == 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
};

std::vector<char> text(1 << 20, 'a');

uint64_t address_of_text() { return reinterpret_cast<uint64_t>(text.data()); }

TEST(PeerMemory, IsReadAsThePeerHasIt) {
  PeerMemory memory({10, 11});
  const Child child([] { text.assign(text.size(), 'b'); });
  PeerMemory::Invitation invitation = memory.invitation();  // the child has a copy of `memory`
  invitation.process = child.process();
  ASSERT_TRUE(memory.accept(1, invitation));
  std::vector<char> got(text.size());
  memory.read(1, reinterpret_cast<std::byte*>(got.data()), address_of_text(), got.size());
  EXPECT_EQ(got, std::vector<char>(got.size(), 'b'));
  EXPECT_EQ(text[0], 'a');
}

TEST(PeerMemory, IsNotReadWhereAnotherProcessHasThatNumber) {
  PeerMemory memory({10, 11});
  const PeerMemory other({10, 11});
  PeerMemory::Invitation invitation = memory.invitation();
  invitation.address = other.invitation().address;
  EXPECT_FALSE(memory.accept(1, invitation));
}

TEST(PeerMemory, IsNotReadWhereThereIsNoSuchProcessOrAddress) {
  PeerMemory memory({10, 11});
  Child child([] {});
  PeerMemory::Invitation invitation = memory.invitation();
  invitation.process = child.process();
  child.kill();
  EXPECT_FALSE(memory.accept(1, invitation));
  invitation = memory.invitation();
  invitation.address = 8;
  EXPECT_FALSE(memory.accept(1, invitation));
}

TEST(PeerMemory, NamesTheRankWhoseProcessHasEnded) {
  PeerMemory memory({10, 11});
  Child child([] {});
  PeerMemory::Invitation invitation = memory.invitation();
  invitation.process = child.process();
  ASSERT_TRUE(memory.accept(1, invitation));
  child.kill();
  std::byte byte{};
  try {
    memory.read(1, &byte, address_of_text(), 1);
    ADD_FAILURE() << "a process that has ended was read";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::peer_lost);
    EXPECT_EQ(error.rank(), 11);
    EXPECT_NE(std::string(error.what()).find("rank 11 is lost"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace hvd
