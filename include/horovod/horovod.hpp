/// The C++ interface (C++20): headers only, on top of horovod.h.
///
/// A Context is a running job. Ranks match its operations by name and may start them in any order.
/// A Group runs blocking calls, which all its ranks make in the same order, as in MPI. It has lower
/// latency for small data.
///
/// Data is passed as contiguous ranges: std::span, std::vector, std::array, arrays. The element
/// types are float, double, the integers of hvd_dtype, bool, float16 and bfloat16. Errors are
/// thrown as hvd::Error. Any thread may use a Context and its Handles. One thread at a time may use
/// a Group.
#ifndef HOROVOD_HOROVOD_HPP_
#define HOROVOD_HOROVOD_HPP_

#include <horovod/horovod.h>

#include <cstddef>
#include <cstdint>
#include <horovod/elements.hpp>
#include <memory>
#include <ranges>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace hvd {

// ---- results -----------------------------------------------------------------------------------

/// Owns elements in memory that the runtime has allocated, [size()]. Move-only.
template <Element T>
class Gathered {
 public:
  std::span<const T> span() const { return {data_.get(), size_}; }
  std::span<T> span() { return {data_.get(), size_}; }
  std::size_t size() const { return size_; }
  const T& operator[](std::size_t index) const { return data_.get()[index]; }
  const T* begin() const { return data_.get(); }
  const T* end() const { return data_.get() + size_; }

  /// Takes output `index` of a completed operation. Throws Error{HVD_INVALID_ARGUMENT} if there is
  /// no such output.
  static Gathered take(hvd_handle handle, std::int32_t index) {
    hvd_tensor output{};
    detail::check(hvd_take_output(handle, index, &output));
    Gathered taken;
    taken.data_.reset(static_cast<T*>(output.data));
    taken.size_ = static_cast<std::size_t>(output.shape[0]);
    return taken;
  }

 private:
  struct Free {
    void operator()(T* data) const { hvd_free_memory(data); }
  };
  std::unique_ptr<T, Free> data_;
  std::size_t size_ = 0;
};

/// The result of an alltoall.
template <Element T>
struct Exchanged {
  Gathered<T> elements;                    ///< in ascending order of the source rank
  Gathered<std::int32_t> received_splits;  ///< [size of the set] elements from each rank
};

/// An operation in flight. The memory that was passed to it must stay valid until it has ended. The
/// destructor waits for the end and ignores errors. Move-only.
template <class Result>
class Handle {
 public:
  using Fetch = Result (*)(hvd_handle);
  Handle(hvd_handle handle, Fetch fetch) : handle_(handle), fetch_(fetch) {}
  ~Handle() { end(); }
  Handle(Handle&& other) noexcept
      : handle_(std::exchange(other.handle_, 0)), fetch_(other.fetch_) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      end();
      handle_ = std::exchange(other.handle_, 0);
      fetch_ = other.fetch_;
    }
    return *this;
  }

  /// Returns whether the operation has completed or failed. Never blocks.
  bool poll() const { return handle_ == 0 || hvd_poll(handle_); }
  /// Blocks until the operation has ended and returns its result. Can be called once. Throws
  /// Error{HVD_MISMATCH} if ranks disagree about the operation, Error{HVD_PEER_LOST} or
  /// Error{HVD_SHUT_DOWN} if the job ended first, Error{HVD_INVALID_ARGUMENT} on a second call.
  Result wait() {
    detail::expect(handle_ != 0, "the result of this operation was fetched already");
    detail::check(hvd_wait(handle_));
    const Handle ended(std::exchange(handle_, 0), fetch_);  // freed after the result is fetched
    return fetch_(ended.handle_);
  }

 private:
  void end() noexcept {
    if (handle_ == 0) return;
    static_cast<void>(hvd_wait(handle_));
    hvd_free(std::exchange(handle_, 0));
  }

  hvd_handle handle_;
  Fetch fetch_;
};

// ---- the job -----------------------------------------------------------------------------------

/// Names a subset of the ranks of a job, see Context::add_process_set. A value type.
struct ProcessSet {
  std::int32_t id = 0;  ///< 0: all ranks
};

struct Options {
  std::vector<std::vector<std::int32_t>> process_sets{};  ///< global ranks; ids start at 1
  bool dynamic_process_sets = false;                      ///< sets may be added and removed later
};

