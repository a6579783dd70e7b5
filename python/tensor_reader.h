// How the native module looks into the tensors of a framework, by DLPack's exchange interface for
// C. With the GIL; the memory stays the tensor's own.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "horovod/horovod.h"

namespace hvd::python {

namespace nb = nanobind;

/// DLPack's exchange interface for C: a type of tensors offers it as an attribute, a capsule, so
/// that others can look into a tensor without making a Python object of each thing they ask for.
/// Asking torch for address, shape, dtype, layout, device and contiguity takes 0.55 us, this 0.03.
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
  int (*borrow)(void* object, Tensor* tensor);  ///< 0 on success, else a Python error is set
};

constexpr uint32_t kMajor = 1;
constexpr int32_t kCpu = 1;
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

inline bool is_contiguous(const Tensor& tensor) {
  int64_t expected = 1;
  for (int32_t i = tensor.dimensions; i-- > 0;) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

/// False for a tensor of zeros that were never stored, and for one whose memory was freed.
inline bool has_memory(const Tensor& tensor) {
  if (tensor.data != nullptr) return true;
  return std::any_of(tensor.shape, tensor.shape + tensor.dimensions,
                     [](int64_t dimension) { return dimension == 0; });
}

}  // namespace dlpack

/// Looks into the tensors of one framework.
class Reader {
 public:
  static constexpr char kName[] = "horovod.reader";  ///< of the capsules that hold one
  static const Reader& in(const nb::capsule& capsule) {
    return *static_cast<const Reader*>(capsule.data(kName));
  }

  /// Reads `types` exactly, not their subclasses, whose data may be elsewhere. `owner_of(tensor)`
  /// returns the object that owns the memory, `is_negated(tensor)` whether the memory holds the
  /// negative values of the tensor (DLPack cannot say so).
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

  /// False for all but dense, contiguous host memory that holds the values in a type that the
  /// runtime knows, and where the framework does not offer the interface. The shape is the tensor's
  /// own.
  bool read(PyObject* object, hvd_tensor& read) const {
    return read_layout(object, read) &&
           nb::object(is_negated_(nb::handle(object))).is(nb::handle(Py_False));
  }

  /// The same, and true as well for memory that holds the negative values.
  bool read_layout(PyObject* object, hvd_tensor& read) const {
    dlpack::Tensor tensor;
    if (!borrow(object, tensor)) return false;
    const auto dtype = dlpack::dtype_of(tensor);
    if (!dtype || tensor.device_type != dlpack::kCpu || !dlpack::is_contiguous(tensor) ||
        !dlpack::has_memory(tensor))
      return false;
    read = {static_cast<char*>(tensor.data) + tensor.byte_offset, tensor.shape, tensor.dimensions,
            *dtype};
    return true;
  }

  /// Where the memory of a tensor begins, whatever it holds.
  uintptr_t address_of(nb::handle object) const {
    dlpack::Tensor tensor;
    if (!borrow(object.ptr(), tensor)) return nb::cast<uintptr_t>(object.attr("data_ptr")());
    return reinterpret_cast<uintptr_t>(tensor.data) + tensor.byte_offset;
  }

  /// What owns the memory of a tensor, or of a list of them as a tuple.
  nb::object owners_of(nb::handle tensors) const {
    if (!PyList_CheckExact(tensors.ptr())) return owner_of_(tensors);
    const size_t count = nb::len(tensors);
    nb::object owners = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(count)));
    for (size_t i = 0; i < count; ++i)
      PyTuple_SET_ITEM(owners.ptr(), i,
                       owner_of_(nb::handle(PyList_GET_ITEM(tensors.ptr(), i))).release().ptr());
    return owners;
  }

 private:
  bool borrow(PyObject* object, dlpack::Tensor& tensor) const {
    const dlpack::Exchange* exchange = exchange_of(object);
    if (exchange == nullptr) return false;
    if (exchange->borrow(object, &tensor) == 0) return true;
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

/// The tensors of one operation as the C interface has them; the usual one or two need no memory.
class TensorList {
 public:
  TensorList(const Reader& reader, nb::handle tensors) {
    const bool is_list = PyList_CheckExact(tensors.ptr());
    count_ = is_list ? nb::len(tensors) : 1;
    if (count_ > kFew) many_.resize(count_);
    for (size_t i = 0; i < count_ && is_readable_; ++i) {
      PyObject* item = is_list ? PyList_GET_ITEM(tensors.ptr(), i) : tensors.ptr();
      is_readable_ = reader.read(item, data()[i]);
    }
  }

  bool is_readable() const { return is_readable_; }
  bool has_one_type_for_every_op() {
    if (count_ == 0) return false;
    const hvd_dtype dtype = data()[0].dtype;
    if (dtype == HVD_BOOL || dtype == HVD_UINT16) return false;
    return std::all_of(data(), data() + count_, [=](auto& t) { return t.dtype == dtype; });
  }
  size_t count() const { return count_; }
  hvd_tensor* data() { return count_ > kFew ? many_.data() : few_; }
  /// Of the memory of each, as long as this object is there and is not moved.
  void* const* addresses() {
    if (count_ > kFew) many_addresses_.resize(count_);
    void** const addresses = count_ > kFew ? many_addresses_.data() : few_addresses_;
    std::transform(data(), data() + count_, addresses, [](auto& tensor) { return tensor.data; });
    return addresses;
  }

 private:
  static constexpr size_t kFew = 4;
  hvd_tensor few_[kFew]{};
  void* few_addresses_[kFew]{};
  std::vector<hvd_tensor> many_;
  std::vector<void*> many_addresses_;
  size_t count_ = 0;
  bool is_readable_ = true;
};

}  // namespace hvd::python
