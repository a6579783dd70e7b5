#include "tests/fake_cuda/nccl_work.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "core/kernel/kernel.h"
#include "tests/fake_cuda/settings.h"

namespace fake {
namespace {

using hvd::DType;
using hvd::ReduceOp;
using hvd::device::NcclType;
using GivenUp = std::function<bool()>;

DType dtype_of(NcclType type) {
  switch (type) {
    case NcclType::int8:
      return DType::int8;
    case NcclType::uint8:
      return DType::uint8;
    case NcclType::int32:
      return DType::int32;
    case NcclType::int64:
      return DType::int64;
    case NcclType::float16:
      return DType::float16;
    case NcclType::float32:
      return DType::float32;
    case NcclType::float64:
      return DType::float64;
    case NcclType::bfloat16:
      return DType::bfloat16;
    case NcclType::uint32:
    case NcclType::uint64:
      break;
  }
  misuse("reducing this type is not simulated");
}

ReduceOp reduction_of(int op) {
  switch (op) {
    case hvd::device::kNcclProduct:
      return ReduceOp::product;
    case hvd::device::kNcclMax:
      return ReduceOp::max;
    case hvd::device::kNcclMin:
      return ReduceOp::min;
    default:
      return ReduceOp::sum;  // Avg and PreMulSum too: their factors are applied apart
  }
}

std::string described(int rank, const Description& one) {
  return "rank " + std::to_string(rank) + " calls " + name_of(static_cast<Kind>(one.kind)) +
         " number " + std::to_string(one.number) + " with " + std::to_string(one.count) +
         " elements of type " + std::to_string(static_cast<int>(one.type)) + ", op " +
         std::to_string(one.op) + ", root " + std::to_string(one.root);
}

/// One collective on one rank, in chunks.
class Collective {
 public:
  Collective(Segment& segment, const Work& work, const GivenUp& given_up)
      : segment_(segment), work_(work), given_up_(given_up), element_(bytes_of(work.type)) {}

  void run() {
    segment_.own().called = {
        work_.number, static_cast<int>(work_.kind), work_.peer, work_.op, work_.type, work_.count};
    if (!segment_.barrier(given_up_)) return;
    check_that_all_agree();
    if (!segment_.barrier(given_up_)) return;
    // A reduce-scatter is a reduction of one part after the other, each with its own root.
    const bool scatters = work_.kind == Kind::reduce_scatter;
    for (int root = 0; root < (scatters ? segment_.size() : 1); ++root) {
      if (!run_part(scatters ? root : work_.peer, scatters ? root : 0)) return;
    }
  }

 private:
  void check_that_all_agree() {
    const Description& own = segment_.own().called;
    for (int rank = 0; rank < segment_.size(); ++rank) {
      const Description& other = segment_.part(rank).called;
      if (!(other == own))
        misuse("the ranks disagree: " + described(segment_.rank(), own) + ", but " +
               described(rank, other));
    }
  }

  /// `part`: of the input, in units of the count.
  bool run_part(int root, int part) {
    const size_t most = kChunkBytes / element_;
    for (size_t begin = 0; begin < work_.count; begin += most) {
      const size_t elements = std::min(most, work_.count - begin);
      const size_t at = static_cast<size_t>(part) * work_.count + begin;
      put(root, at, elements);
      if (!segment_.barrier(given_up_)) return false;
      take(root, begin, elements);
      if (!segment_.barrier(given_up_)) return false;
    }
    return true;
  }

  void put(int root, size_t at, size_t elements) {
    if (work_.kind == Kind::broadcast && segment_.rank() != root) return;
    const char* const in = static_cast<const char*>(work_.in) + at * element_;
    char* const chunk = segment_.own().chunk;
    if (work_.factor == 1) {
      std::memcpy(chunk, in, elements * element_);
    } else {
      hvd::kernel::scale(dtype_of(work_.type), chunk, in, {.factor = work_.factor}, elements);
    }
  }

  void take(int root, size_t begin, size_t elements) {
    char* const out = static_cast<char*>(work_.out) + begin * element_;
    const size_t bytes = elements * element_;
    if (work_.kind == Kind::broadcast) {
      std::memcpy(out, segment_.part(root).chunk, bytes);
    } else if (work_.kind == Kind::all_gather) {
      for (int rank = 0; rank < segment_.size(); ++rank)
        std::memcpy(out + static_cast<size_t>(rank) * work_.count * element_,
                    segment_.part(rank).chunk, bytes);
    } else if (work_.kind == Kind::all_reduce || segment_.rank() == root) {
      reduce(out, elements);
    }
  }

