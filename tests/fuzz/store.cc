// A StoreServer and its clients: one without the key, which must not change anything, and a rank
// that proves the key and then sends arbitrary data.
#include <sys/socket.h>

#include "core/transport/channel.h"
#include "core/transport/handshake.h"
#include "core/transport/socket.h"
#include "core/transport/store_messages.h"
#include "core/transport/store_server.h"
#include "core/transport/tcp_link.h"
#include "tests/fuzz/target.h"

namespace hvd::fuzz {
namespace {

using std::chrono_literals::operator""s;

enum class Way : uint8_t { stranger, frames, requests };
constexpr uint8_t kWays = 3;
constexpr int kRank = 1;

TimePoint soon() { return std::chrono::steady_clock::now() + 10s; }

/// A server with one key of its own, and one connection to it.
class Visit {
 public:
  Visit() : key_(make_job_key()), server_(key_, "127.0.0.1", 0) {
    server_.set("own", as_bytes("value"));
    socket_ = connect_tcp({"127.0.0.1", server_.port()}, soon());
    // Closed by a reset: thousands of visits a second must not each leave a port in TIME_WAIT.
    const linger at_once{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    settle();
  }

  void prove_key() {
    Handshake handshake(Handshake::Role::dialer, key_, {kStorePurpose, kRank, kStoreGeneration});
    send(handshake.start());
    while (handshake.wanted() > 0) {
      settle();
      ByteVector answer(handshake.wanted());
      receive_exactly(socket_.get(), answer, soon(), "the store's answer");
      send(handshake.feed(answer));
    }
    settle();
  }

  /// What does not fit is lost: a server may hang up at any time.
  void send(ConstBytes bytes) {
    ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  /// On loopback what was sent is there at once; two steps take in what a first one has let in.
  void settle() {
    server_.step();
    server_.step();
  }

  const StoreServer& server() const { return server_; }

  /// The connection, to speak in frames.
  Channel channel() {
    return Channel(std::make_unique<TcpLink>(std::move(socket_), kNoRank), kNoRank,
                   kStoreGeneration);
  }

 private:
  JobKey key_;
  StoreServer server_;
  FileDescriptor socket_;
};

void visit_as_stranger(Input input) {
  Visit visit;
  while (!input.empty()) {
    visit.send(input.piece(size_t{1} + input.byte()));
    visit.settle();
  }
  must(visit.server().matching("").size() == 1, "a stranger changes nothing");
}

void visit_with_frames(Input input) {
  Visit visit;
  visit.prove_key();
  while (!input.empty()) {
    visit.send(input.piece(size_t{1} + input.byte()));
    visit.settle();
  }
  must(visit.server().peek("own").has_value(), "a key stays");
}

void visit_with_requests(Input input) {
  Visit visit;
  visit.prove_key();
  Channel channel = visit.channel();
  accepted([&] {
    while (!input.empty()) {
      const ConstBytes request = input.piece(input.byte());
      channel.send(FrameKind::control, {request.begin(), request.end()});
      visit.settle();
      while (channel.pump()) {
        while (const auto reply = channel.receive()) read_store_reply(reply->payload);
      }
    }
  });
  must(visit.server().peek("own").has_value(), "a key stays");
}

void take(ConstBytes bytes) {
  Input input(bytes);
  switch (static_cast<Way>(input.byte() % kWays)) {
    case Way::stranger:
      return visit_as_stranger(input);
    case Way::frames:
      return visit_with_frames(input);
    case Way::requests:
      return visit_with_requests(input);
  }
}

/// `length_code` as the way reads it, then `bytes`.
void put_portion(Writer& out, size_t length_code, ConstBytes bytes) {
  out.put(static_cast<uint8_t>(length_code));
  out.put_bytes(bytes);
}

ByteVector sample_of_stranger() {
  Handshake other(Handshake::Role::dialer, JobKey{}, {kStorePurpose, kRank, kStoreGeneration});
  const ByteVector challenge = other.start();
  Writer out;
  out.put(Way::stranger);
  put_portion(out, challenge.size() - 1, challenge);
  return out.take();
}

/// As docs/wire.md has them.
ByteVector sample_of_frames() {
  const ByteVector request = to_bytes(StoreRequest{1, StoreOperation::set, "a", as_bytes("1")});
  Writer frame;
  frame.put(uint32_t{0x31445648});
  frame.put(uint8_t{1});
  frame.put(FrameKind::control);
  frame.put(uint16_t{0});
  frame.put(kStoreGeneration);
  frame.put(static_cast<uint32_t>(request.size()));
  frame.put_bytes(request);
  const ByteVector whole = frame.take();
  Writer out;
  out.put(Way::frames);
  put_portion(out, whole.size() - 1, whole);
  return out.take();
}

ByteVector sample_of_requests() {
  const StoreRequest requests[] = {{1, StoreOperation::set, "a", as_bytes("1")},
                                   {2, StoreOperation::wait, "a", {}},
                                   {3, StoreOperation::peek, "b", {}},
                                   {4, StoreOperation::wait, "own", {}}};
  Writer out;
  out.put(Way::requests);
  for (const StoreRequest& request : requests) {
    const ByteVector bytes = to_bytes(request);
    put_portion(out, bytes.size(), bytes);
  }
  return out.take();
}

std::vector<ByteVector> samples() {
  return {sample_of_stranger(), sample_of_frames(), sample_of_requests()};
}

}  // namespace

const Target store{"store", take, samples};

}  // namespace hvd::fuzz
