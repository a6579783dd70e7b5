#include "launcher/remote/agent_frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

using Kind = AgentFrame::Kind;

AgentFrame frame(Kind kind, size_t bytes) { return {kind, 7, ByteVector(bytes, std::byte{0x5a})}; }

ByteVector stream_of(const std::vector<AgentFrame>& frames, std::string_view before = "") {
  Writer out;
  out.put_bytes(as_bytes(before));
  for (const AgentFrame& one : frames) out.put_bytes(to_bytes(one));
  return out.take();
}

std::vector<AgentFrame> read_all(AgentFrameReader& reader, ConstBytes bytes, size_t portion) {
  std::vector<AgentFrame> found;
  while (!bytes.empty()) {
    const size_t size = std::min(portion, bytes.size());
    reader.add(bytes.first(size));
    bytes = bytes.subspan(size);
    while (auto one = reader.next()) found.push_back(*std::move(one));
  }
  return found;
}

TEST(AgentFrames, ComeOutWholeWhateverThePortions) {
  const std::vector<AgentFrame> frames{frame(Kind::hello, 0), frame(Kind::output, 3000),
                                       frame(Kind::exited, 8)};
  const ByteVector bytes = stream_of(frames);
  for (const size_t portion : {1, 2, 9, 10, 4096}) {
    AgentFrameReader reader(false);
    EXPECT_EQ(read_all(reader, bytes, portion), frames) << portion;
  }
}

TEST(AgentFrames, WhatALoginScriptPrintsBeforeIsSkippedAndKept) {
  AgentFrameReader reader(true);
  EXPECT_TRUE(read_all(reader, as_bytes("Welcome\n\x01horovodrun"), 3).empty());
  EXPECT_FALSE(reader.begun());
  EXPECT_EQ(reader.noise(), "Welcome\n\x01horovodrun");
  const auto rest = stream_of({frame(Kind::hello, 2)}, "\n" + std::string(kAgentPreamble));
  EXPECT_EQ(read_all(reader, rest, 5), std::vector{frame(Kind::hello, 2)});
  EXPECT_TRUE(reader.begun());
  EXPECT_EQ(reader.noise(), "");
}

TEST(AgentFrames, EndlessNoiseAndImpossibleFramesAreRefused) {
  AgentFrameReader noise(true);
  noise.add(ByteVector(kMaxNoiseBytes + 1));
  EXPECT_THROW(noise.next(), Error);
  Writer longer;
  longer.put(static_cast<uint32_t>(kMaxAgentFrameBytes + 1));
  longer.put(Kind::output);
  longer.put(uint32_t{0});
  AgentFrameReader limits(false);
  limits.add(longer.take());
  EXPECT_THROW(limits.next(), Error);
  AgentFrameReader kinds(false);
  kinds.add(ByteVector(9, std::byte{0xff}));
  EXPECT_THROW(kinds.next(), Error);
}

AgentSetup sample_setup() {
  AgentSetup setup;
  setup.key = make_job_key();
  setup.folder = "/home/a b";
  setup.command = {"python", "-c", "print('x')\n"};
  setup.environment = {{"A", "1"}, {"EMPTY", ""}, {"LINES", "a\nb"}};
  setup.interfaces = {"eth0"};
  setup.store_addresses = {"10.0.0.1", "fd00::1"};
  setup.store_port = 40000;
  setup.start_timeout_seconds = 30;
  setup.host_name = "h";
  setup.slots = 2;
  setup.binding = BindingWish::none;
  setup.elastic = true;
  return setup;
}

TEST(AgentPayloads, ComeOutAsTheyWentIn) {
  const AgentSetup setup = sample_setup();
  const AgentSetup read = read_setup(to_bytes(setup));
  EXPECT_EQ(read.key.bytes, setup.key.bytes);
  EXPECT_EQ(read.folder, setup.folder);
  EXPECT_EQ(read.command, setup.command);
  EXPECT_EQ(read.environment, setup.environment);
  EXPECT_EQ(read.interfaces, setup.interfaces);
  EXPECT_EQ(read.store_addresses, setup.store_addresses);
  EXPECT_EQ(read.store_port, setup.store_port);
  EXPECT_EQ(read.start_timeout_seconds, setup.start_timeout_seconds);
  EXPECT_EQ(read.host_name, setup.host_name);
  EXPECT_EQ(read.slots, setup.slots);
  EXPECT_EQ(read.binding, setup.binding);
  EXPECT_TRUE(read.elastic);

  const AgentHello hello{"1.2", "box"};
  EXPECT_EQ(read_hello(to_bytes(hello)), hello);
  const AgentReady ready{"10.0.0.1", "eth0", {"0-3", "4-7"}, "no", "no /proc"};
  EXPECT_EQ(read_ready(to_bytes(ready)), ready);
  const AgentRefusal refusal{StartStep::program, "no", {"try this", "or that"}};
  EXPECT_EQ(read_refusal(to_bytes(refusal)), refusal);
  const AgentEnd end{refusal, "the ssh to it was killed"};
  EXPECT_EQ(read_end(to_bytes(end)), end);
  const AgentStart start{{{{0, 2, 1}, {7, 3, 8, 1, 2, 0, 4}}, {{0, 0, 0}, {7, 4, 8, 0, 2, 1, 4}}}};
  EXPECT_EQ(read_start(to_bytes(start)), start);
  const AgentOutput output{5, 1, Stream::err, "line\n"};
  EXPECT_EQ(read_output(to_bytes(output)), output);
  const AgentWorkerNumber number{3, 1, -9};
  EXPECT_EQ(read_worker_number(to_bytes(number)), number);
  const AgentNumbers numbers{3, -9};
  EXPECT_EQ(read_numbers(to_bytes(numbers)), numbers);
}

