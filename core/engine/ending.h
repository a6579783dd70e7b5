// How a generation ends, and what is said of operations that end with it or are refused. Values.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/bootstrap/connections.h"
#include "core/engine/request.h"
#include "core/negotiate/client.h"

namespace hvd {

/// The reason for the end of a generation, and the rank that caused it.
struct Ending {
  Code code = Code::shut_down;
  int rank = kNoRank;
  std::string text;
  std::string silence{};  ///< on the rank that has given up a silent one: what it has seen
};

/// What else is said of the rank that ends a generation.
struct EndedBy {
  std::string on_host{};      ///< such as " on host NAME"; "" in a job on one host
  bool others_go_on = false;  ///< perhaps, since the job is elastic
};

/// `action`: ends the generation. `was_given_up`: this rank, by another one.
Ending ending_of(const Action& action, bool was_given_up, const EndedBy& by);

/// After a loss that no other rank has told through the tree. `own`: this rank.
Ending ending_of(const Error& error, int own, const EndedBy& by);

/// A loss that others have reported, with what was seen of the lost rank.
Error error_of(const Connections::Report& report);

/// The outcome of a request that has not completed before the generation ended.
Outcome outcome_of(const Ending& ending, const Request& request);

/// The kind and the name of a request, for messages.
std::string quoted(const Request& request);

/// `why`: one that an engine cannot prevent, after which the generation goes on.
std::string_view why_refused(Submitted why);

}  // namespace hvd
