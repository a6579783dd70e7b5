// A vector that stores its first few elements inline. Agreed operations are passed by value for
// every operation and almost always have one tensor with few dimensions; inline storage avoids a
// malloc and a free for each.
#pragma once

#include <algorithm>
#include <compare>
#include <cstddef>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <utility>

namespace hvd {

/// A value with the interface of std::vector. Moving it moves the inline elements.
template <class T, size_t kInside>
class SmallVector {
 public:
  using value_type = T;
  using iterator = T*;
  using const_iterator = const T*;
  using reference = T&;
  using const_reference = const T&;
  using size_type = size_t;
  using difference_type = std::ptrdiff_t;

  SmallVector() = default;
  SmallVector(std::initializer_list<T> values) : SmallVector(values.begin(), values.end()) {}
  explicit SmallVector(size_t count, const T& value = T()) {
    reserve(count);
    std::uninitialized_fill_n(data_, count, value);
    size_ = count;
  }
  template <std::forward_iterator Iterator>
  SmallVector(Iterator begin, Iterator end) {
    reserve(static_cast<size_t>(std::distance(begin, end)));
    std::uninitialized_copy(begin, end, data_);
    size_ = static_cast<size_t>(std::distance(begin, end));
  }
  SmallVector(const SmallVector& other) : SmallVector(other.begin(), other.end()) {}
  SmallVector(SmallVector&& other) noexcept { take(other); }
  SmallVector& operator=(const SmallVector& other) {
    if (this != &other) *this = SmallVector(other);
    return *this;
  }
  SmallVector& operator=(SmallVector&& other) noexcept {
    if (this == &other) return *this;
    drop();
    take(other);
    return *this;
  }
  ~SmallVector() { drop(); }

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return data_; }
  const T* data() const { return data_; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  T& operator[](size_t i) { return data_[i]; }
  const T& operator[](size_t i) const { return data_[i]; }
  T& front() { return data_[0]; }
  const T& front() const { return data_[0]; }
  T& back() { return data_[size_ - 1]; }
  const T& back() const { return data_[size_ - 1]; }

  void reserve(size_t count) {
    if (count <= capacity_) return;
    T* const larger = std::allocator<T>().allocate(count);
    std::uninitialized_move(begin(), end(), larger);
    std::destroy(begin(), end());
    free_outside();
    data_ = larger;
    capacity_ = count;
  }
  void push_back(T value) { emplace_back(std::move(value)); }
  template <class... Arguments>
  T& emplace_back(Arguments&&... arguments) {
    if (size_ == capacity_) {
      T made(std::forward<Arguments>(
          arguments)...);  // the arguments may refer to elements that are about to move
      reserve(2 * capacity_);
      return *std::construct_at(data_ + size_++, std::move(made));
    }
    return *std::construct_at(data_ + size_++, std::forward<Arguments>(arguments)...);
  }
  void pop_back() { std::destroy_at(data_ + --size_); }
  void clear() {
    std::destroy(begin(), end());
    size_ = 0;
  }

  friend bool operator==(const SmallVector& a, const SmallVector& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  friend auto operator<=>(const SmallVector& a, const SmallVector& b) {
    return std::lexicographical_compare_three_way(a.begin(), a.end(), b.begin(), b.end());
  }

 private:
  T* inside() { return reinterpret_cast<T*>(inside_); }
  bool is_inside() { return data_ == inside(); }
  void free_outside() {
    if (!is_inside()) std::allocator<T>().deallocate(data_, capacity_);
  }
  /// The caller must set the members afterwards.
  void drop() {
    std::destroy(begin(), end());
    free_outside();
  }
  /// Requires *this to be empty; leaves `other` empty.
  void take(SmallVector& other) {
    size_ = std::exchange(other.size_, 0);
    if (other.is_inside()) {
      data_ = inside();
      capacity_ = kInside;
      std::uninitialized_move_n(other.data_, size_, data_);
      std::destroy_n(other.data_, size_);
    } else {
      data_ = std::exchange(other.data_, other.inside());
      capacity_ = std::exchange(other.capacity_, kInside);
    }
  }

  alignas(T) std::byte inside_[kInside * sizeof(T)];
  T* data_ = inside();
  size_t size_ = 0;
  size_t capacity_ = kInside;
};

}  // namespace hvd
