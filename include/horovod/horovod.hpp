/// The C++ interface (C++20): a header over horovod.h and nothing more. A Context is a running job;
/// its operations are matched by name, whatever the order in which ranks start them. A Group is for
/// calls that all its ranks make in the same order, as in MPI; it is quicker for small data.
///
/// Data is passed as what lies end to end in memory: std::span, std::vector, std::array, arrays; of
/// float, double, the integers of hvd_dtype, bool, float16 or bfloat16. Errors are thrown as
/// hvd::Error. Any thread may use a Context and its Handles; a Group belongs to one thread at a
/// time.
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

/// Elements in memory that the runtime has allocated.
template <Element T>
class Gathered {
 public:
  std::span<const T> span() const { return {data_.get(), size_}; }
  std::span<T> span() { return {data_.get(), size_}; }
  std::size_t size() const { return size_; }
  const T& operator[](std::size_t index) const { return data_.get()[index]; }
  const T* begin() const { return data_.get(); }
  const T* end() const { return data_.get() + size_; }

  /// Takes output `index` of an operation that has ended well.
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

/// What an alltoall brought.
template <Element T>
struct Exchanged {
  Gathered<T> elements;                    ///< of rank 0 first
  Gathered<std::int32_t> received_splits;  ///< elements from each rank of the set
};

/// An operation on its way. The memory that was passed to it must stay until it has ended; the
/// destructor waits for that, and says nothing of an error.
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

