#include "core/transport/ring.h"

#include <algorithm>
#include <bit>
#include <memory>

#include "core/base/assert.h"
#include "core/base/error.h"

namespace hvd {
namespace {

RingControl* control_of(MutableBytes memory) {
  HVD_ASSERT(memory.size() > sizeof(RingControl));
  HVD_ASSERT(std::has_single_bit(memory.size() - sizeof(RingControl)));
  HVD_ASSERT(reinterpret_cast<uintptr_t>(memory.data()) % alignof(RingControl) == 0);
  return reinterpret_cast<RingControl*>(memory.data());
}

/// Validates the counters written by the other process before they are used as indices.
uint64_t checked(uint64_t bytes_inside, size_t capacity) {
  if (bytes_inside > capacity)
    fail(Code::internal, "a ring in shared memory has inconsistent counters");
  return bytes_inside;
}

}  // namespace

void make_ring(MutableBytes memory) { std::construct_at(control_of(memory)); }

RingWriter::RingWriter(MutableBytes memory)
    : control_(control_of(memory)), bytes_(memory.subspan(sizeof(RingControl))) {}

size_t RingWriter::write(ConstBytes bytes) {
  const size_t count = write_what_fits(bytes);
  if (count == bytes.size()) return count;
  // Partner: RingReader::take_waiting_writer, which reads this flag after its store to `read`; this
  // side loads `read` after storing the flag.
  control_->is_waited.store(1, std::memory_order_seq_cst);
  return count + write_what_fits(bytes.subspan(count));
}

size_t RingWriter::write_what_fits(ConstBytes bytes) {
  const size_t capacity = bytes_.size();
  if (capacity - (written_ - read_) < bytes.size()) {
    read_ = control_->read.load(std::memory_order_seq_cst);  // partner: RingReader::read
  }
  const size_t room = capacity - checked(written_ - read_, capacity);
  const size_t count = std::min(room, bytes.size());
  if (count == 0) return 0;
  const size_t at = written_ & (capacity - 1);
  const size_t before_end = std::min(count, capacity - at);
  std::copy_n(bytes.begin(), before_end, bytes_.begin() + at);
  std::copy_n(bytes.begin() + before_end, count - before_end, bytes_.begin());
  written_ += count;
  control_->written.store(written_, std::memory_order_seq_cst);  // partner: RingReader::read
  return count;
}

void RingWriter::leave() {
  control_->writer_gone.store(1, std::memory_order_seq_cst);  // partner: RingReader::writer_left
}

bool RingWriter::reader_left() const {
  return control_->reader_gone.load(std::memory_order_acquire) != 0;  // partner: RingReader::leave
}

RingReader::RingReader(MutableBytes memory)
    : control_(control_of(memory)), bytes_(memory.subspan(sizeof(RingControl))) {}

size_t RingReader::read(MutableBytes room) {
  const size_t capacity = bytes_.size();
  if (written_ == read_) {
    written_ = control_->written.load(std::memory_order_seq_cst);  // partner: RingWriter::write
  }
  const size_t count = std::min<size_t>(checked(written_ - read_, capacity), room.size());
  if (count == 0) return 0;
  const size_t at = read_ & (capacity - 1);
  const size_t before_end = std::min(count, capacity - at);
  std::copy_n(bytes_.begin() + at, before_end, room.begin());
  std::copy_n(bytes_.begin(), count - before_end, room.begin() + before_end);
  read_ += count;
  control_->read.store(read_, std::memory_order_seq_cst);  // partner: RingWriter::write
  return count;
}

bool RingReader::take_waiting_writer() {
  // Partner: RingWriter::write. Loaded before the exchange, since the exchange is expensive and
  // rarely needed.
  if (control_->is_waited.load(std::memory_order_seq_cst) == 0) return false;
  return control_->is_waited.exchange(0, std::memory_order_seq_cst) != 0;
}

void RingReader::leave() {
  control_->reader_gone.store(1, std::memory_order_seq_cst);  // partner: RingWriter::reader_left
}

bool RingReader::writer_left() const {
  // Acquire: all bytes written before are visible. Partner: RingWriter::leave.
  return control_->writer_gone.load(std::memory_order_seq_cst) != 0;
}

}  // namespace hvd
