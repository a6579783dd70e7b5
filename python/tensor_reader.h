// Reads address, shape and dtype of framework tensors through the C exchange API of DLPack. Needs
// the GIL. The tensor still owns the memory.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "horovod/horovod.h"
#include "python/tensors.h"

namespace hvd::python {

namespace nb = nanobind;

/// The C exchange API of DLPack. A tensor type provides it as a capsule in an attribute. It is much
/// faster than the Python attributes of a tensor, since it creates no Python objects.
namespace dlpack {

struct Tensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t dimensions;
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};

struct Exchange {
  uint32_t major;
  uint32_t minor;
  Exchange* previous;
  void* others[3];
  /// Describes a tensor without a reference. Returns 0, or sets a Python error.
  int (*borrow)(void* object, Tensor* tensor);
  /// Gets the current stream of this thread. Returns 0, or sets a Python error.
  int (*current_stream)(int32_t device_type, int32_t device_id, void** stream);
};

constexpr uint32_t kMajor = 1;
enum DeviceType : int32_t { kCpu = 1, kCuda = 2, kRocm = 10 };
enum Code : uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kBool = 6 };

inline std::optional<hvd_dtype> dtype_of(const Tensor& tensor) {
  if (tensor.lanes != 1) return std::nullopt;
  switch (tensor.code << 8 | tensor.bits) {
    case kUint << 8 | 8:
      return HVD_UINT8;
    case kInt << 8 | 8:
      return HVD_INT8;
    case kUint << 8 | 16:
      return HVD_UINT16;
    case kInt << 8 | 16:
      return HVD_INT16;
    case kInt << 8 | 32:
      return HVD_INT32;
    case kInt << 8 | 64:
      return HVD_INT64;
    case kFloat << 8 | 16:
      return HVD_FLOAT16;
    case kFloat << 8 | 32:
      return HVD_FLOAT32;
    case kFloat << 8 | 64:
      return HVD_FLOAT64;
    case kBool << 8 | 8:
      return HVD_BOOL;
    case kBfloat << 8 | 16:
      return HVD_BFLOAT16;
    default:
      return std::nullopt;
  }
}

inline std::optional<hvd_device> device_of(const Tensor& tensor) {
  switch (tensor.device_type) {
    case kCpu:
      return hvd_device{HVD_HOST, 0};
    case kCuda:
      return hvd_device{HVD_CUDA, tensor.device_id};
    case kRocm:
      return hvd_device{HVD_ROCM, tensor.device_id};
    default:
      return std::nullopt;
  }
}

inline bool is_contiguous(const Tensor& tensor) {
  int64_t expected = 1;
  for (int32_t i = tensor.dimensions; i-- > 0;) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

/// False for a tensor without storage, e.g. an efficient zero tensor or a tensor whose memory was
/// freed.
inline bool has_memory(const Tensor& tensor) {
  if (tensor.data != nullptr) return true;
  return std::any_of(tensor.shape, tensor.shape + tensor.dimensions,
                     [](int64_t dimension) { return dimension == 0; });
}

}  // namespace dlpack

/// Reads the tensors of one framework.
class Reader {
 public:
  static constexpr char kName[] = "horovod.reader";  ///< name of capsules with a Reader
  static const Reader& in(const nb::capsule& capsule) {
    return *static_cast<const Reader*>(capsule.data(kName));
  }
  /// Returns nullptr for None.
  static const Reader* of(nb::handle capsule) {
    return capsule.is_none() ? nullptr : &in(nb::borrow<nb::capsule>(capsule));
  }

  /// Reads tensors of `types`, but not of their subclasses, whose data may be elsewhere.
  /// `owner_of(tensor)` returns the object that owns the memory. `is_negated(tensor)` returns
  /// whether the memory holds the negated values of the tensor, which DLPack does not report.
  Reader(nb::tuple types, nb::callable owner_of, nb::callable is_negated)
      : types_(std::move(types)),
        owner_of_(std::move(owner_of)),
        is_negated_(std::move(is_negated)) {
    for (nb::handle type : types_) {
      const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
      auto* exchange = static_cast<dlpack::Exchange*>(
          PyCapsule_CheckExact(capsule.ptr())
              ? PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api")
              : nullptr);
      while (exchange != nullptr && exchange->major != dlpack::kMajor)
        exchange = exchange->previous;
      exchanges_.push_back(exchange);
    }
  }

  /// Reads a tensor. Returns false unless the framework provides the exchange API and the tensor is
  /// dense, contiguous and not negated, with a dtype and device of the C interface. `read.shape`
  /// points into the tensor. `read.stream` is the current stream of the calling thread.
  bool read(PyObject* object, hvd_tensor& read) const {
    return read_layout(object, read) &&
           nb::object(is_negated_(nb::handle(object))).is(nb::handle(Py_False));
  }

  /// Like read(), but also returns true for memory with negated values.
  bool read_layout(PyObject* object, hvd_tensor& read) const {
    dlpack::Tensor tensor;
    if (!borrow(object, tensor)) return false;
    const auto dtype = dlpack::dtype_of(tensor);
    const auto device = dlpack::device_of(tensor);
    if (!dtype || !device || !dlpack::is_contiguous(tensor) || !dlpack::has_memory(tensor))
      return false;
    read = {static_cast<char*>(tensor.data) + tensor.byte_offset,
            tensor.shape,
            tensor.dimensions,
            *dtype,
            *device,
            nullptr};
    return device->type == HVD_HOST || read_stream(object, tensor, read.stream);
  }

