// Implements the C interface on the Context of the process (process.h).
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/error.h"
#include "core/base/knobs.h"
#include "core/base/log.h"
#include "core/base/version.h"
#include "core/capi/group_call.h"
#include "core/capi/knobs_json.h"
#include "core/capi/process.h"
#include "core/capi/submission.h"
#include "core/transport/record_cipher.h"
#include "horovod/horovod.h"

/// Only the process that made it can use it; a forked child has neither its memory nor connections.
struct hvd_group {
  std::unique_ptr<hvd::BlockingGroup> group;
  uint32_t forks;  ///< Process::forks when it was made
};

namespace {

using hvd::Changing;
using hvd::Code;
using hvd::Context;
using hvd::current;
using hvd::guarded;
using hvd::Process;
using hvd::process;
using hvd::replace;
using hvd::running;

hvd::SecretBytes secret_in(const uint8_t* key) {
  hvd::SecretBytes secret;
  static_assert(sizeof secret == HVD_KEY_BYTES);
  static_assert(hvd::RecordCipher::kTagBytes == HVD_SEAL_BYTES);
  std::memcpy(secret.data(), key, secret.size());
  return secret;
}

/// Returns the loss of a rank for which this process has waited in vain. In an elastic job that is
/// a matter of the launcher: others continue in its next generation.
std::optional<hvd::Error> end_context() {
  const auto context = current();
  const auto loss = context ? context->shutdown() : std::nullopt;
  replace(nullptr);
  return loss && hvd::membership() ? std::nullopt : loss;
}

/// Waits for a place in an elastic job; `environment` then describes it.
void take_place(hvd::Membership& membership, hvd::Environment& environment) {
  constexpr std::chrono::hours kRound{1};
  while (!membership.await_place(kRound)) {
  }
  for (const auto& [name, value] : membership.variables())
    environment.insert_or_assign(name, value);
}

/// Throws if the parent that forked this process is a rank.
void require_no_parent() {
  std::shared_ptr<Context> context;
  {
    const std::lock_guard lock(process().mutex);
    context = process().context;
  }
  if (context && !context->belongs_to_this_process()) context->require_no_parent();
}

std::vector<int> ranks_in(const hvd_rank_list& list) {
  std::vector<int> ranks(list.ranks, list.ranks + std::max(list.count, 0));
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

void read_job(const hvd_job& job, hvd::StartOptions& made) {
  made.members = ranks_in(job.members);
  if (job.size < 0 || job.rank < 0 || (job.size > 0 && job.rank >= job.size)) {
    hvd::fail(Code::invalid_argument, "hvd_job: rank " + std::to_string(job.rank) +
                                          " is not valid for size " + std::to_string(job.size));
  }
  if (job.rendezvous != nullptr) {
    made.rendezvous = [job](const std::string& name, const std::string& root_address) {
      std::vector<char> received(hvd::kMaxRendezvousBytes + 1);
      const char* own = root_address.empty() ? nullptr : root_address.c_str();
      if (!job.rendezvous(job.context, name.c_str(), own, received.data(), received.size()))
        hvd::fail(Code::internal,
                  "`rendezvous` of the job failed to deliver the address of rank 0 to this rank");
      return std::string(received.data());
    };
  }
  if (job.size == 0) return;
  if (job.size > 1 && job.rendezvous == nullptr)
    hvd::fail(
        Code::invalid_argument,
        "a job with a size needs `rendezvous`, which gives the address of rank 0 to all ranks");
  made.world = hvd::RankAndSize{job.rank, job.size};
}

hvd::StartOptions start_options(const hvd_init_options* options, const hvd_job* job) {
  hvd::StartOptions made;
  if (job != nullptr) read_job(*job, made);
  if (options == nullptr) return made;
  made.dynamic_process_sets = options->dynamic_process_sets;
  if (options->nccl_library != nullptr) made.nccl_of_python = options->nccl_library;
  for (int32_t i = 0; i < options->process_set_count; ++i)
    made.process_sets.push_back(ranks_in(options->process_sets[i]));
  return made;
}

/// Returns nullptr if another rank was lost meanwhile, or does not join.
std::shared_ptr<Context> try_to_start(const hvd::Environment& environment,
                                      const hvd::StartOptions& options) try {
  return std::make_shared<Context>(environment, ++process().inits, options);
} catch (const hvd::Error& error) {
  if (error.code() != Code::peer_lost && error.code() != Code::timed_out)
    hvd::fail(error.code(), error.what(), error.rank());
  hvd::last_error() = error.what();
  return nullptr;
}

/// In an elastic job, a generation that loses a worker before it has formed is left for the next.
/// If several do not form, the cause is probably not a lost worker.
std::shared_ptr<Context> start_in_elastic_job(hvd::Membership& membership,
                                              const hvd::StartOptions& options) {
  constexpr int kMostGenerations = 5;
  for (int tried = 1;; ++tried) {
    hvd::Environment environment = hvd::process_environment();
    take_place(membership, environment);
    if (auto context = try_to_start(environment, options)) return context;
    if (tried == kMostGenerations)
      hvd::fail(Code::peer_lost,
                fmt::format("{} generations have not formed, the last one since: {}", tried,
                            hvd::last_error()));
    hvd::log(hvd::LogLevel::warning,
             "asking for a place in the next generation, since this one "
             "has not formed: " +
                 hvd::last_error());
    membership.ask();
  }
}

std::shared_ptr<Context> start_context(const hvd::StartOptions& options) {
  if (const auto membership = hvd::membership()) return start_in_elastic_job(*membership, options);
  return std::make_shared<Context>(hvd::process_environment(), ++process().inits, options);
}

std::shared_ptr<const hvd::ProcessSet> find_set(int32_t id) {
  auto set = running()->process_sets().find(id);
  if (!set) hvd::fail(Code::invalid_argument, "no process set has the id " + std::to_string(id));
  return set;
}

const hvd::HandleTable::Entry& known(const hvd::HandleTable::Entry& entry) {
  if (!entry.completion) hvd::fail(Code::invalid_argument, "no operation has this handle");
  return entry;
}

/// Checks the length of a list of the caller.
size_t checked_count(int32_t count) {
  if (count < 0)
    hvd::fail(Code::invalid_argument,
              "count must not be negative, but is " + std::to_string(count));
  return static_cast<size_t>(count);
}

bool is_of_this_process(const hvd::HandleTable::Entry& entry) {
  return entry.forks == process().forks;
}

hvd::HandleTable::Entry find(hvd_handle handle) { return known(process().handles.find(handle)); }

// Waits for the operation and throws its error, if any.
void wait_for(const hvd::HandleTable::Entry& entry) {
  const hvd::Handle& handle = entry.completion->handle;
  if (!handle.done()) {
    if (!is_of_this_process(entry))
      hvd::fail(Code::not_initialized, "the operation belongs to the process that forked this one");
    if (const auto context = entry.context.lock()) {
      context->wait(*entry.completion);
    } else {
      handle.wait();  // another thread destroys the Context, which completes the operation first
    }
  }
  const hvd::Outcome& outcome = handle.outcome();
  if (outcome.code != Code::ok) hvd::fail(outcome.code, outcome.text, outcome.rank);
}

void delay_stream(const hvd::HandleTable::Entry& entry, void* stream) {
  const hvd::Completion& operation = *entry.completion;
  if (!operation.handle.done())
    hvd::fail(Code::invalid_argument, "the operation has not completed yet: call hvd_wait first");
  if (operation.result) operation.result->delay(stream);
}

/// Waits for all operations and frees them. Makes `stream`, if any, wait for the results of those
/// that have succeeded. Throws the first error.
void finish_all(std::span<const hvd_handle> handles, std::optional<void*> stream) {
  std::exception_ptr first;
  std::set<std::shared_ptr<const hvd::DeviceResult>> seen;  // operations of a batch share one
  for (const auto& entry : process().handles.take(handles)) {
    try {
      wait_for(known(entry));
      if (stream && seen.insert(entry.completion->result).second) delay_stream(entry, *stream);
    } catch (...) {
      if (!first) first = std::current_exception();
    }
  }
  if (first) std::rethrow_exception(first);
}

bool is_dtype(int32_t number) {
  return number >= 0 && number <= static_cast<int32_t>(hvd::kLastDType);
}

}  // namespace

const char* hvd_last_error(void) { return hvd::last_error().c_str(); }
const char* hvd_version(void) { return hvd::kVersion; }
const char* hvd_knobs(void) {
  static const std::string& text = *new std::string(hvd::knobs_json());
  return text.c_str();
}
const char* hvd_dtype_name(int32_t dtype) {
  return is_dtype(dtype) ? hvd::name_of(static_cast<hvd::DType>(dtype)).data() : nullptr;
}
size_t hvd_dtype_bytes(int32_t dtype) {
  return is_dtype(dtype) ? hvd::element_bytes(static_cast<hvd::DType>(dtype)) : 0;
}

hvd_status hvd_init(void) { return hvd_init_job(nullptr, nullptr); }

hvd_status hvd_init_with(const hvd_init_options* options) { return hvd_init_job(options, nullptr); }

hvd_status hvd_init_job(const hvd_init_options* options, const hvd_job* job) {
  const hvd_status status = guarded([=] {
    const Changing changing(Process::Change::starting);
    if (const auto context = current()) {
      if (!context->ending()) return;
      context
          ->shutdown();  // waits for its last callbacks, which must not be the ones to destroy it
    }
    require_no_parent();
    replace(nullptr);
    replace(start_context(start_options(options, job)));
  });
  if (status != HVD_OK) hvd::log(hvd::LogLevel::error, "hvd.init() failed: " + hvd::last_error());
  return status;
}

hvd_status hvd_shutdown(void) {
  return guarded([] {
    const Changing changing(Process::Change::ending);
    if (const auto loss = end_context()) hvd::fail(loss->code(), loss->what(), loss->rank());
  });
}

hvd_status hvd_shutdown_at_exit(void) {
  return guarded([] {
    const auto changing = Changing::unless_starting();
    const auto loss = changing ? end_context() : std::nullopt;
    if (loss) hvd::log(hvd::LogLevel::error, loss->what());
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

hvd_status hvd_seal(const uint8_t* key, uint64_t number, const void* message, size_t bytes,
                    void* sealed) {
  return guarded([&] {
    hvd::seal_message(secret_in(key), number, {static_cast<const std::byte*>(message), bytes},
                      {static_cast<std::byte*>(sealed), bytes + HVD_SEAL_BYTES});
  });
}

hvd_status hvd_unseal(const uint8_t* key, uint64_t number, const void* sealed, size_t bytes,
                      void* message) {
  return guarded([&] {
    hvd::open_message(secret_in(key), number,
                      {static_cast<const std::byte*>(sealed), bytes + HVD_SEAL_BYTES},
                      {static_cast<std::byte*>(message), bytes});
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
    // With `queued`, no thread waits although there is a handle.
    const bool is_waited_for = handle != nullptr && request->queued == nullptr;
    auto operation = context->submit(*request, is_waited_for);
    if (handle != nullptr)
      *handle = process().handles.add({std::move(operation), context, process().forks});
  });
}

hvd_status hvd_submit_all(const hvd_request* requests, int32_t count, hvd_handle* handles) {
  return guarded([&] {
    const auto context = running();
    const auto operations = context->submit({requests, checked_count(count)});
    process().handles.add_all(operations, {nullptr, context, process().forks}, handles);
  });
}

bool hvd_poll(hvd_handle handle) {
  const auto entry = process().handles.find(handle);
  return !entry.completion || entry.completion->handle.done() || !is_of_this_process(entry);
}

bool hvd_poll_for(hvd_handle handle, int64_t microseconds) {
  const auto entry = process().handles.find(handle);
  if (!entry.completion || !is_of_this_process(entry)) return true;
  const std::chrono::microseconds patience(microseconds);
  const auto context = entry.context.lock();
  return context ? context->poll(*entry.completion, patience)
                 : entry.completion->handle.wait_for(patience);
}

hvd_status hvd_wait(hvd_handle handle) {
  return guarded([&] { wait_for(find(handle)); });
}

hvd_status hvd_wait_on_stream(hvd_handle handle, void* stream) {
  return guarded([=] { delay_stream(find(handle), stream); });
}

hvd_status hvd_finish_all(const hvd_handle* handles, int32_t count) {
  return guarded([=] { finish_all({handles, checked_count(count)}, {}); });
}

hvd_status hvd_finish_all_on_stream(const hvd_handle* handles, int32_t count, void* stream) {
  return guarded([=] { finish_all({handles, checked_count(count)}, stream); });
}

hvd_status hvd_check_running(void) {
  return guarded([] {
    if (const auto ended = running()->ending()) hvd::fail(ended->code, ended->text, ended->rank);
  });
}

hvd_status hvd_take_output(hvd_handle handle, int32_t index, hvd_tensor* output) {
  return guarded([&] {
    const auto operation = find(handle).completion;
    auto& outputs = operation->outputs;
    if (!operation->handle.done() || index < 0 || static_cast<size_t>(index) >= outputs.size())
      hvd::fail(Code::invalid_argument, "the operation has no output " + std::to_string(index) +
                                            ", or it has not completed yet");
    *output = hvd::released(outputs[static_cast<size_t>(index)]);
  });
}

hvd_status hvd_get_last_joined(hvd_handle handle, int32_t* rank) {
  return guarded([&] {
    const auto operation = find(handle).completion;
    if (!operation->handle.done() || operation->number == hvd::kNoRank)
      hvd::fail(Code::invalid_argument, "the operation is not a join, or has not completed yet");
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

hvd_status hvd_counters(hvd_counter* counters, int32_t* count) {
  return guarded([&] {
    const std::vector<std::string>& names = hvd::counter_names();
    const std::vector<uint64_t> values = hvd::list_of(running()->counters());
    const size_t room = counters == nullptr || *count < 0 ? 0 : static_cast<size_t>(*count);
    for (size_t i = 0; i < std::min(room, values.size()); ++i)
      counters[i] = {names[i].c_str(), values[i]};
    *count = static_cast<int32_t>(values.size());
  });
}

hvd_status hvd_prepare_dump(int32_t* signal, int32_t* descriptor) {
  return guarded([&] {
    const hvd::Knobs knobs = hvd::knobs_from(hvd::process_environment());
    const auto* board = hvd::RankBoard::of_this_process(static_cast<int>(knobs.dump_signal));
    *signal = board == nullptr ? 0 : board->signal();
    *descriptor = board == nullptr ? -1 : board->stack_fd();
  });
}

void hvd_answer_dumps(void) {
  if (hvd::RankBoard* const board = hvd::RankBoard::here()) board->arm();
}

void hvd_meet_before_init(bool meets) {
  using hvd::RankStage;
  if (current() == nullptr)
    hvd::RankBoard::enter(meets ? RankStage::in_init : RankStage::init_failed);
}

void hvd_count_step(void) {
  if (hvd::RankBoard* const board = hvd::RankBoard::here()) board->count_step();
}

void hvd_free(hvd_handle handle) { process().handles.remove(handle); }

hvd_status hvd_group_create(hvd_rank_list ranks, hvd_group** group) {
  return hvd_group_create_named(ranks, "", group);
}

hvd_status hvd_group_create_named(hvd_rank_list ranks, const char* name, hvd_group** group) {
  return guarded([&] {
    const auto context = running();
    std::vector<int> list(ranks.ranks, ranks.ranks + (ranks.count > 0 ? ranks.count : 0));
    auto made = context->make_group(std::move(list), name);
    *group = new hvd_group{std::move(made), process().forks};
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
  guarded([&] { group->group->leave(); });  // ignores errors, e.g. of lost ranks
  delete group;
}
