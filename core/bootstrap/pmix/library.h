// The part of PMIx that is used: its types, whose layout the standard defines, and its functions,
// loaded at run time from the library of the launcher. Neither its headers nor its library are
// needed to build.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/knobs.h"

namespace hvd::pmix {

using Status = int;
inline constexpr Status kSuccess = 0;
inline constexpr Status kDoneAtOnce = -157;  ///< completed at once; the callback will not be called

struct Process {
  char job[256];
  uint32_t rank;
};
struct Value {
  uint16_t type;
  union {
    const char* string;
    bool flag;
    int32_t number;
    uint64_t room[3];
  };
};
struct Info {
  char key[512];
  uint32_t flags;
  Value value;
};
struct Published {
  Process by;
  char key[512];
  Value value;
};
static_assert(sizeof(Process) == 260 && sizeof(Value) == 32 && sizeof(Info) == 552);
static_assert(sizeof(Published) == 808);

inline constexpr uint16_t kBool = 1, kString = 3, kInt = 6;
inline constexpr uint8_t kGlobalScope = 3;

using Done = void (*)(Status, void* object);
using Got = void (*)(Status, Value*, void* object);
using Found = void (*)(Status, Published*, size_t, void* object);

struct Library {
  std::string path;
  Status (*init)(Process*, Info*, size_t);
  Status (*put)(uint8_t scope, const char* key, Value*);
  Status (*commit)();
  Status (*fence)(const Process*, size_t, const Info*, size_t, Done, void*);
  Status (*get)(const Process*, const char* key, const Info*, size_t, Got, void*);
  Status (*publish)(const Info*, size_t, Done, void*);
  Status (*look_up)(char** keys, const Info*, size_t, Found, void*);
  Status (*finalize)(const Info*, size_t);
  const char* (*text_of)(Status);
};

/// Where the launcher's library may be, most likely first: the one that a daemon among the
/// ancestors of this process has loaded, then Open MPI's folders from the environment, then its
/// plain name.
std::vector<std::string> library_paths(const Environment& environment);

/// Loads the first one that exists and never unloads it. Throws Error{invalid_argument} with what
/// was tried and the alternative.
Library load_library(const std::vector<std::string>& paths);

}  // namespace hvd::pmix
