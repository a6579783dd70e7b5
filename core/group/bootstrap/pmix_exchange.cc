#include "core/group/bootstrap/pmix_exchange.h"

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

/// What a callback brings. It may come when nobody waits for it any more.
class Answer {
 public:
  void come(Status status, std::string text) {
    const std::lock_guard lock(mutex_);
    status_ = status;
    text_ = std::move(text);
    came_.notify_all();
  }
  /// Nothing at the deadline.
  std::optional<Status> wait(TimePoint deadline) {
    std::unique_lock lock(mutex_);
    came_.wait_until(lock, deadline, [&] { return status_.has_value(); });
    return status_;
  }
  const std::string& text() const { return text_; }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::optional<Status> status_;
  std::string text_;
};
using SharedAnswer = std::shared_ptr<Answer>;

/// The callback's share of it.
SharedAnswer take(void* object) {
  const std::unique_ptr<SharedAnswer> share(static_cast<SharedAnswer*>(object));
  return *share;
}

void done(Status status, void* object) { take(object)->come(status, ""); }

void got(Status status, Value* value, void* object) {
  const bool is_text = status == kSuccess && value != nullptr && value->type == kString;
  take(object)->come(status, is_text && value->string != nullptr ? value->string : "");
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

std::string not_all_have_come(const Errand& errand) {
  return fmt::format("not all ranks that {} started have called init", errand.launcher);
}

}  // namespace

Exchange::Exchange(const Library& library) : library_(library) {
  require(library_.init(&self_, nullptr, 0), "PMIx_Init");
}

void Exchange::finish() const { static_cast<void>(library_.finalize(nullptr, 0)); }

std::string Exchange::by_fence(const Errand& errand) const {
  if (errand.is_rank_0) {
    Value value{.type = kString, .string = errand.text.c_str()};
    require(library_.put(kGlobalScope, errand.name.c_str(), &value), "PMIx_Put");
  }
  require(library_.commit(), "PMIx_Commit");
  Info collect = info("pmix.collect", kBool);
  collect.value.flag = true;
  fence({&collect, 1}, errand);
  const std::string text = get(errand);
  fence({}, errand);
  return text;
}

std::string Exchange::by_publishing(const Errand& errand) const {
  if (errand.is_rank_0) {
    Info text = info(published_key(errand), kString);
    text.value.string = errand.text.c_str();
    complete("PMIx_Publish", "it does not answer", errand.deadline,
             [&](void* object) { return library_.publish(&text, 1, done, object); });
    return errand.text;
  }
  Info wait = info("pmix.wait", kInt);  // until it is published
  wait.value.number = 1;
  std::string key = published_key(errand);
  std::array<char*, 2> keys{key.data(), nullptr};
  return complete("PMIx_Lookup", "rank 0 has not called init", errand.deadline, [&](void* object) {
    return library_.look_up(keys.data(), &wait, 1, found, object);
  });
}

std::string Exchange::published_key(const Errand& errand) const {
  return fmt::format("{}-{}", errand.name, self_.job);
}

void Exchange::require(Status status, const char* call) const {
  if (status == kSuccess) return;
  fail(Code::internal, fmt::format("{} of {} answers {} ({})", call, library_.path,
                                   library_.text_of(status), status));
}

template <class Call>
std::string Exchange::complete(const char* name, const std::string& absent,
                               const StartDeadline& deadline, Call call) const {
  auto answer = std::make_shared<Answer>();
  auto share = std::make_unique<SharedAnswer>(answer);
  const Status begun = call(share.get());
  if (begun == kDoneAtOnce) return "";
  require(begun, name);
  static_cast<void>(share.release());
  const auto status = answer->wait(deadline.at);
  if (!status) {
    deadline.fail_at(fmt::format("{} has not come back: {}, or the launcher is gone", name, absent),
                     kNoRank);
  }
  require(*status, name);
  return answer->text();
}

void Exchange::fence(std::span<const Info> options, const Errand& errand) const {
  complete("PMIx_Fence", not_all_have_come(errand), errand.deadline, [&](void* object) {
    return library_.fence(nullptr, 0, options.data(), options.size(), done, object);
  });
}

std::string Exchange::get(const Errand& errand) const {
  Process zero = self_;
  zero.rank = static_cast<uint32_t>(errand.rank_0);
  std::array<char, 512> key{};  // the type of a key has this size
  std::copy_n(errand.name.begin(), std::min(errand.name.size(), key.size() - 1), key.begin());
  return complete("PMIx_Get", not_all_have_come(errand), errand.deadline, [&](void* object) {
    return library_.get(&zero, key.data(), nullptr, 0, got, object);
  });
}

}  // namespace hvd::pmix
