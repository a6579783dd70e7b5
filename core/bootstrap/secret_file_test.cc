#include "core/bootstrap/secret_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <future>
#include <thread>

#include "core/base/error.h"
#include "core/bootstrap/secret_file_testing.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/hex_testing.h"

namespace hvd {
namespace {

using namespace std::chrono_literals;
using test::SecretFile;

std::string refusal_of(const Knobs& knobs) {
  try {
    shared_key(knobs, {"node1", 7});
    return "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::unauthorized);
    return error.what();
  }
}

TEST(SecretFile, IsNeededUnlessTheUserWantsNone) {
  Knobs knobs;
  const std::string text = refusal_of(knobs);
  EXPECT_NE(text.find("HOROVOD_SECRET_FILE"), std::string::npos) << text;
  EXPECT_NE(text.find("node1:7"), std::string::npos) << text;
  knobs.no_secret = true;
  EXPECT_EQ(refusal_of(knobs), "no error");
}

TEST(SecretFile, ThatCannotBeASecretIsRefused) {
  Knobs knobs;
  knobs.secret_file = "/nonesuch";
  EXPECT_NE(refusal_of(knobs).find("No such file"), std::string::npos);
  {
    const SecretFile open("0123456789abcdef0123456789abcdef\n", 0644);
    knobs.secret_file = open.path();
    EXPECT_NE(refusal_of(knobs).find("chmod 600"), std::string::npos);
  }
  const SecretFile brief("short\n");
  knobs.secret_file = brief.path();
  EXPECT_NE(refusal_of(knobs).find("5 bytes"), std::string::npos);
}

TEST(SecretFile, ThatIsNotARegularFileIsRefusedAtOnce) {
  const std::string path = fmt::format("{}/horovod-fifo-{}", ::testing::TempDir(), ::getpid());
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  Knobs knobs;
  knobs.secret_file = path;
  std::promise<std::string> refused;
  std::thread reading([&] { refused.set_value(refusal_of(knobs)); });
  auto answer = refused.get_future();
  if (answer.wait_for(60s) != std::future_status::ready) {
    ADD_FAILURE() << "it waits for somebody to write";
    const FileDescriptor writer(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  }
  EXPECT_NE(answer.get().find("is a FIFO, not a regular file"), std::string::npos);
  reading.join();
  ::unlink(path.c_str());
  knobs.secret_file = "/dev/zero";
  EXPECT_NE(refusal_of(knobs).find("is a device, not a regular file"), std::string::npos);
}

TEST(SecretFile, OfAnotherUserIsRefusedEvenToRoot) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give a file to another user";
  const SecretFile theirs("0123456789abcdef0123456789abcdef\n");
  ASSERT_EQ(::chown(theirs.path().c_str(), 65534, 65534), 0);
  Knobs knobs;
  knobs.secret_file = theirs.path();
  const std::string text = refusal_of(knobs);
  EXPECT_NE(text.find("belongs to user 65534"), std::string::npos) << text;
  EXPECT_NE(text.find("chown 0 " + theirs.path()), std::string::npos) << text;
}

TEST(SecretFile, IsNotTruncated) {
  const SecretFile longer(std::string(5000, 'x'));
  Knobs knobs;
  knobs.secret_file = longer.path();
  const std::string text = refusal_of(knobs);
  EXPECT_NE(text.find("5000 bytes"), std::string::npos) << text;
  EXPECT_NE(text.find("4096"), std::string::npos) << text;
}

// Computed with the hashlib module of Python.
TEST(SecretFile, GivesItsSha256AsKey) {
  const SecretFile file("0123456789abcdef0123456789abcdef\n");
  Knobs knobs;
  knobs.secret_file = file.path();
  EXPECT_EQ(as_hex(shared_key(knobs, {"node1", 7}).bytes),
            "ed3c9a953674ee1c497c46d3df9f268b84a0dbef935a9fadb556f3fe4af537ae");
}

TEST(SecretFile, MayEndWithANewline) {
  Knobs knobs;
  const auto key_of = [&](const std::string& text) {
    const SecretFile file(text);
    knobs.secret_file = file.path();
    return shared_key(knobs, {"node1", 7}).bytes;
  };
  EXPECT_EQ(key_of("0123456789abcdef"), key_of("0123456789abcdef\n"));
  EXPECT_NE(key_of("0123456789abcdef"), key_of("0123456789abcdeF"));
}

}  // namespace
}  // namespace hvd
