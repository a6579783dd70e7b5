#include "python/dump.h"

#include <Python.h>
#include <dlfcn.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstring>
#include <utility>

#include "horovod/horovod.h"
#include "python/errors.h"

namespace nb = nanobind;

namespace hvd::python {
namespace {

using Handler = void (*)(int);
using Check = int (*)();

// Read by a signal handler, written once per process and its children.
std::atomic<Handler> writes_stack{nullptr};
std::atomic<Check> holds_gil{nullptr};
std::atomic<int> stack_file{-1};

/// Writes which thread this is and whether it holds the GIL, then its stack.
void write_place(int number) {
  const Check check = holds_gil.load();
  const bool is_main = ::syscall(SYS_gettid) == ::getpid();
  const bool has_gil = check != nullptr && check() != 0;
  const char* const line = is_main   ? has_gil ? "main gil 1\n" : "main gil 0\n"
                           : has_gil ? "other gil 1\n"
                                     : "other gil 0\n";
  [[maybe_unused]] const ssize_t put = ::write(stack_file.load(), line, std::strlen(line));
  writes_stack.load()(number);
}

/// The signal and the descriptor of hvd_prepare_dump().
nb::tuple prepare_dump() {
  int32_t number = 0, descriptor = -1;
  check(hvd_prepare_dump(&number, &descriptor));
  return nb::make_tuple(number, descriptor);
}

/// The handler of the signal writes stacks. It stays, also in forked children.
void take_stack_handler(int number, int descriptor) {
  stack_file = descriptor;
  if (writes_stack.load() != nullptr) return;
  struct sigaction action {};
  if (::sigaction(number, nullptr, &action) != 0 || action.sa_handler == SIG_DFL) return;
  // Not in the stable ABI, but in every Python.
  holds_gil = reinterpret_cast<Check>(::dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  writes_stack = std::exchange(action.sa_handler, &write_place);
  ::sigaction(number, &action, nullptr);
  hvd_answer_dumps();
}

}  // namespace

void add_dump(nb::module_& m) {
  using nb::literals::operator""_a;
  m.def("prepare_dump", &prepare_dump);
  m.def("take_stack_handler", &take_stack_handler, "signal"_a, "descriptor"_a);
  m.def("meet_before_init", &hvd_meet_before_init, "meets"_a);
  m.def("count_step", &hvd_count_step);
}

}  // namespace hvd::python
