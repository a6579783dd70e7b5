// Ranks that run on this machine, below a supervisor, with a pipe for each of their outputs. The
// launcher has one for its own host, an agent has one for the host it is on.
#pragma once

#include <array>
#include <set>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/handshake.h"
#include "job/local/host_link.h"
#include "job/options/environment.h"
#include "job/process/binding.h"
#include "job/process/spawn.h"
#include "job/process/supervisor.h"

namespace hvd::job {

/// The same for all ranks, on whatever host.
struct RankCommand {
  std::string program;  ///< path of arguments[0]
  std::vector<std::string> arguments;
  Environment environment;  ///< common to all ranks, but for where to meet
};

/// What this host adds.
struct LocalPlan {
  int host = 0;               ///< in the order of the job's hosts
  std::vector<Place> places;  ///< those of this host
  Meeting meeting;            ///< the address of the Store is filled in at the start
  int rank_zero_input = -1;   ///< descriptor that rank 0 reads; -1: nothing
  Binding binding{};
};

/// What the user should know about this machine before ranks run on it; empty: nothing.
std::string warning_here();

class LocalLink final : public HostLink {
 public:
  LocalLink(const RankCommand& command, LocalPlan plan, const JobKey& key,
            const ProcessDefaults& defaults);

  int fd() const override { return events_.get(); }
  void take(HostNews& news) override;
  void tell_rows(std::vector<StartRow>& rows) const override;
  bool settled() const override { return true; }
  void start(const Address& store) override;
  void signal_all(int signal) override;
  void pause_output(bool paused) override;
  /// Rank 0 has what the plan says: a terminal stays one.
  std::optional<size_t> input_room() const override { return std::nullopt; }
  void give_input(std::string_view) override {}

 private:
  void add_program(SupervisorTask& task, const Place& place, const Environment& common);
  void take_output(std::vector<Chunk>& chunks);
  void take_messages(HostNews& news);
  void take_message(const SupervisorMessage& message, HostNews& news);
  bool read_pipe(size_t index, Stream stream, std::vector<Chunk>& chunks);
  void drain(size_t index, std::vector<Chunk>& chunks);
  void supervisor_lost(HostNews& news);

  const RankCommand& command_;
  LocalPlan plan_;
  const ProcessDefaults& defaults_;
  FileDescriptor key_file_, null_;
  Supervisor supervisor_;
  FileDescriptor events_, pipe_events_;
  std::vector<std::array<FileDescriptor, kStreams>> pipes_;  ///< by place
  std::vector<pid_t> running_;                               ///< by place; 0: not there
  std::vector<FileDescriptor> write_ends_;                   ///< until the supervisor has them
  bool paused_ = false;
};

}  // namespace hvd::job
