// The C interface over the one Context of the process: the only mutable global there is.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/knobs.h"
#include "core/base/log.h"
#include "core/capi/context.h"
#include "core/capi/group_call.h"
#include "core/capi/knobs_json.h"
#include "core/capi/operations.h"
#include "core/capi/version.h"
#include "horovod/horovod.h"

/// Belongs to the process that made it: a forked child has neither its memory nor its connections.
struct hvd_group {
  std::unique_ptr<hvd::BlockingGroup> group;
  uint32_t forks;  ///< Process::forks when it was made
};

namespace {

using hvd::Code;
using hvd::Context;
using hvd::Error;

struct Process {
  /// What a thread is doing to the Context; only one does at a time.
  enum class Change : uint8_t { none, starting, ending };

  std::mutex mutex;                 ///< guards `context` and `change`; never held for long
  std::condition_variable changed;  ///< `change` is none again
  Change change = Change::none;
  std::shared_ptr<Context> context;
  hvd::Operations operations;
  uint32_t generation = 0;  ///< written by the thread that is starting a Context
  uint32_t forks =
      0;  ///< between the first process and this one; asking for the pid is a system call
};

Process& process();

// A fork happens between two uses of the locks, so that the child finds them free.
void before_fork() {
  process().mutex.lock();
  process().operations.mutex().lock();
  hvd::lock_log();
}
void after_fork() {
  hvd::unlock_log();
  process().operations.mutex().unlock();
  process().mutex.unlock();
}
// A thread that was starting a Context or ending one is not in the child, nor are those that waited
// for it.
void after_fork_in_child() {
  process().change = Process::Change::none;
  new (&process().changed) std::condition_variable;
  if (process().context) process().context->is_now_inherited();
  ++process().forks;
  after_fork();
}

// Never destroyed: at exit threads of the framework may still be about, and a forked child must not
// join threads that it does not have.
Process& process() {
  static Process& instance = [&]() -> Process& {
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
    return *new Process;
  }();
  return instance;
}

/// The right to start a Context or to end it.
class Changing {
 public:
  using Change = Process::Change;

  /// Waits until no other thread has it.
  explicit Changing(Change change) {
    std::unique_lock lock(process().mutex);
    process().changed.wait(lock, [] { return process().change == Change::none; });
    process().change = change;
  }
  /// To end the Context. Nothing while another thread is starting one, which may take long.
  static std::unique_ptr<Changing> unless_starting() {
    std::unique_lock lock(process().mutex);
    process().changed.wait(lock, [] { return process().change != Change::ending; });
    if (process().change == Change::starting) return nullptr;
    process().change = Change::ending;
    return std::unique_ptr<Changing>(new Changing);
  }
  ~Changing() {
    const std::lock_guard lock(process().mutex);
    process().change = Change::none;
    process().changed.notify_all();
  }
  Changing(const Changing&) = delete;
  Changing& operator=(const Changing&) = delete;

