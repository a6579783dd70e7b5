// The version of this build. CMake passes it to version.cc alone: files that include this header
// compile with the same command in every build folder, so that ccache shares their objects.
#pragma once

namespace hvd {

extern const char* const kVersion;

}  // namespace hvd
