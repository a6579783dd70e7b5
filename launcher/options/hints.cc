#include "launcher/options/hints.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

#include "launcher/options/flags.h"
#include "launcher/options/words.h"

namespace hvd::launcher {
namespace {

/// Flags of other launchers, and their equivalent here.
struct Foreign {
  std::string_view flags;  ///< lower case, separated by commas
  std::string_view hint;
};

constexpr Foreign kForeign[] = {
    {"-n,--n,-c,-nproc,--nproc,--ntasks,--nproc-per-node,-nproc-per-node,--num-processes,"
     "--num-procs,--nprocs,--procs,--world-size,--num-workers,--workers",
     "use -np N for the number of processes"},
    {"-ppn,--ppn,-perhost,-npernode,--npernode,-pernode,--pernode,--ntasks-per-node,"
     "--tasks-per-node,-gpus-per-node,--gpus-per-node,--gpus-per-task,--gpus,--multi-gpu",
     "use -H to set the number of processes per host: -np 8 -H node1:4,node2:4"},
    {"-x,-env,--env,-genv,-genvall,-genvlist,-envall,--export,-e",
     "ranks inherit the environment of horovodrun: write FOO=1 horovodrun ..., or export FOO "
     "first"},
    {"--bind-to,-bind-to,--map-by,-map-by,--rank-by,-rank-by,--cpu-bind,--cpus-per-task,"
     "--cpus-per-proc,--cpus-per-rank,--report-bindings,-report-bindings,--bind-to-core,"
     "--bind-to-none,--num-cpu-threads-per-process,-cpus-per-proc",
     "ranks are bound to equal shares of a host's cores; --binding-args none disables this, "
     "and with --mpi, --binding-args takes the binding flags of mpirun"},
    {"-mca,--mca,-gmca,--gmca,--allow-run-as-root,-allow-run-as-root,--oversubscribe,"
     "-oversubscribe,--display-map,--display-allocation,--use-hwthread-cpus,--prefix,-bootstrap,"
     "--bootstrap,-launcher,-rmk,-rr,--mpi-type,--overcommit",
     "it is a flag of another launcher and not needed here; with --mpi, pass flags of mpirun in "
     "--mpi-args='...'"},
    {"--host,-host,-hosts,--nodelist,-w,--nodes,--include,--num-nodes",
     "use -H node1:4,node2:4 to list hosts with their numbers of processes"},
    {"-f,-machinefile,--machinefile,--machine-file,--default-hostfile,--host-file,-hostsfile,"
     "--nodefile",
     "use --hostfile FILE for a file of hosts"},
    {"--nnodes,-nnodes,--node-rank,--master-addr,--master-port,--rdzv-backend,--rdzv-endpoint,"
     "--rdzv-id,--rdzv-conf,--standalone,--num-machines,--machine-rank,--main-process-ip,"
     "--main-process-port,--max-restarts,--local-rank,--start-method,--run-path,--use-env",
     "horovodrun is called once for all hosts, not once per host: -np 8 -H node1:4,node2:4; the "
     "ranks connect by themselves"},
    {"-m,--module", "write the interpreter into the command: horovodrun -np 2 python -m MODULE"},
    {"--no-python", "it is the default here: leave it out"},
    {"-l,--label,-prepend-rank,--tag-output,-tag-output,--timestamp-output",
     "output lines begin with their rank by default; --prefix-output-with-timestamp adds the time"},
    {"-wdir,--wdir,-wd,--chdir,-d", "ranks run in the current folder: change to it with cd first"},
    {"-o,--output,--error,--output-dir,--log-dir,--logdir,-outfile-pattern,-errfile-pattern,"
     "--redirects,-r,--tee,-t",
     "use --output-filename FOLDER to write the output of each rank to files"},
    {"-iface,--iface,-ifhn,--interface", "use --network-interfaces NAME to choose networks"},
    {"--timeout,--time",
     "use --start-timeout SECONDS to limit the time until all ranks have started"},
};

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

/// --Nproc_per_node=2 -> --nproc-per-node
std::string plain_name(std::string_view typed) {
  std::string name = lower(typed.substr(0, typed.find('=')));
  std::ranges::replace(name, '_', '-');
  return name;
}

std::string_view foreign_hint(std::string_view name) {
  for (const Foreign& foreign : kForeign)
    for (const std::string_view flag : items(foreign.flags))
      if (flag == name) return foreign.hint;
  return {};
}

/// Returns every flag that --help lists.
std::vector<std::string_view> known_flags() {
  std::vector<std::string_view> names;
  for (const Flag& flag : flags())
    if (flag.heading != Heading::hidden)
      for (const std::string_view name : items(flag.names)) names.push_back(name);
  return names;
}

/// Returns the number of letters to insert, remove or replace (Levenshtein).
size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

/// NAME=value
bool is_assignment(std::string_view word) {
  const size_t equals = word.find('=');
  return equals != std::string_view::npos && equals > 0 && std::isdigit(word[0]) == 0 &&
         std::all_of(word.begin(), word.begin() + static_cast<std::ptrdiff_t>(equals),
                     [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

/// -np2, -np:2, -n2: the number of processes, in the same word as its flag.
std::string glued_number(std::string_view typed) {
  std::string name = lower(typed);
  const size_t end = name.find_first_of("0123456789");
  if (end == std::string::npos || !is_number(name.substr(end))) return "";
  const std::string number = name.substr(end);
  name.resize(end);
  if (!name.empty() && (name.back() == ':' || name.back() == '=')) name.pop_back();
  const bool processes = name == "-np" || name == "--np" || name == "-n" || name == "--n";
  return processes ? fmt::format("; did you mean '-np {}'?", number) : "";
}

/// For words that are never a program: a number, NAME=value, host:2.
std::string hint_for_no_program(const std::string& word) {
  const size_t colon = word.rfind(':');
  if (is_number(word)) return fmt::format("; did you mean '-np {}'?", word);
  if (is_assignment(word))
    return fmt::format(
        "; '{}' sets a variable: write it before horovodrun, as in {} horovodrun -np 2 ...; "
        "ranks inherit the environment of horovodrun",
        word, word);
  if (colon != std::string::npos && is_number(word.substr(colon + 1)))
    return fmt::format(
        "; if '{}' is a host, separate the hosts of -H by commas, without blanks: "
        "-H node1:2,node2:2",
        word);
  return "";
}

}  // namespace

std::string did_you_mean(std::string_view typed, std::span<const std::string_view> known) {
  std::string_view best;
  size_t least = std::min<size_t>(
      4, std::max<size_t>(2, typed.size() / 3));  // a smaller distance counts as close
  for (const std::string_view word : known)
    if (const size_t letters = distance(typed, word); letters < least) {
      least = letters;
      best = word;
    }
  return best.empty() ? "" : fmt::format("; did you mean '{}'?", best);
}

std::string hint_for_flag(std::string_view typed) {
  if (std::string hint = glued_number(typed); !hint.empty()) return hint;
  const std::string name = plain_name(typed);
  if (const std::string_view hint = foreign_hint(name); !hint.empty())
    return fmt::format("; {}", hint);
  const std::vector<std::string_view> known = known_flags();
  const auto same = [&](std::string_view flag) { return flag == name || flag == "-" + name; };
  if (const auto found = std::ranges::find_if(known, same); found != known.end())
    return fmt::format("; did you mean '{}'?", *found);
  if (name.size() < 4) return "";
  std::vector<std::string_view> longer;
  for (const std::string_view flag : known)
    if (flag.starts_with(name)) longer.push_back(flag);
  if (!longer.empty() && longer.size() < 5)
    return fmt::format("; did you mean '{}'?", fmt::join(longer, "' or '"));
  return did_you_mean(name, known);
}

std::string without_number(const std::vector<std::string>& command) {
  const std::string text = "-np is required: the number of processes to start";
  if (command.empty()) return text + ", as in horovodrun -np 2 python train.py";
  const std::string& first = command.front();
  if (const std::string hint = hint_for_no_program(first); !hint.empty()) return text + hint;
  for (const std::string& word : command) {
    const Flag* flag = find_flag(word.substr(0, word.find('=')));
    if (flag != nullptr && flag->dest == "num_proc")
      return text + fmt::format(
                        "; the '{}' after '{}' is an argument of the command; flags come before it",
                        word, first);
  }
  return text + fmt::format(", as in horovodrun -np 2 {}{}",
                            first.ends_with(".py") ? "python " : "", fmt::join(command, " "));
}

std::string hint_for_command(const std::string& word, bool is_file) {
  if (const std::string hint = hint_for_no_program(word); !hint.empty()) return hint;
  if (is_file && word.ends_with(".py")) return fmt::format("; did you mean 'python {}'?", word);
  if (is_file && word.ends_with(".sh")) return fmt::format("; did you mean 'bash {}'?", word);
  if (word.find(' ') != std::string::npos)
    return fmt::format("; remove the quotes: horovodrun ... {}", word);
  if (word.starts_with("python3.") || word.starts_with("python2"))
    return "; did you mean 'python3'?";
  return "";
}

}  // namespace hvd::launcher