  /// Appends what a tensor is beside its values. Returns false unless the framework provides the
  /// exchange API.
  bool append_kind(nb::handle object, std::vector<int64_t>& kinds) const {
    dlpack::Tensor tensor;
    if (!borrow(object.ptr(), tensor)) return false;
    kinds.insert(kinds.end(), {tensor.code << 8 | tensor.bits, tensor.device_type, tensor.device_id,
                               tensor.dimensions});
    kinds.insert(kinds.end(), tensor.shape, tensor.shape + tensor.dimensions);
    return true;
  }

  /// Returns the address of any tensor.
  uintptr_t address_of(nb::handle object) const {
    dlpack::Tensor tensor;
    if (!borrow(object.ptr(), tensor)) return nb::cast<uintptr_t>(object.attr("data_ptr")());
    return reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset;
  }

  nb::object owner_of(nb::handle tensor) const { return owner_of_(tensor); }

 private:
  bool borrow(PyObject* object, dlpack::Tensor& tensor) const {
    const dlpack::Exchange* exchange = exchange_of(object);
    if (exchange == nullptr) return false;
    if (exchange->borrow(object, &tensor) == 0) return true;
    PyErr_Clear();
    return false;
  }

  bool read_stream(PyObject* object, const dlpack::Tensor& tensor, void*& stream) const {
    const dlpack::Exchange* exchange = exchange_of(object);
    if (exchange->current_stream(tensor.device_type, tensor.device_id, &stream) == 0) return true;
    PyErr_Clear();
    return false;
  }

  const dlpack::Exchange* exchange_of(PyObject* object) const {
    for (size_t i = 0; i < exchanges_.size(); ++i) {
      if (types_[i].ptr() == reinterpret_cast<PyObject*>(Py_TYPE(object))) return exchanges_[i];
    }
    return nullptr;
  }

  nb::tuple types_;
  nb::callable owner_of_;
  nb::callable is_negated_;
  std::vector<const dlpack::Exchange*> exchanges_;
};

/// Returns a borrowed reference. Raises IndexError if Python code, which a reader can call, has
/// shortened the list.
inline nb::handle item_of(nb::handle list, size_t index) {
  PyObject* const item = PyList_GetItem(list.ptr(), static_cast<Py_ssize_t>(index));
  if (item == nullptr) throw nb::python_error();
  return item;
}

/// The tensors of one operation in the form of the C interface. Does not allocate for few tensors.
class TensorList {
 public:
  /// `tensors`: a tensor or a list. Each is a tuple (tensors.h) or a tensor for `reader`, which may
  /// be nullptr.
  TensorList(const Reader* reader, nb::handle tensors) {
    const bool is_list = PyList_CheckExact(tensors.ptr());
    count_ = is_list ? nb::len(tensors) : 1;
    if (count_ > kFew) many_.resize(count_);
    for (size_t i = 0; i < count_ && is_readable_; ++i) {
      const nb::handle item = is_list ? item_of(tensors, i) : tensors;
      is_readable_ = take(reader, item.ptr(), data()[i]);
    }
  }

  bool is_readable() const { return is_readable_; }
  /// Whether every reduction supports the common dtype. False for an empty list, true for tuples,
  /// whose dtypes Python has checked.
  bool has_one_type_for_every_op() {
    if (count_ == 0) return false;
    if (!shapes_.empty()) return true;
    const hvd_dtype dtype = data()[0].dtype;
    if (dtype == HVD_BOOL || dtype == HVD_UINT16) return false;
    return std::all_of(data(), data() + count_, [=](auto& t) { return t.dtype == dtype; });
  }
  size_t count() const { return count_; }
  hvd_tensor* data() { return count_ > kFew ? many_.data() : few_; }
  /// Returns the addresses of all tensors. Valid until this object is moved or destroyed.
  void* const* addresses() {
    if (count_ > kFew) many_addresses_.resize(count_);
    void** const addresses = count_ > kFew ? many_addresses_.data() : few_addresses_;
    std::transform(data(), data() + count_, addresses, [](auto& tensor) { return tensor.data; });
    return addresses;
  }

 private:
  bool take(const Reader* reader, PyObject* item, hvd_tensor& tensor) {
    if (!PyTuple_CheckExact(item)) return reader != nullptr && reader->read(item, tensor);
    tensor = described(item, shapes_.emplace_back());
    return true;
  }

  static constexpr size_t kFew = 4;
  hvd_tensor few_[kFew]{};
  void* few_addresses_[kFew]{};
  std::vector<hvd_tensor> many_;
  std::vector<void*> many_addresses_;
  std::vector<std::vector<int64_t>> shapes_;  // of tensors described by tuples
  size_t count_ = 0;
  bool is_readable_ = true;
};

/// Returns the owner of the memory of a tensor, or for a list of tensors a tuple of owners.
inline nb::object owners_of(const Reader* reader, nb::handle tensors) {
  const auto owner_of = [=](nb::handle item) {
    return PyTuple_CheckExact(item.ptr()) ? owner_in(item) : reader->owner_of(item);
  };
  if (!PyList_CheckExact(tensors.ptr())) return owner_of(tensors);
  const size_t count = nb::len(tensors);
  nb::object owners = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
  for (size_t i = 0; i < count; ++i)
    PyTuple_SetItem(owners.ptr(), static_cast<Py_ssize_t>(i),
                    owner_of(item_of(tensors, i)).release().ptr());
  return owners;
}

}  // namespace hvd::python
