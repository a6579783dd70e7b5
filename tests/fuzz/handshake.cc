// The proof of the job's key: against somebody who sends anything, and against somebody who alters
// what two honest sides say. Neither comes through.
#include "core/transport/handshake.h"

#include <algorithm>

#include "tests/fuzz/target.h"

namespace hvd::fuzz {
namespace {

using Role = Handshake::Role;
enum class Way : uint8_t { to_acceptor, to_dialer, between, between_encrypted };
constexpr uint8_t kWays = 4;

JobKey key() {
  JobKey key;
  for (size_t i = 0; i < key.bytes.size(); ++i) key.bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return key;
}

Handshake side(Role role, Encryption encryption = Encryption::off) {
  return Handshake(role, key(), {"data", role == Role::dialer, 5, encryption});
}

void talk_alone(Role role, Input input) {
  Handshake honest = side(role);
  honest.start();
  accepted([&] {
    while (honest.wanted() > 0 && !input.empty()) {
      const size_t portion = size_t{1} + input.byte();
      honest.feed(input.piece(std::min(portion, honest.wanted())));
    }
  });
  must(!honest.peer(), "nobody comes through without the key");
}

/// Alters some bytes of `message`, or none.
void alter(ByteVector& message, Input& input) {
  for (int times = input.byte() % 4; times > 0; --times) {
    const size_t place = input.byte() % message.size();
    message[place] ^= static_cast<std::byte>(input.byte());
  }
}

/// What `to` answers to a message, of which it reads no more than it wants.
ByteVector answer_to(ConstBytes message, Handshake& to) {
  ByteVector answer;
  while (!message.empty() && to.wanted() > 0) {
    const size_t portion = std::min(message.size(), to.wanted());
    const ByteVector said = to.feed(message.first(portion));
    answer.insert(answer.end(), said.begin(), said.end());
    message = message.subspan(portion);
  }
  return answer;
}

void talk_through_another(Input input, Encryption encryption) {
  Handshake dialer = side(Role::dialer, encryption);
  Handshake acceptor = side(Role::acceptor, Encryption::as_dialed);
  ByteVector message = dialer.start();
  bool altered = false;
  accepted([&] {
    Handshake* to = &acceptor;
    while (!message.empty()) {
      const ByteVector honest = message;
      alter(message, input);
      altered |= message != honest;
      message = answer_to(message, *to);
      to = to == &acceptor ? &dialer : &acceptor;
    }
  });
  const bool both = dialer.peer() && acceptor.peer();  // otherwise one is refused, or waits
  must(both != altered, "both sides come through exactly when nothing was altered");
}

void take(ConstBytes bytes) {
  Input input(bytes);
  switch (static_cast<Way>(input.byte() % kWays)) {
    case Way::to_acceptor:
      return talk_alone(Role::acceptor, input);
    case Way::to_dialer:
      return talk_alone(Role::dialer, input);
    case Way::between:
      return talk_through_another(input, Encryption::off);
    case Way::between_encrypted:
      return talk_through_another(input, Encryption::on);
  }
}

/// A whole challenge of the other side, in portions, and the begin of a proof.
ByteVector alone(Way way, Role other) {
  constexpr size_t kRolePlace = 5;  // as docs/wire.md has it
  ByteVector challenge = side(Role::dialer).start();
  challenge[kRolePlace] = static_cast<std::byte>(other);
  Writer out;
  out.put(way);
  out.put(static_cast<uint8_t>(challenge.size() - 1));
  out.put_bytes(challenge);
  out.put_bytes(ByteVector(60, std::byte{55}));
  return out.take();
}

std::vector<ByteVector> samples() {
  const auto between = [](std::string_view changes, Way way = Way::between) {
    Writer out;
    out.put(way);
    out.put_bytes(as_bytes(changes));
    return out.take();
  };
  return {alone(Way::to_acceptor, Role::dialer), alone(Way::to_dialer, Role::acceptor), between(""),
          between({"\0\0\1\24\1", 5}), between("", Way::between_encrypted)};
}

}  // namespace

const Target handshake{"handshake", take, samples};

}  // namespace hvd::fuzz
