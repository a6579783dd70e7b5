// A ring of bytes between one writer and one reader, in memory that is given to it: shared between
// two processes, or between two threads in tests. The memory belongs to whoever mapped it and
// outlives both ends.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/base/bytes.h"

namespace hvd {

/// What stands before the bytes of a ring, in shared memory. Both counts only grow. Every access
/// that decides about sleeping is seq_cst, so that of "store mine, then look at the other's" on
/// both sides one sees the other; on x86 and arm64 such a load costs no more than acquire.
struct RingControl {
  alignas(64) std::atomic<uint64_t> written;  ///< by the writer; partner: RingReader
  std::atomic<uint32_t> writer_gone;          ///< by the writer, once; partner: RingReader
  alignas(64) std::atomic<uint64_t> read;     ///< by the reader; partner: RingWriter
  std::atomic<uint32_t> reader_gone;          ///< by the reader, once; partner: RingWriter
  alignas(
      64) std::atomic<uint32_t> is_waited;  ///< set by a writer without room, taken by the reader
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

/// The memory that a ring of `capacity` bytes (a power of two) takes. It must be aligned to 64
/// bytes.
constexpr size_t ring_memory_bytes(size_t capacity) { return sizeof(RingControl) + capacity; }

/// Makes an empty ring in `memory`: once, before either end is made.
void make_ring(MutableBytes memory);

/// Owned and driven by one thread.
class RingWriter {
 public:
  explicit RingWriter(MutableBytes memory);

  /// Writes what fits; returns how many bytes. When not all did, the reader is asked to say when
  /// there is room. Throws Error{internal} when the counts in the memory make no sense.
  size_t write(ConstBytes bytes);
  void leave();
  bool reader_left() const;

 private:
  size_t write_what_fits(ConstBytes bytes);

  RingControl* control_;
  MutableBytes bytes_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;  ///< as last seen; more may have been read since
};

/// Owned and driven by one thread.
class RingReader {
 public:
  explicit RingReader(MutableBytes memory);

  /// Reads what is there, up to `room`; returns how many bytes. Throws as write() does.
  size_t read(MutableBytes room);
  /// True when the writer waits for room that read() has made since: it must be woken. Asked once a
  /// read.
  bool take_waiting_writer();
  void leave();
  bool writer_left() const;

 private:
  RingControl* control_;
  ConstBytes bytes_;
  uint64_t read_ = 0;
  uint64_t written_ = 0;  ///< as last seen
};

}  // namespace hvd