 private:
  Changing() = default;
};

thread_local std::string last_error;

std::shared_ptr<Context> current() {
  const std::lock_guard lock(process().mutex);
  const auto& context = process().context;
  return context && context->belongs_to_this_process() ? context : nullptr;
}

std::shared_ptr<Context> running() {
  auto context = current();
  if (!context) {
    hvd::fail(Code::not_initialized, "Horovod is not initialised on this process: call hvd.init()");
  }
  return context;
}

void replace(std::shared_ptr<Context> next) {
  std::shared_ptr<Context> former;  // destroyed outside the lock
  const std::lock_guard lock(process().mutex);
  former = std::exchange(process().context, std::move(next));
  if (former && !former->belongs_to_this_process()) {
    // A forked child has no threads to join: the copy of its parent's Context stays as it is.
    static_cast<void>(new std::shared_ptr<Context>(std::move(former)));
  }
}

// The boundary between exceptions and status codes.
template <class Body>
hvd_status guarded(Body body) noexcept {
  try {
    body();
    return HVD_OK;
  } catch (const Error& error) {
    last_error = error.what();
    return static_cast<hvd_status>(error.code());
  } catch (const std::exception& error) {
    last_error = error.what();
    return HVD_INTERNAL;
  }
}

void end_context() {
  if (const auto context = current()) context->shutdown();
  replace(nullptr);
}

std::vector<int> ranks_in(const hvd_rank_list& list) {
  std::vector<int> ranks(list.ranks, list.ranks + std::max(list.count, 0));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void read_job(const hvd_job& job, hvd::StartOptions& made) {
  made.members = ranks_in(job.members);
  if (job.size < 0 || job.rank < 0 || (job.size > 0 && job.rank >= job.size)) {
    hvd::fail(Code::invalid_argument,
              "rank " + std::to_string(job.rank) + " of a job of " + std::to_string(job.size));
  }
  if (job.introduce != nullptr) {
    made.spread = [job](const std::string& name, const std::string& word) {
      std::vector<char> room(hvd::kMaxIntroductionBytes + 1);
      const char* mine = word.empty() ? nullptr : word.c_str();
      if (!job.introduce(job.context, name.c_str(), mine, room.data(), room.size()))
        hvd::fail(Code::internal, "the ranks could not be introduced to each other");
      return std::string(room.data());
    };
  }
  if (job.size == 0) return;
  if (job.size > 1 && job.introduce == nullptr)
    hvd::fail(Code::invalid_argument, "a job with a size needs a way to introduce its ranks");
  made.place = hvd::Place{job.rank, job.size};
}

hvd::StartOptions start_options(const hvd_init_options* options, const hvd_job* job) {
  hvd::StartOptions made;
  if (job != nullptr) read_job(*job, made);
  if (options == nullptr) return made;
  made.dynamic_process_sets = options->dynamic_process_sets;
  for (int32_t i = 0; i < options->process_set_count; ++i)
    made.process_sets.push_back(ranks_in(options->process_sets[i]));
  return made;
}

std::shared_ptr<const hvd::ProcessSet> find_set(int32_t id) {
  auto set = running()->process_sets().find(id);
  if (!set) hvd::fail(Code::invalid_argument, "no process set has the id " + std::to_string(id));
  return set;
}

const hvd::Operations::Entry& known(const hvd::Operations::Entry& entry) {
  if (!entry.operation) hvd::fail(Code::invalid_argument, "no operation has this handle");
  return entry;
}

/// Of a list that the caller gives.
size_t checked_count(int32_t count) {
  if (count < 0) hvd::fail(Code::invalid_argument, "a list of " + std::to_string(count));
  return static_cast<size_t>(count);
}

bool is_of_this_process(const hvd::Operations::Entry& entry) {
  return entry.forks == process().forks;
}

hvd::Operations::Entry find(hvd_handle handle) { return known(process().operations.find(handle)); }

// Throws what the operation ended with.
void wait_for(const hvd::Operations::Entry& entry) {
  const hvd::Handle& handle = entry.operation->handle;
  if (!handle.done()) {
    if (!is_of_this_process(entry))
      hvd::fail(Code::not_initialized, "the operation belongs to the process that forked this one");
    if (const auto context = entry.context.lock()) {
      context->wait(*entry.operation);
    } else {
      handle.wait();  // another thread destroys the Context, which completes it before it goes
    }
  }
  const hvd::Outcome& outcome = handle.outcome();
  if (outcome.code != Code::ok) hvd::fail(outcome.code, outcome.text, outcome.rank);
}

}  // namespace

const char* hvd_last_error(void) { return last_error.c_str(); }
const char* hvd_version(void) { return hvd::kVersion; }
const char* hvd_knobs(void) {
  static const std::string& text = *new std::string(hvd::knobs_json());
  return text.c_str();
}

hvd_status hvd_init(void) { return hvd_init_job(nullptr, nullptr); }

hvd_status hvd_init_with(const hvd_init_options* options) { return hvd_init_job(options, nullptr); }

hvd_status hvd_init_job(const hvd_init_options* options, const hvd_job* job) {
  const hvd_status status = guarded([=] {
    const Changing changing(Process::Change::starting);
    if (const auto context = current()) {
      if (!context->ending()) return;
      context->shutdown();  // its last callbacks have returned: none of them is left to destroy it
    }
    replace(nullptr);
    const uint32_t generation = ++process().generation;
    replace(std::make_shared<Context>(hvd::process_environment(), generation,
                                      start_options(options, job)));
  });
  if (status != HVD_OK) hvd::log(hvd::LogLevel::error, "hvd.init() failed: " + last_error);
  return status;
}

hvd_status hvd_shutdown(void) {
  return guarded([] {
    const Changing changing(Process::Change::ending);
    end_context();
  });
}

hvd_status hvd_shutdown_at_exit(void) {
  return guarded([] {
    if (const auto changing = Changing::unless_starting()) end_context();
  });
}

bool hvd_is_initialized(void) { return current() != nullptr; }

bool hvd_uses_mpi(void) {
  const auto context = current();
  return context && context->uses_mpi();
}

hvd_status hvd_derive_key(const char* purpose, uint8_t* key) {
  return guarded([&] {
    const hvd::JobKey derived = running()->derived_key(purpose);
    static_assert(sizeof(derived.bytes) == HVD_KEY_BYTES);
    std::memcpy(key, derived.bytes.data(), derived.bytes.size());
  });
}

hvd_status hvd_get_world(hvd_world* world) {
  return guarded([&] { *world = running()->world(); });
}

hvd_status hvd_add_process_set(hvd_rank_list ranks, int32_t* id) {
  return guarded([&] { *id = running()->add_process_set(ranks_in(ranks)); });
}

hvd_status hvd_remove_process_set(int32_t id) {
  return guarded([=] { running()->remove_process_set(id); });
}

hvd_status hvd_get_process_set(int32_t id, int32_t* size, int32_t* rank) {
  return guarded([=] {
    const auto set = find_set(id);
    *size = set->size();
    *rank = set->rank_of(running()->world().rank);
  });
}

hvd_status hvd_get_process_set_ranks(int32_t id, int32_t* ranks, int32_t capacity) {
  return guarded([=] {
    const auto set = find_set(id);
    if (set->size() > capacity) {
      hvd::fail(Code::invalid_argument, "process set " + std::to_string(id) + " has " +
                                            std::to_string(set->size()) + " ranks, more than " +
                                            std::to_string(capacity));
    }
    std::ranges::copy(set->ranks, ranks);
  });
}

hvd_status hvd_submit(const hvd_request* request, hvd_handle* handle) {
  return guarded([&] {
    const auto context = running();
    if (handle == nullptr && request->ended == nullptr)
      hvd::fail(Code::invalid_argument, "a request without `ended` needs a handle");
    auto operation = context->submit(*request, handle != nullptr);
    if (handle != nullptr)
      *handle = process().operations.add({std::move(operation), context, process().forks});
  });
}

hvd_status hvd_submit_all(const hvd_request* requests, int32_t count, hvd_handle* handles) {
  return guarded([&] {
    const auto context = running();
    const auto operations = context->submit({requests, checked_count(count)});
    process().operations.add_all(operations, {nullptr, context, process().forks}, handles);
  });
}

bool hvd_poll(hvd_handle handle) {
  const auto entry = process().operations.find(handle);
  return !entry.operation || entry.operation->handle.done() || !is_of_this_process(entry);
}

hvd_status hvd_wait(hvd_handle handle) {
  return guarded([&] { wait_for(find(handle)); });
}

hvd_status hvd_finish_all(const hvd_handle* handles, int32_t count) {
  hvd_status first = HVD_OK;
  std::string text;
  const auto add = [&](hvd_status status) {
    if (first == HVD_OK && status != HVD_OK) first = status, text = last_error;
  };
  add(guarded([&] {
    const auto entries = process().operations.take({handles, checked_count(count)});
    for (const auto& entry : entries) add(guarded([&] { wait_for(known(entry)); }));
  }));
  if (first != HVD_OK) last_error = text;
  return first;
}

hvd_status hvd_take_output(hvd_handle handle, int32_t index, hvd_tensor* output) {
  return guarded([&] {
    const auto operation = find(handle).operation;
    auto& outputs = operation->outputs;
    if (!operation->handle.done() || index < 0 || static_cast<size_t>(index) >= outputs.size())
      hvd::fail(Code::invalid_argument, "there is no such output, or not yet");
    auto& [dtype, taken] = outputs[static_cast<size_t>(index)];
    *output = {taken.memory.release(), taken.shape.data(), static_cast<int32_t>(taken.shape.size()),
               static_cast<hvd_dtype>(dtype)};
  });
}

hvd_status hvd_get_last_joined(hvd_handle handle, int32_t* rank) {
  return guarded([&] {
    const auto operation = find(handle).operation;
    if (!operation->handle.done() || operation->number == hvd::kNoRank)
      hvd::fail(Code::invalid_argument, "this is no join, or it has not ended yet");
    *rank = operation->number;
  });
}

void hvd_free_memory(void* memory) {
  hvd::AlignedBuffer::free_released(static_cast<std::byte*>(memory));
}

hvd_status hvd_start_timeline(const char* path, bool mark_cycles) {
  return guarded([&] { running()->start_timeline(path == nullptr ? "" : path, mark_cycles); });
}

hvd_status hvd_stop_timeline(void) {
  return guarded([] { running()->stop_timeline(); });
}

void hvd_free(hvd_handle handle) { process().operations.remove(handle); }

hvd_status hvd_group_create(hvd_rank_list ranks, hvd_group** group) {
  return guarded([&] {
    const auto context = running();
    std::vector<int> list(ranks.ranks, ranks.ranks + (ranks.count > 0 ? ranks.count : 0));
    *group = new hvd_group{context->make_group(std::move(list)), process().forks};
  });
}

int32_t hvd_group_rank(const hvd_group* group) { return group->group->rank(); }
int32_t hvd_group_size(const hvd_group* group) { return group->group->size(); }

hvd_status hvd_group_run(hvd_group* group, const hvd_request* request) {
  return guarded([&] {
    if (group->forks != process().forks)
      hvd::fail(Code::not_initialized, "the group belongs to the process that forked this one");
    hvd::run_on(*group->group, *request);
  });
}

void hvd_group_free(hvd_group* group) {
  if (group == nullptr || group->forks != process().forks) return;
  guarded([&] { group->group->leave(); });  // a rank that is lost has no need of a goodbye
  delete group;
}
