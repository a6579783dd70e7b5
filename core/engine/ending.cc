#include "core/engine/ending.h"

#include <fmt/core.h>

#include "core/base/assert.h"

namespace hvd {

namespace {

/// Names the host once: `seen` may do so.
std::string text_of_loss(int rank, const EndedBy& by, std::string_view seen) {
  return fmt::format("rank {0}{1} is lost: {2}{3}; look for the cause in the output of rank {0}",
                     rank, seen.find(by.on_host) == seen.npos ? by.on_host : "", seen,
                     by.others_go_on ? "" : ". The job has ended");
}

std::string text_of_own_loss(int rank, std::string_view seen) {
  return fmt::format("this process, rank {}, has lost its place in the job and cannot continue: {}",
                     rank, seen);
}

}  // namespace

std::string quoted(const Request& request) {
  if (request.joins()) return "join";
  return fmt::format("{} \"{}\"", name_of(request.signature.operation.kind), request.name);
}

Outcome outcome_of(const Ending& ending, const Request& request) {
  return {ending.code, quoted(request) + ": " + ending.text, ending.rank};
}

std::string_view why_refused(Submitted why) {
  switch (why) {
    case Submitted::joined:
      return "this rank has joined and may not submit until all ranks have joined";
    case Submitted::not_a_member:
      return "the process set has been removed";
    case Submitted::duplicate_name:  // submit() has refused it
    case Submitted::accepted:
    case Submitted::ended:
      break;
  }
  HVD_ASSERT(false);
}

Ending ending_of(const Action& action, bool was_given_up, const EndedBy& by) {
  if (action.lost && action.rank == kLostLauncher)
    return {Code::peer_lost, kNoRank, "the launcher of this job is lost: " + action.text};
  if (action.lost && was_given_up)
    return {Code::peer_lost, action.rank, text_of_own_loss(action.rank, action.text)};
  if (action.lost)
    return {Code::peer_lost, action.rank, text_of_loss(action.rank, by, action.text)};
  if (!action.text.empty()) return {Code::shut_down, action.rank, action.text};
  return {Code::shut_down, action.rank,
          fmt::format("rank {0}{1} has shut the job down: it called hvd.shutdown(), or its script "
                      "ended; look for the first error in the output of rank {0}",
                      action.rank, by.on_host)};
}

Ending ending_of(const Error& error, int own, const EndedBy& by) {
  const bool is_loss = error.code() == Code::peer_lost && error.rank() != kNoRank;
  if (!is_loss) return {error.code(), error.rank(), error.what()};
  return {error.code(), error.rank(),
          error.rank() == own ? text_of_own_loss(own, error.what())
                              : text_of_loss(error.rank(), by, error.what())};
}

Error error_of(const Connections::Report& report) {
  if (report.by == kNoRank)
    return {Code::peer_lost, "a rank of this host has reported it", report.lost};
  if (report.by == report.lost)
    return {Code::peer_lost, "it has failed; its own error gives the reason", report.lost};
  return {Code::peer_lost, fmt::format("rank {} has reported it", report.by), report.lost};
}

}  // namespace hvd
