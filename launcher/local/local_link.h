// Workers on this machine, below a supervisor, with one pipe per output stream. The launcher has
// one for its own host, an agent has one for its host.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/knobs.h"
#include "core/transport/file_descriptor.h"
#include "core/transport/handshake.h"
#include "launcher/local/dump_run.h"
#include "launcher/local/host_link.h"
#include "launcher/options/environment.h"
#include "launcher/process/binding.h"
#include "launcher/process/spawn.h"
#include "launcher/process/supervisor.h"

namespace hvd::launcher {

/// Common to all workers, on every host.
struct RankCommand {
  std::string program;  ///< path of arguments[0]
  std::vector<std::string> arguments;
  Environment environment;  ///< without the variables of the host and of the rank
};

/// The values of this host.
struct LocalPlan {
  int host = 0;              ///< in the order of the job's hosts
  std::string host_name{};   ///< as the user wrote it
  StoreAddress store{};      ///< the address is filled in when workers are started
  int rank_zero_input = -1;  ///< descriptor of its standard input; -1: none
  Binding binding{};
  bool elastic = false;  ///< the number of workers may change
  bool is_far = false;   ///< the launcher is on another host
};

/// Returns a warning about this machine for the user; empty if there is none.
std::string warning_here();

class LocalLink final : public HostLink {
 public:
  LocalLink(const RankCommand& command, LocalPlan plan, const JobKey& key,
            const ProcessDefaults& defaults);

  int fd() const override { return events_.get(); }
  void take(HostNews& news) override;
  void tell_rows(std::vector<StartRow>& rows) const override;
  bool settled() const override { return true; }
  void start_workers(std::span<const AssignedWorker> workers, const Address& store) override;
  void no_more_workers() override;
  void signal(const WorkerId& worker, int signal) override;
  void signal_all(int signal) override;
  void ask_for_dumps(Question question, std::set<int>& hosts) override;
  void pause_output(bool paused) override;
  /// Rank 0 inherits the plan's descriptor itself, so that a terminal remains a terminal.
  std::optional<size_t> input_room() const override { return std::nullopt; }
  void give_input(std::string_view) override {}

 private:
  struct Worker {
    WorkerId id;
    pid_t pid = 0;  ///< 0: it has ended
    std::array<FileDescriptor, kStreams> pipes{};
    bool is_over() const { return pid == 0 && !pipes[0] && !pipes[1]; }
  };
  /// The write ends of its pipes, until the supervisor has them.
  using WriteEnds = std::vector<FileDescriptor>;

  void start_supervisor();
  void take_store(const Address& store);
  Environment common_variables() const;
  Environment variables_of(const AssignedWorker& worker, const Environment& common) const;
  void forget_earlier(const WorkerId& worker);
  WorkerProgram add_worker(int index, const AssignedWorker& worker, const Environment& common,
                           WriteEnds& write_ends);
  void take_output(std::vector<Chunk>& chunks);
  void take_dump(std::vector<HostDump>& dumps);
  void end_dump_run();
  void take_messages(HostNews& news);
  void take_message(const SupervisorMessage& message, HostNews& news);
  bool read_pipe(Worker& worker, Stream stream, std::vector<Chunk>& chunks);
  void drain(Worker& worker, std::vector<Chunk>& chunks);
  void drain_all(std::vector<Chunk>& chunks);
  void supervisor_lost(HostNews& news);

  const RankCommand& command_;
  LocalPlan plan_;
  const ProcessDefaults& defaults_;
  const JobKey key_;
  const std::string keeper_;
  FileDescriptor null_;
  std::optional<Supervisor> supervisor_;  ///< set by the first start
  FileDescriptor events_, pipe_events_;
  std::optional<DumpRun> dump_run_;
  std::map<int, Worker> workers_;  ///< by their index at the supervisor
  int started_ = 0;
  bool paused_ = false;
  bool lost_ = false;  ///< the supervisor has ended unexpectedly, and this was reported
};

}  // namespace hvd::launcher
