#include "launcher/remote/connect_back.h"

#include <fmt/core.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "core/transport/interfaces.h"
#include "core/transport/store_messages.h"

namespace hvd::launcher {
namespace {

constexpr int kLauncher = -1;
constexpr uint64_t kGateTag = 0, kDialerTag = 1;
/// Head start of the address from which ssh came: it nearly always works.
constexpr std::chrono::milliseconds kHeadStart{250};

/// Returns the interface of the near end of a connection; "" if it has none.
std::string interface_of(const FileDescriptor& socket) {
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  std::array<char, NI_MAXHOST> text{};
  if (getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text.data(), text.size(), nullptr, 0,
                  NI_NUMERICHOST) != 0)
    return "";
  for (const InterfaceAddress& one : interface_addresses())
    if (one.host == text.data()) return one.interface_name;
  return "";
}

}  // namespace

ConnectBack::ConnectBack(ConnectBackPlan plan, const JobKey& key)
    : plan_(std::move(plan)),
      gate_(key, {kStorePurpose, kLauncher, kStoreGeneration}),
      outcomes_(plan_.addresses.size()) {
  waiter_.watch(gate_.fd(), kGateTag);
  waiter_.watch(dialer_.fd(), kDialerTag);
  const auto found = std::ranges::find(plan_.addresses, plan_.first);
  if (found == plan_.addresses.end()) {
    dial_the_others();
    return;
  }
  first_ = static_cast<size_t>(found - plan_.addresses.begin());
  others_at_ = std::chrono::steady_clock::now() + kHeadStart;
  dial(*first_);
}

std::optional<TimePoint> ConnectBack::deadline() const { return others_at_; }

void ConnectBack::dial(size_t index) {
  dialer_.dial(static_cast<int>(index), {plan_.addresses[index], plan_.port});
}

void ConnectBack::dial_the_others() {
  others_at_.reset();
  for (size_t index = 0; index < plan_.addresses.size(); ++index)
    if (index != first_) dial(index);
}

std::optional<WayBack> ConnectBack::step(TimePoint now) {
  for (Dialed& dialed : dialer_.step()) {
    if (dialed.socket) {
      gate_.dial(std::move(dialed.socket), dialed.id);
    } else {
      fail(static_cast<size_t>(dialed.id), dialed.why);
    }
  }
  for (Arrival& arrival : gate_.step()) {
    const auto index = static_cast<size_t>(arrival.dialed_rank);
    if (!arrival.socket) {
      fail(index, fmt::format("connecting to {}: {}", to_text({plan_.addresses[index], plan_.port}),
                              arrival.failure));
      continue;
    }
    std::string name = interface_of(arrival.socket);
    if (plan_.interfaces.empty() ||
        std::ranges::find(plan_.interfaces, name) != plan_.interfaces.end())
      return WayBack{plan_.addresses[index], std::move(name), std::move(arrival.socket)};
    fail(index, fmt::format("{} is reached through {}, which --network-interfaces does not allow",
                            plan_.addresses[index], name));
  }
  if (others_at_ && now >= *others_at_) dial_the_others();
  return std::nullopt;
}

void ConnectBack::fail(size_t index, const std::string& why) {
  outcomes_[index] = why;
  if (others_at_) dial_the_others();
}

bool ConnectBack::failed() const {
  return !others_at_ && std::ranges::none_of(outcomes_, &std::string::empty);
}

std::vector<std::string> ConnectBack::told() const {
  std::vector<std::string> lines;
  for (size_t index = 0; index < outcomes_.size(); ++index)
    lines.push_back(!outcomes_[index].empty()
                        ? outcomes_[index]
                        : fmt::format("connecting to {}: no answer",
                                      to_text({plan_.addresses[index], plan_.port})));
  return lines;
}

}  // namespace hvd::launcher
