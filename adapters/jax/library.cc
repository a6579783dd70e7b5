// The handler that XLA calls for each execution of the custom call.
//
// It submits the operation and makes progress for a moment, which ends most calls without a switch
// of threads. If other ranks are late it returns a future, so no thread of XLA waits for them. A
// worker then waits, hence makes progress itself, and completes the future. XLA runs what follows
// on the worker.
#include <chrono>
#include <memory>
#include <string>

#include "adapters/common/completions.h"
#include "adapters/common/per_process.h"
#include "adapters/jax/c_api.h"
#include "adapters/jax/call.h"
#include "horovod/horovod.h"

namespace hvd::xla {
namespace {

/// Idle workers are kept: usually one computes what follows a call while another runs the next one.
constexpr int kMostIdle = 4;
/// How long a thread of XLA may wait for other ranks: several times the switch to another thread.
constexpr std::chrono::milliseconds kPatience{1};

struct Workers : adapter::Completions {
  Workers() : Completions({.patience = std::chrono::milliseconds{0}, .most_idle = kMostIdle}) {}
};

Workers& workers() { return *adapter::per_process<Workers>(); }

Code code_of(hvd_status status) {
  switch (status) {
    case HVD_INVALID_ARGUMENT:
      return kInvalidArgument;
    case HVD_MISMATCH:
    case HVD_NOT_INITIALIZED:
      return kFailedPrecondition;
    case HVD_SHUT_DOWN:
    case HVD_PEER_LOST:
      return kUnavailable;
    default:
      return kInternal;
  }
}

/// JAX makes one exception of all errors, so the text says which of ours it stands for.
std::string exception_of(hvd_status status) {
  switch (status) {
    case HVD_MISMATCH:
      return "HorovodMismatchError: ";
    case HVD_INVALID_ARGUMENT:
    case HVD_NOT_INITIALIZED:
      return "";
    default:
      return "HorovodInternalError: ";
  }
}

/// Returns nullptr on success.
Error* error_of(const Api& api, const Outcome& outcome) {
  if (outcome.status == HVD_OK) return nullptr;
  const std::string text = exception_of(outcome.status) + outcome.text;
  ErrorArguments error{sizeof(error), nullptr, text.c_str(), code_of(outcome.status)};
  return api.new_error(&error);
}

void complete(const Api& api, Future* future, Error* error) {
  if (error == nullptr) {
    FutureArguments available{sizeof(available), nullptr, future};
    api.future_available(&available);
    return;
  }
  FutureErrorArguments failed{sizeof(failed), nullptr, future, error};
  api.future_failed(&failed);
}

/// Returns whether XLA only asks for the version.
bool answers_metadata(const Frame& frame) {
  if (frame.extensions == nullptr || frame.extensions->type != kMetadataExtension) return false;
  Metadata& metadata = *reinterpret_cast<MetadataExtension*>(frame.extensions)->metadata;
  metadata.version.major = kMajor;
  metadata.version.minor = kMinor;
  metadata.traits = 0;
  return true;
}

Error* run(Frame& frame) {
  const Api& api = *frame.api;
  const auto call = std::make_shared<Call>(frame);
  if (const Outcome refused = call->submit(); refused.status != HVD_OK)
    return error_of(api, refused);
  if (call->ends_within(kPatience)) return error_of(api, call->finish());
  NewFutureArguments created{sizeof(created), nullptr, nullptr};
  if (Error* const error = api.new_future(&created)) {
    call->finish();  // it uses XLA's memory
    return error;
  }
  frame.future = created.future;
  workers().add([call, &api, future = created.future] {
    complete(api, future, error_of(api, call->finish()));
  });
  return nullptr;
}

}  // namespace
}  // namespace hvd::xla

/// The handler: JAX registers its address. XLA passes a Frame and takes the Error.
extern "C" HVD_API void* hvd_jax_collective(void* frame) {
  auto& called = *static_cast<hvd::xla::Frame*>(frame);
  return hvd::xla::answers_metadata(called) ? nullptr : hvd::xla::run(called);
}

/// Waits, at most for `seconds`, until XLA has completed all calls that have ended. Returns 1 if it
/// has, otherwise 0.
extern "C" HVD_API int hvd_jax_drain(int seconds) {
  return hvd::xla::workers().drain(std::chrono::seconds(seconds)) ? 1 : 0;
}