  void reduce(char* out, size_t elements) {
    std::vector<const void*> sources;
    for (int rank = 0; rank < segment_.size(); ++rank) sources.push_back(segment_.part(rank).chunk);
    const DType dtype = dtype_of(work_.type);
    hvd::kernel::reduce(reduction_of(work_.op), dtype, out, sources, elements);
    const bool divides = work_.op == hvd::device::kNcclAvg && !hvd::is_floating(dtype);
    if (divides) hvd::kernel::scale(dtype, out, out, {.divisor = segment_.size()}, elements);
  }

  Segment& segment_;
  const Work& work_;
  const GivenUp& given_up_;
  const size_t element_;
};

/// One send or receive, in pieces.
class Message {
 public:
  Message(Segment& segment, const Work& work)
      : sends_(work.kind == Kind::send),
        bytes_(work.count * bytes_of(work.type)),
        data_(sends_ ? const_cast<char*>(static_cast<const char*>(work.in))
                     : static_cast<char*>(work.out)),
        box_(sends_ ? segment.mail(segment.rank(), work.peer)
                    : segment.mail(work.peer, segment.rank())) {}

  bool done() const { return done_; }
  const Mailbox* box() const { return &box_; }
  bool sends() const { return sends_; }

  void advance() {
    const uint64_t written = box_.written.load(std::memory_order_acquire);
    const uint64_t read = box_.read.load(std::memory_order_acquire);
    if (sends_ && written == read) send_piece(written);
    if (!sends_ && written > read) receive_piece(read);
  }

 private:
  void send_piece(uint64_t written) {
    const size_t piece = std::min(kMailBytes, bytes_ - moved_);
    box_.message_bytes = bytes_;
    box_.piece_bytes = piece;
    if (piece > 0) std::memcpy(box_.piece, data_ + moved_, piece);
    box_.written.store(written + 1, std::memory_order_release);
    moved_ += piece;
    done_ = moved_ == bytes_;
  }

  void receive_piece(uint64_t read) {
    if (box_.message_bytes != bytes_)
      misuse("ncclRecv expects " + std::to_string(bytes_) + " bytes, but the peer sends " +
             std::to_string(box_.message_bytes));
    if (box_.piece_bytes > 0) std::memcpy(data_ + moved_, box_.piece, box_.piece_bytes);
    moved_ += box_.piece_bytes;
    done_ = moved_ == bytes_;
    box_.read.store(read + 1, std::memory_order_release);
  }

  const bool sends_;
  const size_t bytes_;
  char* const data_;
  Mailbox& box_;
  size_t moved_ = 0;
  bool done_ = false;
};

/// All at the same time, those with one peer in their order.
void exchange(std::vector<Message>& messages, const GivenUp& given_up) {
  while (!given_up()) {
    bool open = false;
    std::set<std::pair<const Mailbox*, bool>> busy;
    for (Message& message : messages) {
      if (message.done() || !busy.insert({message.box(), message.sends()}).second) continue;
      message.advance();
      open |= !message.done();
    }
    if (!open && std::ranges::all_of(messages, &Message::done)) return;
    pause_briefly();
  }
}

}  // namespace

const char* name_of(Kind kind) {
  constexpr const char* kNames[] = {"nothing",           "ncclAllReduce", "ncclAllGather",
                                    "ncclReduceScatter", "ncclBroadcast", "ncclReduce",
                                    "ncclSend",          "ncclRecv"};
  return kNames[static_cast<int>(kind)];
}

size_t bytes_of(NcclType type) {
  constexpr size_t kBytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return kBytes[static_cast<int>(type)];
}

std::vector<Access> Work::accesses(int rank, int size) const {
  const size_t bytes = count * bytes_of(type), all = bytes * static_cast<size_t>(size);
  const bool is_root = rank == peer;
  switch (kind) {
    case Kind::all_reduce:
      return {{in, bytes, false}, {out, bytes, true}};
    case Kind::all_gather:
      return {{in, bytes, false}, {out, all, true}};
    case Kind::reduce_scatter:
      return {{in, all, false}, {out, bytes, true}};
    case Kind::broadcast:
      return {{in, is_root ? bytes : 0, false}, {out, bytes, true}};
    case Kind::reduce:
      return {{in, bytes, false}, {out, is_root ? bytes : 0, true}};
    case Kind::send:
      return {{in, bytes, false}};
    case Kind::receive:
      break;
  }
  return {{out, bytes, true}};
}

void run_works(Segment& segment, const std::vector<Work>& works, const GivenUp& given_up) {
  std::vector<Message> messages;
  for (const Work& work : works) {
    if (work.collective())
      Collective(segment, work, given_up).run();
    else
      messages.emplace_back(segment, work);
  }
  exchange(messages, given_up);
}

}  // namespace fake
