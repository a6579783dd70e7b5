// Opening sockets: TCP between hosts, abstract unix sockets within one. Everything that sleeps here
// has a deadline, and is used while a job starts only; afterwards sockets belong to Links and never
// block.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/handshake.h"

namespace hvd {

struct Address {
  std::string host;  ///< name, IPv4 or IPv6
  uint16_t port = 0;
  bool operator==(const Address&) const = default;
};
std::string to_text(const Address& address);  // "host:7", "[::1]:7"

/// Listens on `host`, or on all addresses (v6 and v4) when it is empty; port 0 takes a free one.
FileDescriptor listen_tcp(const std::string& host, uint16_t port);
uint16_t port_of(const FileDescriptor& socket);
/// Tries every address of the name. Throws Error{peer_lost} when none answers, Error{timed_out}.
FileDescriptor connect_tcp(const Address& address, TimePoint deadline);
/// The same where another address may be tried next: empty, and the reason in `why`, instead of an
/// Error.
FileDescriptor try_connect_tcp(const Address& address, TimePoint deadline, std::string& why);
/// A peer that vanishes without a word (no FIN: power, cable) is noticed after about
/// `peer_timeout`.
void tune_tcp(const FileDescriptor& socket, std::chrono::seconds peer_timeout);

/// For bulk data between two processes of one machine: a congestion control that does not pace.
/// Nothing is congested there, but BBR, the default of many hosts, spreads packets over time:
/// two ranks that exchange 32 MiB over loopback need 16.7 ms with it, 8.2 with Reno. Nothing
/// happens to a connection that leaves the machine.
void prefer_bursts(const FileDescriptor& socket);

/// Abstract: no file, gone with the last descriptor.
FileDescriptor listen_unix(const std::string& name);
FileDescriptor connect_unix(const std::string& name, TimePoint deadline);
/// The same where the name may be taken, or not be there yet: empty, with errno, instead of an
/// Error. A listener whose queue is full is waited for.
FileDescriptor try_listen_unix(const std::string& name);
FileDescriptor try_connect_unix(const std::string& name, TimePoint deadline);

/// A waiting connection, or an empty one, with errno, when there is none now.
FileDescriptor accept_one(const FileDescriptor& listener);
/// Of a failed accept: a connection waits, and there is no descriptor or no memory for it.
bool is_out_of_resources(int error);

bool is_unix(const FileDescriptor& socket);
/// Of a unix socket: the effective user at the other end, as the kernel noted it when that process
/// connected or listened. Nothing when it does not say.
std::optional<uid_t> user_at(const FileDescriptor& socket);

/// False at the deadline. `events` as in poll(2).
bool wait_until_ready(int fd, short events, TimePoint deadline);

/// These throw Error{timed_out}, and Error{peer_lost} when the other side goes away; `doing` begins
/// the text.
void send_all(int fd, ConstBytes bytes, TimePoint deadline, const std::string& doing);
void receive_exactly(int fd, MutableBytes bytes, TimePoint deadline, const std::string& doing);

inline constexpr size_t kMaxPassedDescriptors = 8;
/// Over a unix socket: the descriptors travel with the first of `bytes`, which are not empty.
void send_with_descriptors(int fd, ConstBytes bytes, std::span<const int> descriptors,
                           TimePoint deadline, const std::string& doing);
std::vector<FileDescriptor> receive_with_descriptors(int fd, MutableBytes bytes, TimePoint deadline,
                                                     const std::string& doing);

/// Drives `handshake` to its end; returns who is there. Throws what Handshake throws,
/// Error{timed_out}, and Error{unauthorized} when the other side hangs up, which is all that it
/// does to a stranger.
Hello authenticate(int fd, Handshake& handshake, TimePoint deadline);

}  // namespace hvd
