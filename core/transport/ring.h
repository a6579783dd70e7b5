// A single-producer, single-consumer byte ring in caller-provided memory, shared between two
// processes or, in tests, two threads. The memory must outlive both ends.
#pragma once

#include <atomic>
#include <cstdint>

#include "core/base/bytes.h"

namespace hvd {

/// The control block before the ring's data, in shared memory. Both counters only grow. All
/// accesses that decide about sleeping are seq_cst: each side stores its own state and then loads
/// the other's, so at least one of them sees the other's store. On x86 and arm64 such a load costs
/// no more than an acquire load.
struct RingControl {
  alignas(64) std::atomic<uint64_t> written;    ///< by the writer; partner: RingReader
  std::atomic<uint32_t> writer_gone;            ///< by the writer, once; partner: RingReader
  alignas(64) std::atomic<uint64_t> read;       ///< by the reader; partner: RingWriter
  std::atomic<uint32_t> reader_gone;            ///< by the reader, once; partner: RingWriter
  alignas(64) std::atomic<uint32_t> is_waited;  ///< set by a writer that waits for room, cleared by
                                                ///< the reader
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

/// Returns the memory size of a ring with `capacity` data bytes (a power of two). The memory must
/// be aligned to 64 bytes.
constexpr size_t ring_memory_bytes(size_t capacity) { return sizeof(RingControl) + capacity; }

/// Initializes an empty ring in `memory`. Call once, before making either end.
void make_ring(MutableBytes memory);

/// Owned and driven by one thread.
class RingWriter {
 public:
  explicit RingWriter(MutableBytes memory);

  /// Writes as much as fits; returns the number of bytes. If not all fit, sets a flag that asks the
  /// reader to wake the writer. Throws Error{internal} if the counters are inconsistent.
  size_t write(ConstBytes bytes);
  void leave();
  bool reader_left() const;

 private:
  size_t write_what_fits(ConstBytes bytes);

  RingControl* control_;
  MutableBytes bytes_;
  uint64_t written_ = 0;
  uint64_t read_ = 0;  ///< as last seen; may be outdated
};

/// Owned and driven by one thread.
class RingReader {
 public:
  explicit RingReader(MutableBytes memory);

  /// Reads the available bytes, up to the size of `room`; returns their number. Throws
  /// Error{internal} if the counters are inconsistent.
  size_t read(MutableBytes room);
  /// Returns true if the writer waits for room that read() has freed and must be woken. Call once
  /// per read.
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
