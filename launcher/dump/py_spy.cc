#include "launcher/dump/py_spy.h"

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <string>

#include "launcher/dump/aside.h"
#include "launcher/dump/proc.h"
#include "launcher/process/spawn.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;

std::string spy_of(int process) {
  const Environment environment = environment_of(process);
  const auto path = environment.find("PATH");
  return path == environment.end() ? std::string() : find_program("py-spy", path->second);
}

std::string printed_by(const std::string& program, int process, TimePoint deadline) {
  const std::vector<std::string> arguments{program,         "dump",  "--json",
                                           "--nonblocking", "--pid", std::to_string(process)};
  return output_of([&] { execv(program.c_str(), pointers(arguments).data()); }, deadline);
}

std::vector<Frame> stack_of_thread(const Json& thread) {
  std::vector<Frame> stack;
  for (const Json& frame : thread.at("frames"))
    stack.push_back({.file = frame.at("filename"),
                     .line = static_cast<int>(integer_of(frame.at("line"))),
                     .function = frame.at("name")});
  return stack;
}

}  // namespace

std::vector<Frame> spied_stack(std::string_view printed) try {
  for (const Json& thread : Json::parse(printed))
    if (thread.at("thread_name") == "MainThread") return stack_of_thread(thread);
  return {};
} catch (const Json::exception&) {
  return {};
}

void add_spied_stacks(std::vector<RankReport>& reports, TimePoint deadline) {
  for (RankReport& report : reports) {
    if (!report.stack.empty() || report.process == 0 || report.run_state == 'Z') continue;
    const std::string program =
        std::chrono::steady_clock::now() < deadline ? spy_of(report.process) : "";
    if (!program.empty()) report.stack = spied_stack(printed_by(program, report.process, deadline));
  }
}

}  // namespace hvd::launcher
