#include "core/bootstrap/pmix/session.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "core/base/error.h"

namespace hvd::pmix {
namespace {

/// The result of a callback, which may come after the deadline.
class Answer {
 public:
  void set(Status status, std::string text) {
    const std::lock_guard lock(mutex_);
    status_ = status;
    text_ = std::move(text);
    is_set_.notify_all();
  }
  /// Nothing after the deadline.
  std::optional<Status> wait(TimePoint deadline) {
    std::unique_lock lock(mutex_);
    is_set_.wait_until(lock, deadline, [&] { return status_.has_value(); });
    return status_;
  }
  const std::string& text() const { return text_; }

 private:
  std::mutex mutex_;
  std::condition_variable is_set_;
  std::optional<Status> status_;
  std::string text_;
};
using SharedAnswer = std::shared_ptr<Answer>;

/// The reference that the callback owns.
SharedAnswer take(void* object) {
  const std::unique_ptr<SharedAnswer> share(static_cast<SharedAnswer*>(object));
  return *share;
}

void done(Status status, void* object) { take(object)->set(status, ""); }

void got(Status status, Value* value, void* object) {
  const bool is_text = status == kSuccess && value != nullptr && value->type == kString;
  take(object)->set(status, is_text && value->string != nullptr ? value->string : "");
}

void found(Status status, Published* all, size_t count, void* object) {
  got(status, count > 0 ? &all->value : nullptr, object);
}

Info info(const std::string& key, uint16_t type) {
  Info made{};
  std::copy_n(key.begin(), std::min(key.size(), sizeof made.key - 1), made.key);
  made.value.type = type;
  return made;
}

std::string ranks_missing(const BroadcastRequest& request) {
  return fmt::format("not all ranks that {} started have called init", request.launcher);
}

}  // namespace

Session::Session(const Library& library) : library_(library) {
  require(library_.init(&self_, nullptr, 0), "PMIx_Init");
}

void Session::finish() const { static_cast<void>(library_.finalize(nullptr, 0)); }

std::string Session::by_fence(const BroadcastRequest& request) const {
  if (request.is_rank_0) {
    Value value{.type = kString, .string = request.text.c_str()};
    require(library_.put(kGlobalScope, request.name.c_str(), &value), "PMIx_Put");
  }
  require(library_.commit(), "PMIx_Commit");
  Info collect = info("pmix.collect", kBool);
  collect.value.flag = true;
  fence({&collect, 1}, request);
  const std::string text = get(request);
  fence({}, request);
  return text;
}

std::string Session::by_publishing(const BroadcastRequest& request) const {
  if (request.is_rank_0) {
    Info text = info(published_key(request), kString);
    text.value.string = request.text.c_str();
    complete("PMIx_Publish", "the launcher does not answer", request.deadline,
             [&](void* object) { return library_.publish(&text, 1, done, object); });
    return request.text;
  }
  Info wait = info("pmix.wait", kInt);  // until the key is published
  wait.value.number = 1;
  std::string key = published_key(request);
  std::array<char*, 2> keys{key.data(), nullptr};
  return complete("PMIx_Lookup", "rank 0 has not called init", request.deadline, [&](void* object) {
    return library_.look_up(keys.data(), &wait, 1, found, object);
  });
}

std::string Session::published_key(const BroadcastRequest& request) const {
  return fmt::format("{}-{}", request.name, self_.job);
}

void Session::require(Status status, const char* function) const {
  if (status == kSuccess) return;
  fail(Code::internal, fmt::format("{} of {} failed: {} ({})", function, library_.path,
                                   library_.text_of(status), status));
}

template <class Call>
std::string Session::complete(const char* function, const std::string& cause,
                              const StartDeadline& deadline, Call call) const {
  auto answer = std::make_shared<Answer>();
  auto share = std::make_unique<SharedAnswer>(answer);
  const Status begun = call(share.get());
  if (begun == kDoneAtOnce) return "";
  require(begun, function);
  static_cast<void>(share.release());
  const auto status = answer->wait(deadline.at);
  if (!status) {
    deadline.fail_at(
        fmt::format("{} has not completed: {}, or the launcher has ended", function, cause),
        kNoRank);
  }
  require(*status, function);
  return answer->text();
}

void Session::fence(std::span<const Info> options, const BroadcastRequest& request) const {
  complete("PMIx_Fence", ranks_missing(request), request.deadline, [&](void* object) {
    return library_.fence(nullptr, 0, options.data(), options.size(), done, object);
  });
}

std::string Session::get(const BroadcastRequest& request) const {
  Process zero = self_;
  zero.rank = static_cast<uint32_t>(request.rank_0);
  std::array<char, 512> key{};  // size of pmix_key_t
  std::copy_n(request.name.begin(), std::min(request.name.size(), key.size() - 1), key.begin());
  return complete("PMIx_Get", ranks_missing(request), request.deadline, [&](void* object) {
    return library_.get(&zero, key.data(), nullptr, 0, got, object);
  });
}

}  // namespace hvd::pmix
