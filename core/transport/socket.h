// Opens sockets: TCP between hosts, abstract unix sockets within a host. Every blocking call has a
// deadline and is used only while a job starts. Afterwards Links own the sockets and never block.
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

/// Listens on `host`, or on all addresses (IPv6 and IPv4) if it is empty. Port 0 selects a free
/// port.
FileDescriptor listen_tcp(const std::string& host, uint16_t port);
uint16_t port_of(const FileDescriptor& socket);
/// Connects to the first reachable address of the host name. Throws Error{peer_lost} if none is
/// reachable, Error{timed_out}.
FileDescriptor connect_tcp(const Address& address, TimePoint deadline);
/// Connects like connect_tcp(), but on failure returns an empty descriptor and sets `why` to the
/// reason.
FileDescriptor try_connect_tcp(const Address& address, TimePoint deadline, std::string& why);
/// Sets keepalive so that a peer that disappears without a FIN (power or cable failure) is detected
/// after about `peer_timeout`.
void tune_tcp(const FileDescriptor& socket, std::chrono::seconds peer_timeout);

/// Selects a congestion control without pacing for connections within one machine. BBR, the default
/// of many hosts, spreads packets over time and slows bulk transfers over loopback (see
/// docs/decisions/0013). Connections to other machines are unchanged.
void prefer_bursts(const FileDescriptor& socket);

/// Abstract unix sockets: no file; the name is freed with the last descriptor.
FileDescriptor listen_unix(const std::string& name);
FileDescriptor connect_unix(const std::string& name, TimePoint deadline);
/// Like listen_unix() and connect_unix(), but if the name is taken or not there yet, returns an
/// empty descriptor with errno set instead of throwing. Waits if the listener's queue is full.
FileDescriptor try_listen_unix(const std::string& name);
FileDescriptor try_connect_unix(const std::string& name, TimePoint deadline);
/// Like try_connect_unix(), from a socket bound to `own_name`, which the listener can read from the
/// connection.
FileDescriptor try_connect_unix_as(const std::string& own_name, const std::string& name,
                                   TimePoint deadline);

/// Accepts a waiting connection; returns an empty descriptor with errno set if there is none.
FileDescriptor accept_one(const FileDescriptor& listener);
/// Returns whether accept failed with `error` because there was no descriptor or memory for a
/// waiting connection.
bool is_out_of_resources(int error);

bool is_unix(const FileDescriptor& socket);
/// The numeric address of the peer, for messages; "this host" for a unix socket.
std::string peer_address(const FileDescriptor& socket);
/// The process at the other end of a unix socket, as recorded by the kernel at connect or listen.
/// The PID is that of this PID namespace.
struct PeerProcess {
  uid_t user = 0;     ///< effective user ID
  pid_t process = 0;  ///< 0: not visible in this PID namespace
};
/// Returns nullopt if the kernel does not report it.
std::optional<PeerProcess> peer_at(const FileDescriptor& socket);
std::optional<uid_t> user_at(const FileDescriptor& socket);

/// A connection accepted on a unix socket.
struct Visitor {
  FileDescriptor socket;              ///< empty, with errno set, if none was waiting
  std::optional<PeerProcess> peer{};  ///< the connecting process
  std::string name{};                 ///< name of the peer's abstract socket; "": none

  bool is_of_this_user() const;
};
Visitor accept_visitor(const FileDescriptor& listener);
/// Sends a few bytes, which fit into the buffer of a new socket. Ignores a peer that has already
/// closed.
void answer_shortly(const Visitor& visitor, ConstBytes bytes);

/// Returns false at the deadline. `events` as in poll(2).
bool wait_until_ready(int fd, short events, TimePoint deadline);

/// These throw Error{timed_out}, and Error{peer_lost} if the peer closes the connection; the error
/// text begins with `doing`.
void send_all(int fd, ConstBytes bytes, TimePoint deadline, const std::string& doing);
void receive_exactly(int fd, MutableBytes bytes, TimePoint deadline, const std::string& doing);
/// Receives until the peer closes the connection, at most `most` bytes.
ByteVector receive_all(int fd, size_t most, TimePoint deadline, const std::string& doing);

inline constexpr size_t kMaxPassedDescriptors = 8;
/// Sends and receives descriptors over a unix socket. They are attached to the first of `bytes`,
/// which must not be empty.
void send_with_descriptors(int fd, ConstBytes bytes, std::span<const int> descriptors,
                           TimePoint deadline, const std::string& doing);
std::vector<FileDescriptor> receive_with_descriptors(int fd, MutableBytes bytes, TimePoint deadline,
                                                     const std::string& doing);

/// Runs `handshake` to its end; returns the peer's Hello. Throws what Handshake throws,
/// Error{timed_out}, and Error{unauthorized} if the peer closes the connection, which is how it
/// rejects an unauthenticated peer.
Hello authenticate(int fd, Handshake& handshake, TimePoint deadline);

}  // namespace hvd
