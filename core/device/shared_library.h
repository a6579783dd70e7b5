// A shared library that is loaded at run time, never earlier than its first use: a library that
// this process loads first is the one that a later `import torch` gets, and an older version makes
// that import fail.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace hvd::device {

/// Where a library was found.
enum class Origin : unsigned char {
  knob,    ///< a path that the user has set
  loaded,  ///< in this process already
  python,  ///< a package of this Python
  system,  ///< by the search path of the dynamic loader
};
const char* name_of(Origin origin);

/// A file or a name to try. Origin::loaded looks for a loaded library and loads none.
struct Candidate {
  Origin origin = Origin::system;
  std::string name;
};

/// A loaded library. It is never unloaded: its functions can be in use until the process ends.
/// A value; any thread may use it.
class SharedLibrary {
 public:
  SharedLibrary() = default;

  /// Returns the address of an exported symbol; nullptr if there is none.
  void* find(const char* symbol) const;
  /// The file, without symbolic links.
  const std::string& path() const { return path_; }
  Origin origin() const { return origin_; }

 private:
  friend struct LibrarySearch;
  SharedLibrary(void* handle, Origin origin);

  void* handle_ = nullptr;
  std::string path_;
  Origin origin_ = Origin::system;
};

/// The result of looking for a library: the library, or why each candidate could not be loaded.
struct LibrarySearch {
  std::optional<SharedLibrary> library;
  std::vector<std::string> reasons;  ///< messages of the dynamic loader

  /// Loads the first candidate that exists, with symbols that other libraries do not see. Any
  /// thread may call it; searches take turns.
  static LibrarySearch first_of(const std::vector<Candidate>& candidates);
};

/// Returns the files of loaded libraries whose file name begins with `prefix`.
std::vector<std::string> loaded_files(const std::string& prefix);

}  // namespace hvd::device
