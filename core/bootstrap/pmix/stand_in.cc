// A fake libpmix for tests. Looking up the name "process" gives the pid of the calling process,
// "silence" never returns, "death" ends the process, and any other name is found once it has been
// published. Each PMIx_Init belongs to another job.
#include <unistd.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

#include "core/bootstrap/pmix/library.h"

using hvd::pmix::Done;
using hvd::pmix::Found;
using hvd::pmix::Got;
using hvd::pmix::Info;
using hvd::pmix::Process;
using hvd::pmix::Published;
using hvd::pmix::Status;
using hvd::pmix::Value;

namespace {

std::map<std::string, std::string, std::less<>>& published() {
  static auto* all = new std::map<std::string, std::string, std::less<>>;
  return *all;
}

}  // namespace

extern "C" {

Status PMIx_Init(Process* self, Info*, size_t) {
  static int jobs = 0;
  const std::string name = "job@" + std::to_string(++jobs);
  std::ranges::copy(name, self->job);
  return hvd::pmix::kSuccess;
}
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

Status PMIx_Publish_nb(const Info* all, size_t, Done done, void* object) {
  published().insert_or_assign(all->key, all->value.string);
  done(hvd::pmix::kSuccess, object);
  return hvd::pmix::kSuccess;
}

Status PMIx_Lookup_nb(char** keys, const Info*, size_t, Found found, void* object) {
  const std::string_view key = keys[0];
  if (key.starts_with("silence-")) ::pause();
  if (key.starts_with("death-")) ::_exit(1);
  std::string text = std::to_string(::getpid());
  if (!key.starts_with("process-")) {
    const auto known = published().find(key);
    if (known == published().end()) return hvd::pmix::kSuccess;
    text = known->second;
  }
  Published one{};
  one.value = {.type = hvd::pmix::kString, .string = text.c_str()};
  found(hvd::pmix::kSuccess, &one, 1, object);
  return hvd::pmix::kSuccess;
}
}
