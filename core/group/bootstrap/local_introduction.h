// How the ranks of a job that is on one machine find rank 0: by an abstract unix socket whose name
// they all know. The kernel tells each side which user the other one is, so that nobody else's
// process can say or hear anything.
#pragma once

#include <string>

#include "core/group/bootstrap/meeting.h"
#include "core/transport/file_descriptor.h"

namespace hvd {

/// Where rank 0 is asked; for the job of this name. Throws Error{internal} where the name is taken.
FileDescriptor open_door(const std::string& job_name);

/// Tells `word` to all who wait at the door and belong to this user.
void answer_door(const FileDescriptor& door, const std::string& word);

/// What rank 0 says at its door, which may open later than this is asked. Throws Error{timed_out},
/// Error{unauthorized} where another user answers.
std::string ask_at_door(const std::string& job_name, const StartDeadline& deadline);

}  // namespace hvd