/// The job of this process. The constructor starts the job, or uses the running one. The destructor
/// ends the job on all ranks.
///
/// The functions *_async submit an operation and return without waiting for it. All of them throw
/// Error{HVD_INVALID_ARGUMENT} if the arguments are invalid on this rank or an operation of the
/// same name is in flight on the process set, and the error of the job if it has ended. `name`
/// identifies the operation on all ranks. Inputs and outputs must stay valid until the operation
/// has ended.
class Context {
 public:
  /// Blocks until all ranks are connected. Throws Error{HVD_TIMED_OUT} naming the missing ranks,
  /// and the other errors of hvd_init_with.
  explicit Context(const Options& options = {}) {
    std::vector<hvd_rank_list> sets;
    for (const auto& ranks : options.process_sets) sets.push_back(detail::list_of(ranks));
    const hvd_init_options with{sets.data(), static_cast<std::int32_t>(sets.size()),
                                options.dynamic_process_sets, nullptr};
    detail::check(hvd_init_with(&with));
  }
  ~Context() { static_cast<void>(hvd_shutdown()); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  /// Returns the ranks and sizes of the job. Throws Error{HVD_NOT_INITIALIZED} after a shutdown.
  hvd_world world() const {
    hvd_world world{};
    detail::check(hvd_get_world(&world));
    return world;
  }
  int rank() const { return world().rank; }
  int size() const { return world().size; }
  int local_rank() const { return world().local_rank; }
  int local_size() const { return world().local_size; }

  /// Adds the set of `ranks` (global). Collective over all ranks of the job; blocks. Throws the
  /// errors of hvd_add_process_set.
  ProcessSet add_process_set(std::span<const std::int32_t> ranks) {
    ProcessSet set;
    detail::check(hvd_add_process_set(detail::list_of(ranks), &set.id));
    return set;
  }
  /// Removes `set`. Collective over all ranks of the job; blocks. Throws the errors of
  /// hvd_remove_process_set.
  void remove_process_set(ProcessSet set) { detail::check(hvd_remove_process_set(set.id)); }
  int size(ProcessSet set) const { return place_in(set).first; }
  /// Returns the rank of this process in the set, -1 if it is not a member.
  int rank(ProcessSet set) const { return place_in(set).second; }

  /// Reduces `in` of all ranks into `out`. Both have the same size on every rank.
  template <Elements In, RoomFor<In> Out>
  Handle<void> allreduce_async(const std::string& name, In&& in, Out&& out, const Reduction& how,
                               ProcessSet set = {}) {
    detail::expect(std::ranges::size(in) == std::ranges::size(out),
                   "allreduce: the output must be as large as the input");
    detail::Call call(HVD_ALLREDUCE, name.c_str());
    return started(call.input(in).output(out).with(how).on(set.id));
  }
  /// Reduces `data` in place.
  template <Room Data>
  Handle<void> allreduce_async(const std::string& name, Data&& data, const Reduction& how,
                               ProcessSet set = {}) {
    return allreduce_async(name, data, data, how, set);
  }
  /// Reduces several tensors in place as one operation. It starts when every rank has submitted it.
  template <Element T>
  Handle<void> allreduce_async(const std::string& name, const std::vector<std::span<T>>& group,
                               const Reduction& how, ProcessSet set = {}) {
    detail::Call call(HVD_ALLREDUCE, name.c_str());
    for (const std::span<T> data : group) call.input(data).output(data);
    return started(call.with(how).on(set.id));
  }
  /// Concatenates the elements of all ranks in ascending order of rank. Sizes may differ per rank.
  template <Elements In>
  Handle<Gathered<element_of<In>>> allgather_async(const std::string& name, In&& in,
                                                   ProcessSet set = {}) {
    detail::Call call(HVD_ALLGATHER, name.c_str());
    return {call.input(in).on(set.id).submit(),
            [](hvd_handle handle) { return Gathered<element_of<In>>::take(handle, 0); }};
  }
  /// Copies `data` of the global rank `root` to all ranks. The size is equal on all ranks.
  template <Room Data>
  Handle<void> broadcast_async(const std::string& name, Data&& data, int root,
                               ProcessSet set = {}) {
    detail::Call call(HVD_BROADCAST, name.c_str());
    return started(call.input(data).output(data).root(root).on(set.id));
  }
  /// Sends `data` to the global rank `to`, which calls receive_async with the same name and size.
  template <Elements In>
  Handle<void> send_async(const std::string& name, In&& data, int to) {
    detail::Call call(HVD_MESSAGE, name.c_str());
    return started(call.input(data).message(rank(), to));
  }
  /// Overwrites `data` with that of the global rank `from`, which calls send_async.
  template <Room Data>
  Handle<void> receive_async(const std::string& name, Data&& data, int from) {
    detail::Call call(HVD_MESSAGE, name.c_str());
    return started(call.input(data).output(data).message(from, rank()));
  }
  /// Sends part r of `in` to rank r of the set. `splits` [size of the set]: the elements for each
  /// rank; empty: equal parts.
  template <Elements In>
  Handle<Exchanged<element_of<In>>> alltoall_async(const std::string& name, In&& in,
                                                   std::span<const std::int32_t> splits = {},
                                                   ProcessSet set = {}) {
    using T = element_of<In>;
    detail::Call call(HVD_ALLTOALL, name.c_str());
    return {call.input(in).splits(splits).on(set.id).submit(), [](hvd_handle handle) {
              return Exchanged<T>{Gathered<T>::take(handle, 0),
                                  Gathered<std::int32_t>::take(handle, 1)};
            }};
  }
  /// Reduces `in` of all ranks and stores the part of this rank in `out` [reduced_elements()].
  template <Elements In, RoomFor<In> Out>
  Handle<void> reducescatter_async(const std::string& name, In&& in, Out&& out,
                                   const Reduction& how, ProcessSet set = {}) {
    detail::expect(std::ranges::size(out) == reduced_elements(std::ranges::size(in), set),
                   "reducescatter: the output must be as large as this rank's part");
    detail::Call call(HVD_REDUCESCATTER, name.c_str());
    return started(call.input(in).output(out).with(how).on(set.id));
  }
  /// Returns how many of `total` elements a reducescatter stores on this rank. The lowest ranks get
  /// one more if the division leaves a remainder.
  std::size_t reduced_elements(std::size_t total, ProcessSet set = {}) const {
    const auto [size, rank] = place_in(set);
    return detail::share_of(total, rank, size);
  }
  /// Ends when all ranks of the set have submitted it.
  Handle<void> barrier_async(const std::string& name, ProcessSet set = {}) {
    return started(detail::Call(HVD_BARRIER, name.c_str()).on(set.id));
  }
  /// Declares that this rank has no more data. Until all ranks have joined, this rank takes part in
  /// the reductions of the others without contributing. The result is the rank that joined last.
  Handle<int> join_async() {
    return {detail::Call(HVD_JOIN, "join").submit(), [](hvd_handle handle) {
              std::int32_t rank = 0;
              detail::check(hvd_get_last_joined(handle, &rank));
              return static_cast<int>(rank);
            }};
  }

  // The blocking forms: they submit the operation, wait, and return or throw as Handle::wait()
  // does.

  template <Elements In, RoomFor<In> Out>
  void allreduce(const std::string& name, In&& in, Out&& out, const Reduction& how,
                 ProcessSet set = {}) {
    allreduce_async(name, in, out, how, set).wait();
  }
  template <Room Data>
  void allreduce(const std::string& name, Data&& data, const Reduction& how, ProcessSet set = {}) {
    allreduce_async(name, data, how, set).wait();
  }
  template <Element T>
  void allreduce(const std::string& name, const std::vector<std::span<T>>& group,
                 const Reduction& how, ProcessSet set = {}) {
    allreduce_async(name, group, how, set).wait();
  }
  template <Elements In>
  auto allgather(const std::string& name, In&& in, ProcessSet set = {}) {
    return allgather_async(name, in, set).wait();
  }
  template <Room Data>
  void broadcast(const std::string& name, Data&& data, int root, ProcessSet set = {}) {
    broadcast_async(name, data, root, set).wait();
  }
  template <Elements In>
  void send(const std::string& name, In&& data, int to) {
    send_async(name, data, to).wait();
  }
  template <Room Data>
  void receive(const std::string& name, Data&& data, int from) {
    receive_async(name, data, from).wait();
  }
  template <Elements In>
  auto alltoall(const std::string& name, In&& in, std::span<const std::int32_t> splits = {},
                ProcessSet set = {}) {
    return alltoall_async(name, in, splits, set).wait();
  }
  template <Elements In, RoomFor<In> Out>
  void reducescatter(const std::string& name, In&& in, Out&& out, const Reduction& how,
                     ProcessSet set = {}) {
    reducescatter_async(name, in, out, how, set).wait();
  }
  void barrier(const std::string& name, ProcessSet set = {}) { barrier_async(name, set).wait(); }
  int join() { return join_async().wait(); }

 private:
  static Handle<void> started(detail::Call& call) {
    return {call.submit(), [](hvd_handle) {}};
  }

  std::pair<int, int> place_in(ProcessSet set) const {  // size, rank
    std::int32_t size = 0, rank = -1;
    detail::check(hvd_get_process_set(set.id, &size, &rank));
    return {size, rank};
  }
};

// ---- groups ------------------------------------------------------------------------------------

/// Runs blocking calls among ranks that make the same calls in the same order. Every call blocks
/// until its result is available. Sizes, element types and reductions must be equal on all ranks;
/// this is not checked. Calls throw Error{HVD_INVALID_ARGUMENT} for invalid arguments, and
/// Error{HVD_PEER_LOST} naming a rank that has terminated. After the latter the Group can only be
/// destroyed. Destruction is collective, see hvd_group_free.
class Group {
 public:
  /// Creates a group of `ranks` (global, including this one; empty: all ranks). Collective over
  /// these ranks; blocks. Needs a Context; the group may outlive it. Ranks within the group are
  /// numbered in ascending order. Throws the errors of hvd_group_create.
  explicit Group(std::span<const std::int32_t> ranks = {}) {
    hvd_group* made = nullptr;
    detail::check(hvd_group_create(detail::list_of(ranks), &made));
    group_.reset(made);
  }

