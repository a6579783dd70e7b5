// `horovodrun --doctor`. The checks are in Python (horovod/doctor), since they examine the
// environment of a script. This starts them with the interpreter that belongs to this program, and
// reports an error if there is none.
#pragma once

#include <string>
#include <vector>

#include "launcher/options/environment.h"
#include "launcher/options/options.h"

namespace hvd::launcher {

struct DoctorHost {
  std::string name;
  int slots = 0;  ///< 0: not given
  bool local = false;
};

struct DoctorPlan {
  std::string program;        ///< path of this horovodrun, with which the doctor starts its jobs
  Environment environment{};  ///< of the doctor
  std::string python{};       ///< the interpreter; empty: none was found
  std::vector<DoctorHost> hosts{};
};

/// Returns the command line of Python.
std::vector<std::string> doctor_command(const DoctorPlan& plan, const Options& options);

/// Replaces this process by the doctor. Throws Error if that is not possible.
int run_doctor(const DoctorPlan& plan, const Options& options);

}  // namespace hvd::launcher
