// The peer is a forked child that waits until it is killed; its memory has the same addresses.
#include "core/group/peer_memory.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <vector>

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
  PeerMemory memory(2);
  const Child child([] { text.assign(text.size(), 'b'); });
  PeerMemory::Invitation invitation = memory.invitation();  // the child has a copy of `memory`
  invitation.process = child.process();
  ASSERT_TRUE(memory.accept(1, invitation));
  std::vector<char> got(text.size());
  auto* const to = reinterpret_cast<std::byte*>(got.data());
  EXPECT_EQ(memory.read(1, to, address_of_text(), got.size()), 0);
  EXPECT_EQ(got, std::vector<char>(got.size(), 'b'));
  EXPECT_EQ(text[0], 'a');
}

TEST(PeerMemory, IsWrittenAsThePeerThenReadsIt) {
  PeerMemory memory(2);
  const Child child([] {});
  PeerMemory::Invitation invitation = memory.invitation();
  invitation.process = child.process();
  ASSERT_TRUE(memory.accept(1, invitation));
  std::vector<std::byte> sent(text.size(), std::byte{'c'}), got(text.size());
  EXPECT_EQ(memory.write(1, address_of_text(), sent.data(), sent.size()), 0);
  EXPECT_EQ(memory.read(1, got.data(), address_of_text(), got.size()), 0);
  EXPECT_EQ(got, sent);
  EXPECT_EQ(text[0], 'a');
}

TEST(PeerMemory, IsNotTakenWhereItCannotBeWritten) {
  const PeerMemory other(2);
  static const uint64_t constant = 42;  // in a read-only page
  PeerMemory memory(2);
  PeerMemory::Invitation invitation = other.invitation();
  invitation.address = reinterpret_cast<uint64_t>(&constant);
  invitation.number = constant;
  EXPECT_FALSE(memory.accept(1, invitation));
}

TEST(PeerMemory, IsNotReadWhereAnotherProcessHasThatNumber) {
  PeerMemory memory(2);
  const PeerMemory other(2);
  PeerMemory::Invitation invitation = memory.invitation();
  invitation.address = other.invitation().address;
  EXPECT_FALSE(memory.accept(1, invitation));
}

TEST(PeerMemory, IsNotReadWhereThereIsNoSuchProcessOrAddress) {
  PeerMemory memory(2);
  Child child([] {});
  PeerMemory::Invitation invitation = memory.invitation();
  invitation.process = child.process();
  child.kill();
  EXPECT_FALSE(memory.accept(1, invitation));
  invitation = memory.invitation();
  invitation.address = 8;
  EXPECT_FALSE(memory.accept(1, invitation));
}

TEST(PeerMemory, SaysWhenTheProcessHasEndedAndWhenNothingLiesThere) {
  PeerMemory memory(2);
  Child child([] {});
  PeerMemory::Invitation invitation = memory.invitation();
  invitation.process = child.process();
  ASSERT_TRUE(memory.accept(1, invitation));
  std::byte byte{};
  EXPECT_EQ(memory.read(1, &byte, 8, 1), EFAULT);
  EXPECT_EQ(memory.write(1, 8, &byte, 1), EFAULT);
  child.kill();
  EXPECT_EQ(memory.read(1, &byte, address_of_text(), 1), ESRCH);
  EXPECT_EQ(memory.write(1, address_of_text(), &byte, 1), ESRCH);
}

}  // namespace
}  // namespace hvd
