#include "launcher/process/own_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>

namespace hvd::launcher {

OwnSignals::OwnSignals(ProcessDefaults& defaults) : defaults_(defaults) {
  sigset_t watched;
  sigemptyset(&watched);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP}) {
    struct sigaction action {};
    sigaction(signal, nullptr, &action);
    if (action.sa_handler != SIG_IGN) sigaddset(&watched, signal);
  }
  sigprocmask(SIG_BLOCK, &watched, &defaults.signal_mask);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &ignore, &defaults.on_broken_pipe);
  signals_ = FileDescriptor(signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK));
}

std::vector<int> OwnSignals::take() {
  std::vector<int> numbers;
  signalfd_siginfo info;
  while (read(signals_.get(), &info, sizeof(info)) == sizeof(info))
    numbers.push_back(static_cast<int>(info.ssi_signo));
  return numbers;
}

void OwnSignals::stop_here() {
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  raise(SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, nullptr);  // here until SIGCONT
  sigprocmask(SIG_BLOCK, &stop, nullptr);
}

void OwnSignals::give_back() {
  for (const int number : {SIGUSR1, SIGUSR2}) signal(number, SIG_IGN);
  sigprocmask(SIG_SETMASK, &defaults_.signal_mask, nullptr);
}

}  // namespace hvd::launcher
