#include "core/device/nccl.h"

#include <fmt/core.h>
#include <sys/statvfs.h>

#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/device/messages.h"
#include "core/device/nccl_symbols.h"

namespace hvd::device {
namespace {

std::string nccl_name(DeviceKind kind) {
  return kind == DeviceKind::rocm ? "librccl.so.1" : "libnccl.so.2";
}

/// The library, or why there is none.
struct Opened {
  std::optional<SharedLibrary> library{};
  std::string why{};
};

Opened open_nccl(DeviceKind kind, const NcclPlaces& places) {
  if (!places.by_knob.empty()) {
    auto search = LibrarySearch::first_of({{Origin::knob, places.by_knob}});
    if (search.library) return {std::move(search.library)};
    return {.why = bad_nccl_knob_text(places.by_knob, search.reasons.front())};
  }
  const std::string name = nccl_name(kind);
  std::vector<Candidate> candidates{{Origin::loaded, name}};
  if (!places.of_python.empty()) candidates.push_back({Origin::python, places.of_python});
  candidates.push_back({Origin::system, name});
  auto search = LibrarySearch::first_of(candidates);
  if (search.library) return {std::move(search.library)};
  return {.why = no_nccl_text(search.reasons)};
}

size_t free_bytes_of_shm() {
  struct statvfs facts {};
  if (::statvfs("/dev/shm", &facts) != 0) return 0;
  return static_cast<size_t>(facts.f_bavail) * facts.f_frsize;
}

}  // namespace

std::unique_ptr<Nccl> Nccl::load(const Driver& driver, const NcclPlaces& places) {
  Search search = find(driver, places);
  if (!search.nccl) fail(Code::invalid_argument, search.why);
  return std::move(search.nccl);
}

Nccl::Search Nccl::find(const Driver& driver, const NcclPlaces& places) {
  Opened opened = open_nccl(driver.kind(), places);
  if (!opened.library) return {.why = std::move(opened.why)};
  std::unique_ptr<Nccl> nccl(new Nccl(driver, std::move(*opened.library)));
  std::string why = nccl->fill();
  if (!why.empty()) return {.why = std::move(why)};
  nccl->report();
  return {std::move(nccl)};
}

Nccl::Nccl(const Driver& driver, SharedLibrary library)
    : driver_(driver), library_(std::move(library)) {}

/// Returns why the library cannot be used; empty: it can.
std::string Nccl::fill() {
  auto missing = fill_table(table_, kNcclVersionSymbols, library_, driver_.kind(), 0);
  if (missing.empty()) table_.get_version(&version_);
  if (missing.empty() && version_ < kOldestNccl) return old_nccl_text(version_, library_);
  if (missing.empty())
    missing = fill_table(table_, kNcclSymbols, library_, driver_.kind(), version_);
  return missing.empty() ? "" : incomplete_nccl_text(version_, library_, missing);
}

void Nccl::report() const {
  log(LogLevel::info, fmt::format("nccl version={} path={} found={}", nccl_version_text(version_),
                                  path(), name_of(origin())));
  std::vector<std::string> others;
  for (const std::string& file : loaded_files("libnccl.so")) {
    if (file != path()) others.push_back(file);
  }
  if (!others.empty()) log(LogLevel::warning, second_nccl_text(path(), others));
}

void Nccl::fail_call(NcclResult result, CommHandle comm, const char* doing) const {
  const char* const last = table_.get_last_error(comm);
  size_t free = 0, total = 0;
  if (result == NcclResult::unhandled_cuda_error)  // stay 0 if this fails as well
    driver_.call().memory_get_info(&free, &total);
  fail(Code::internal, nccl_failure_text({.doing = doing,
                                          .result = result,
                                          .text = table_.get_error_string(result),
                                          .last_error = last == nullptr ? "" : last,
                                          .nccl_version = version_,
                                          .driver_version = driver_.version(),
                                          .shm_free_bytes = free_bytes_of_shm(),
                                          .gpu_free_bytes = free,
                                          .gpu_total_bytes = total}));
}

}  // namespace hvd::device