  /// Whether it has ended, well or not. Never blocks.
  bool poll() const { return handle_ == 0 || hvd_poll(handle_); }
  /// Blocks until it has ended; once. Throws Error{HVD_MISMATCH} when ranks disagree about it,
  /// Error{HVD_PEER_LOST, HVD_SHUT_DOWN} when the job has ended.
  Result wait() {
    detail::expect(handle_ != 0, "the result of this operation was fetched already");
    detail::check(hvd_wait(handle_));
    const Handle ended(std::exchange(handle_, 0), fetch_);  // freed when the result is here
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

/// Some of the ranks of a job, see Context::add_process_set. A value.
struct ProcessSet {
  std::int32_t id = 0;  ///< 0: all ranks
};

struct Options {
  std::vector<std::vector<std::int32_t>> process_sets{};  ///< global ranks; get the ids from 1
  bool dynamic_process_sets = false;                      ///< sets may be added later
};

/// This process in a running job, which its constructor starts (or finds running) and its
/// destructor ends on all ranks.
class Context {
 public:
  /// Blocks until all ranks are there. Throws Error{HVD_TIMED_OUT} naming those that are not.
  explicit Context(const Options& options = {}) {
    std::vector<hvd_rank_list> sets;
    for (const auto& ranks : options.process_sets) sets.push_back(detail::list_of(ranks));
    const hvd_init_options with{sets.data(), static_cast<std::int32_t>(sets.size()),
                                options.dynamic_process_sets};
    detail::check(hvd_init_with(&with));
  }
  ~Context() { static_cast<void>(hvd_shutdown()); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  hvd_world world() const {
    hvd_world world{};
    detail::check(hvd_get_world(&world));
    return world;
  }
  int rank() const { return world().rank; }
  int size() const { return world().size; }
  int local_rank() const { return world().local_rank; }
  int local_size() const { return world().local_size; }

  /// Collective over all ranks of the job, as is removing.
  ProcessSet add_process_set(std::span<const std::int32_t> ranks) {
    ProcessSet set;
    detail::check(hvd_add_process_set(detail::list_of(ranks), &set.id));
    return set;
  }
  void remove_process_set(ProcessSet set) { detail::check(hvd_remove_process_set(set.id)); }
  int size(ProcessSet set) const { return place_in(set).first; }
  /// This process' rank in the set, -1 where it is no member.
  int rank(ProcessSet set) const { return place_in(set).second; }

  /// Output: as large as the input on every rank. The memory of both stays until the end.
  template <Elements In, RoomFor<In> Out>
  Handle<void> allreduce_async(const std::string& name, In&& in, Out&& out, const Reduction& how,
                               ProcessSet set = {}) {
    detail::expect(std::ranges::size(in) == std::ranges::size(out),
                   "allreduce: the output must be as large as the input");
    detail::Call call(HVD_ALLREDUCE, name.c_str());
    return started(call.input(in).output(out).with(how).on(set.id));
  }
  /// In place.
  template <Room Data>
  Handle<void> allreduce_async(const std::string& name, Data&& data, const Reduction& how,
                               ProcessSet set = {}) {
    return allreduce_async(name, data, data, how, set);
  }
  /// Several at once, in place: they start when all of them are there on every rank.
  template <Element T>
  Handle<void> allreduce_async(const std::string& name, const std::vector<std::span<T>>& group,
                               const Reduction& how, ProcessSet set = {}) {
    detail::Call call(HVD_ALLREDUCE, name.c_str());
    for (const std::span<T> data : group) call.input(data).output(data);
    return started(call.with(how).on(set.id));
  }
  /// All ranks' elements, those of the lowest rank first; their numbers may differ.
  template <Elements In>
  Handle<Gathered<element_of<In>>> allgather_async(const std::string& name, In&& in,
                                                   ProcessSet set = {}) {
    detail::Call call(HVD_ALLGATHER, name.c_str());
    return {call.input(in).on(set.id).submit(),
            [](hvd_handle handle) { return Gathered<element_of<In>>::take(handle, 0); }};
  }
  /// `root`: a global rank, whose data all get.
  template <Room Data>
  Handle<void> broadcast_async(const std::string& name, Data&& data, int root,
                               ProcessSet set = {}) {
    detail::Call call(HVD_BROADCAST, name.c_str());
    return started(call.input(data).output(data).root(root).on(set.id));
  }
  /// `splits`: how many elements go to each rank of the set, in order; none for equal parts.
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
  /// Every rank gets a part of the reduced elements: see `reduced_elements`.
  template <Elements In, RoomFor<In> Out>
  Handle<void> reducescatter_async(const std::string& name, In&& in, Out&& out,
                                   const Reduction& how, ProcessSet set = {}) {
    detail::expect(std::ranges::size(out) == reduced_elements(std::ranges::size(in), set),
                   "reducescatter: the output must be as large as this rank's part");
    detail::Call call(HVD_REDUCESCATTER, name.c_str());
    return started(call.input(in).output(out).with(how).on(set.id));
  }
  /// How many of `total` elements a reducescatter leaves here: the lowest ranks get one more.
  std::size_t reduced_elements(std::size_t total, ProcessSet set = {}) const {
    const auto [size, rank] = place_in(set);
    return detail::share_of(total, rank, size);
  }
  Handle<void> barrier_async(const std::string& name, ProcessSet set = {}) {
    return started(detail::Call(HVD_BARRIER, name.c_str()).on(set.id));
  }
  /// This rank has no more data; until all have joined, it adds nothing to what others reduce. The
  /// result is the rank that joined last.
  Handle<int> join_async() {
    return {detail::Call(HVD_JOIN, "join").submit(), [](hvd_handle handle) {
              std::int32_t rank = 0;
              detail::check(hvd_get_last_joined(handle, &rank));
              return static_cast<int>(rank);
            }};
  }

  // The blocking forms: they return what Handle::wait() returns.

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

/// Ranks that make the same calls in the same order. Every call blocks until its result is here.
/// Sizes, element types and reductions must be the same on all ranks; nobody checks. Throws
/// Error{HVD_PEER_LOST} naming a rank that has died; then the Group can only be destroyed.
class Group {
 public:
  /// Collective over `ranks` (global, this one among them; none: all) while a Context is there.
  /// Within the group they are numbered in ascending order.
  explicit Group(std::span<const std::int32_t> ranks = {}) {
    hvd_group* made = nullptr;
    detail::check(hvd_group_create(detail::list_of(ranks), &made));
    group_.reset(made);
  }

  int rank() const { return hvd_group_rank(group_.get()); }
  int size() const { return hvd_group_size(group_.get()); }

  template <Elements In, RoomFor<In> Out>
  void allreduce(In&& in, Out&& out, const Reduction& how) {
    detail::expect(std::ranges::size(in) == std::ranges::size(out),
                   "allreduce: the output must be as large as the input");
    run(HVD_ALLREDUCE, [&](detail::Call& call) { call.input(in).output(out).with(how); });
  }
  /// In place.
  template <Room Data>
  void allreduce(Data&& data, const Reduction& how) {
    allreduce(data, data, how);
  }
  /// `out`: [size * elements of `in`], those of rank 0 first.
  template <Elements In, RoomFor<In> Out>
  void allgather(In&& in, Out&& out) {
    detail::expect(
        std::ranges::size(out) == std::ranges::size(in) * static_cast<std::size_t>(size()),
        "allgather: the output must be as large as all inputs");
    run(HVD_ALLGATHER, [&](detail::Call& call) { call.input(in).output(out); });
  }
  /// `root`: a rank of the group.
  template <Room Data>
  void broadcast(Data&& data, int root) {
    run(HVD_BROADCAST, [&](detail::Call& call) { call.input(data).output(data).root(root); });
  }
  /// Both [size * part]: part r of `in` goes to rank r, part r of `out` comes from it.
  template <Elements In, RoomFor<In> Out>
  void alltoall(In&& in, Out&& out) {
    detail::expect(std::ranges::size(in) == std::ranges::size(out),
                   "alltoall: the output must be as large as the input");
    run(HVD_ALLTOALL, [&](detail::Call& call) { call.input(in).output(out); });
  }
  /// `out`: this rank's part of `in`: a share of 1 / size, and one more element on the lowest ranks
  /// until nothing is left.
  template <Elements In, RoomFor<In> Out>
  void reducescatter(In&& in, Out&& out, const Reduction& how) {
    detail::expect(
        std::ranges::size(out) == detail::share_of(std::ranges::size(in), rank(), size()),
        "reducescatter: the output must be as large as this rank's part");
    run(HVD_REDUCESCATTER, [&](detail::Call& call) { call.input(in).output(out).with(how); });
  }
  void barrier() {
    run(HVD_BARRIER, [](detail::Call&) {});
  }

 private:
  template <class Fill>
  void run(hvd_kind kind, Fill fill) {
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
