// NCCL, loaded at the first GPU tensor. Owned by the backend of the device.
#pragma once

#include <memory>
#include <string>

#include "core/device/driver.h"
#include "core/device/nccl_api.h"
#include "core/device/shared_library.h"

namespace hvd::device {

/// Files of NCCL that are known before the search.
struct NcclPlaces {
  std::string by_knob;    ///< set by the user; empty: not set. If set, no other place is tried.
  std::string of_python;  ///< in the package `nvidia.nccl` of this Python; empty: there is none
};

/// Immutable after load(): any thread may use it, but each communicator only one at a time.
class Nccl {
 public:
  /// Loads the library: the path of the knob, what is loaded already, the package of this Python,
  /// the default of the dynamic loader. Logs version, path and other loaded copies.
  /// Throws Error{invalid_argument} with the searched places and the remedy: not found, older than
  /// 2.16, incomplete. The driver must outlive it.
  static std::unique_ptr<Nccl> load(const Driver& driver, const NcclPlaces& places);

  /// Like load(), but without an error if there is no library that can be used.
  struct Search {
    std::unique_ptr<Nccl> nccl{};
    std::string why{};  ///< the text of the error instead
  };
  static Search find(const Driver& driver, const NcclPlaces& places);

  const NcclTable& call() const { return table_; }
  /// As ncclGetVersion tells it, 22705 for 2.27.5.
  int version() const { return version_; }
  const std::string& path() const { return library_.path(); }
  Origin origin() const { return library_.origin(); }

  /// Throws Error{internal} unless `result` is success or in_progress: what NCCL said, its version,
  /// and the most likely remedy. `comm`: nullptr if there is none yet.
  void check(NcclResult result, CommHandle comm, const char* doing) const {
    if (result != NcclResult::success && result != NcclResult::in_progress) [[unlikely]]
      fail_call(result, comm, doing);
  }

 private:
  Nccl(const Driver& driver, SharedLibrary library);
  std::string fill();
  void report() const;
  [[noreturn]] void fail_call(NcclResult result, CommHandle comm, const char* doing) const;

  const Driver& driver_;
  const SharedLibrary library_;
  NcclTable table_{};
  int version_ = 0;
};

}  // namespace hvd::device