  int rank() const { return hvd_group_rank(group_.get()); }
  int size() const { return hvd_group_size(group_.get()); }

  /// Reduces `in` of all ranks into `out`, which has the same size.
  template <Elements In, RoomFor<In> Out>
  void allreduce(In&& in, Out&& out, const Reduction& how) {
    detail::expect(std::ranges::size(in) == std::ranges::size(out),
                   "allreduce: the output must be as large as the input");
    run(HVD_ALLREDUCE, [&](detail::Call& call) { call.input(in).output(out).with(how); });
  }
  /// Reduces `data` in place.
  template <Room Data>
  void allreduce(Data&& data, const Reduction& how) {
    allreduce(data, data, how);
  }
  /// Concatenates `in` of all ranks in ascending order of rank. `out`: [size() * size of `in`].
  template <Elements In, RoomFor<In> Out>
  void allgather(In&& in, Out&& out) {
    detail::expect(
        std::ranges::size(out) == std::ranges::size(in) * static_cast<std::size_t>(size()),
        "allgather: the output must be as large as all inputs");
    run(HVD_ALLGATHER, [&](detail::Call& call) { call.input(in).output(out); });
  }
  /// Copies `data` of `root`, a rank of the group, to all ranks.
  template <Room Data>
  void broadcast(Data&& data, int root) {
    run(HVD_BROADCAST, [&](detail::Call& call) { call.input(data).output(data).root(root); });
  }
  /// Sends part r of `in` to rank r and receives part r of `out` from it. Both: [size() * part].
  template <Elements In, RoomFor<In> Out>
  void alltoall(In&& in, Out&& out) {
    detail::expect(std::ranges::size(in) == std::ranges::size(out),
                   "alltoall: the output must be as large as the input");
    run(HVD_ALLTOALL, [&](detail::Call& call) { call.input(in).output(out); });
  }
  /// Reduces `in` of all ranks and stores the part of this rank in `out`: 1 / size() of the
  /// elements, plus one on the lowest ranks if the division leaves a remainder.
  template <Elements In, RoomFor<In> Out>
  void reducescatter(In&& in, Out&& out, const Reduction& how) {
    detail::expect(
        std::ranges::size(out) == detail::share_of(std::ranges::size(in), rank(), size()),
        "reducescatter: the output must be as large as this rank's part");
    run(HVD_REDUCESCATTER, [&](detail::Call& call) { call.input(in).output(out).with(how); });
  }
  /// Blocks until all ranks of the group have called it.
  void barrier() {
    run(HVD_BARRIER, [](detail::Call&) {});
  }

 private:
  template <class Fill>
  void run(hvd_operation_kind kind, Fill fill) {
    detail::Call call(kind, nullptr);
    fill(call);
    detail::check(hvd_group_run(group_.get(), call.request()));
  }

  struct Free {
    void operator()(hvd_group* group) const { hvd_group_free(group); }
  };
  std::unique_ptr<hvd_group, Free> group_;
};

}  // namespace hvd

#endif  // HOROVOD_HOROVOD_HPP_
