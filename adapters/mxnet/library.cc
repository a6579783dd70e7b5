// The functions that the Python package calls.
#include <chrono>
#include <string>

#include "adapters/mxnet/c_api.h"
#include "adapters/mxnet/call.h"
#include "adapters/mxnet/request.h"
#include "horovod/horovod.h"

/// Returns why the MXNet of this process cannot be used, "" if it can.
extern "C" HVD_API const char* hvd_mxnet_problem() { return hvd::mxnet::api_problem().c_str(); }

/// Pushes an operation to MXNet's engine. Returns why it cannot, "" if it is pushed. The text is
/// valid until the next call on this thread.
extern "C" HVD_API const char* hvd_mxnet_push(const hvd_mxnet_request* request) {
  thread_local std::string problem;
  problem = hvd::mxnet::Call::push(*request);
  return problem.c_str();
}

/// Waits, at most for `seconds`, until all operations that were pushed have ended. Returns 1 if
/// they have, otherwise 0.
extern "C" HVD_API int hvd_mxnet_wait(int seconds) {
  return hvd::mxnet::turns().wait_until_empty(std::chrono::seconds(seconds)) ? 1 : 0;
}

/// Waits, at most for `seconds`, until MXNet knows of all operations that have ended. Returns 1 if
/// it does, otherwise 0.
extern "C" HVD_API int hvd_mxnet_drain(int seconds) {
  return hvd::mxnet::completions().drain(std::chrono::seconds(seconds)) ? 1 : 0;
}