AgentReach sample_reach() {
  AgentReach reach{.first = 3, .last = 9, .host = "node4", .ssh = {}};
  reach.ssh.agent = "/opt/horovodrun";
  reach.ssh.port = 2222;
  reach.ssh.identity = "key";
  reach.ssh.connect_timeout_seconds = 7;
  return reach;
}

TEST(AgentPayloads, SayHowAFurtherHostIsReached) {
  AgentReach reach = sample_reach();
  AgentReach read = read_reach(to_bytes(reach));
  EXPECT_EQ(agent_command(read.ssh, read.host, UnknownHost::accept),
            agent_command(reach.ssh, reach.host, UnknownHost::accept));
  EXPECT_EQ(std::pair(read.first, read.last), std::pair(3U, 9U));
  reach.ssh.port.reset();
  reach.ssh.identity.reset();
  read = read_reach(to_bytes(reach));
  EXPECT_EQ(agent_command(read.ssh, read.host, UnknownHost::accept),
            agent_command(reach.ssh, reach.host, UnknownHost::accept));
}

/// Readers reject invalid input by Error and by no other exception.
void read_as_anything(ConstBytes bytes) {
  const auto tried = [&](auto read) {
    try {
      read(bytes);
    } catch (const Error&) {
    }
  };
  tried(read_setup);
  tried(read_hello);
  tried(read_ready);
  tried(read_refusal);
  tried(read_output);
  tried(read_numbers);
  tried(read_worker_number);
  tried(read_start);
  tried(read_reach);
  tried(read_end);
  tried([](ConstBytes input) {
    AgentFrameReader reader(false);
    read_all(reader, input, 11);
  });
}

TEST(AgentPayloads, WorkersThatCannotBeAreRefused) {
  const auto refused = [](const AssignedWorker& worker) {
    try {
      read_start(to_bytes(AgentStart{{worker}}));
    } catch (const Error&) {
      return true;
    }
    return false;
  };
  const RankAssignment ranks{0, 1, 2, 0, 1, 0, 1};
  EXPECT_FALSE(refused({{0, 0}, ranks}));
  EXPECT_TRUE(refused({{0, -1}, ranks}));
  EXPECT_TRUE(refused({{0, 0, -1}, ranks}));
  EXPECT_TRUE(refused({{0, 0}, {0, 2, 2, 0, 1, 0, 1}})) << "rank 2 of 2";
  EXPECT_TRUE(refused({{0, 0}, {0, 1, 2, -1, 1, 0, 1}}));
  EXPECT_TRUE(refused({{0, 0}, {1 << 16, 1, 2, 0, 1, 0, 1}})) << "a generation beyond the last";
}

TEST(AgentPayloads, CutShortOrChangedNeverCrash) {
  const ByteVector end = to_bytes(AgentEnd{{StartStep::ssh, "no", {"try this"}}, "why"});
  const ByteVector start = to_bytes(AgentStart{{{{0, 2, 1}, {7, 3, 8, 1, 2, 0, 4}}}});
  for (const ByteVector& whole : {to_bytes(sample_setup()), to_bytes(sample_reach()), end, start}) {
    for (size_t place = 0; place < whole.size(); ++place) {
      read_as_anything(ConstBytes(whole).first(place));
      ByteVector other = whole;
      other[place] ^= std::byte{0x81};
      read_as_anything(other);
    }
  }
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    ByteVector bytes(random() % 200);
    for (std::byte& one : bytes) one = static_cast<std::byte>(random() % 7 * 41);
    read_as_anything(bytes);
  }
}

}  // namespace
}  // namespace hvd::launcher
