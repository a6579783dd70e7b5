// A libpmix that knows nobody, for tests: what is looked up by the name "process" is the number of
// the process that asks, "absent" is never found, "silence" never returns, and "death" ends it.
#include <unistd.h>

#include <string>
#include <string_view>

#include "core/group/bootstrap/pmix_library.h"

using hvd::pmix::Done;
using hvd::pmix::Found;
using hvd::pmix::Got;
using hvd::pmix::Info;
using hvd::pmix::Process;
using hvd::pmix::Published;
using hvd::pmix::Status;
using hvd::pmix::Value;

extern "C" {

Status PMIx_Init(Process*, Info*, size_t) { return hvd::pmix::kSuccess; }
Status PMIx_Put(uint8_t, const char*, Value*) { return hvd::pmix::kSuccess; }
Status PMIx_Commit() { return hvd::pmix::kSuccess; }
Status PMIx_Fence_nb(const Process*, size_t, const Info*, size_t, Done, void*) {
  return hvd::pmix::kDoneAtOnce;
}
Status PMIx_Get_nb(const Process*, const char*, const Info*, size_t, Got, void*) {
  return hvd::pmix::kDoneAtOnce;
}
Status PMIx_Finalize(const Info*, size_t) { return hvd::pmix::kSuccess; }
const char* PMIx_Error_string(Status) { return "an error"; }

Status PMIx_Publish_nb(const Info*, size_t, Done done, void* object) {
  done(hvd::pmix::kSuccess, object);
  return hvd::pmix::kSuccess;
}

Status PMIx_Lookup_nb(char** keys, const Info*, size_t, Found found, void* object) {
  const std::string_view key = keys[0];
  if (key == "silence") ::pause();
  if (key == "death") ::_exit(1);
  if (key != "process") return hvd::pmix::kSuccess;
  const std::string text = std::to_string(::getpid());
  Published one{};
  one.value = {.type = hvd::pmix::kString, .string = text.c_str()};
  found(hvd::pmix::kSuccess, &one, 1, object);
  return hvd::pmix::kSuccess;
}
}
