// Starts ranks of this project in network namespaces, each of which represents a host:
//   bench_across RANKS ADDRESS NAMESPACE[,NAMESPACE...] PROGRAM [ARGUMENT...]
// It must run in the first namespace, which has ADDRESS; rank 0 serves the Store there. All
// namespaces have the same number of ranks. If one rank fails, the others are ended.
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "core/transport/handshake.h"
#include "core/transport/socket.h"

namespace {

struct Plan {
  int ranks = 0;
  std::string address;
  std::vector<std::string> hosts;
  char** program = nullptr;
};

/// A file with a secret for the ranks. Removed at the end of this process.
std::string secret_file() {
  const hvd::JobKey key = hvd::make_job_key();
  const int file = ::memfd_create("secret", 0);
  const auto size = static_cast<ssize_t>(key.bytes.size());
  if (file < 0 || ::pwrite(file, key.bytes.data(), key.bytes.size(), 0) != size ||
      ::fchmod(file, S_IRUSR) != 0)
    std::abort();
  return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file);
}

uint16_t free_port(const std::string& address) { return hvd::port_of(hvd::listen_tcp(address, 0)); }

void set(const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); }

[[noreturn]] void become_rank(const Plan& plan, int rank) {
  const int hosts = static_cast<int>(plan.hosts.size()), each = plan.ranks / hosts;
  const int host = rank / each;
  set("HOROVOD_HOSTNAME", plan.hosts[host]);
  set("HOROVOD_RANK", std::to_string(rank));
  set("HOROVOD_SIZE", std::to_string(plan.ranks));
  set("HOROVOD_LOCAL_RANK", std::to_string(rank % each));
  set("HOROVOD_LOCAL_SIZE", std::to_string(each));
  set("HOROVOD_CROSS_RANK", std::to_string(host));
  set("HOROVOD_CROSS_SIZE", std::to_string(hosts));
  std::vector<char*> command;
  for (const char* word : {"ip", "netns", "exec", plan.hosts[host].c_str()}) {
    command.push_back(const_cast<char*>(word));
  }
  for (char** word = plan.program; *word != nullptr; ++word) command.push_back(*word);
  command.push_back(nullptr);
  ::execvp(command[0], command.data());
  std::perror(command[0]);
  ::_exit(127);
}

int run(const Plan& plan) {
  set("HOROVOD_SECRET_FILE", secret_file());
  set("HOROVOD_GLOO_RENDEZVOUS_ADDR", plan.address);
  set("HOROVOD_GLOO_RENDEZVOUS_PORT", std::to_string(free_port(plan.address)));
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < plan.ranks; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) become_rank(plan, rank);
    ranks.push_back(child);
  }
  for (size_t left = ranks.size(); left > 0;) {
    int status = 0;
    if (::waitpid(-1, &status, 0) <= 0) continue;
    --left;
    if (status == 0) continue;
    for (const pid_t rank : ranks) ::kill(rank, SIGKILL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) {
    std::fprintf(stderr, "bench_across RANKS ADDRESS NAMESPACE,NAMESPACE PROGRAM [ARGUMENT...]\n");
    return 2;
  }
  Plan plan{std::atoi(argv[1]), argv[2], {}, argv + 4};
  std::istringstream hosts(argv[3]);
  for (std::string host; std::getline(hosts, host, ',');) plan.hosts.push_back(host);
  return run(plan);
}
