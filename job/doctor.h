// `horovodrun --doctor`: the examination is Python's (horovod/doctor), since what it looks at is
// what a script would meet. Here it is started, by the interpreter that belongs to this program,
// and it is told where that cannot even begin.
#pragma once

#include <string>
#include <vector>

#include "job/options/environment.h"
#include "job/options/options.h"

namespace hvd::job {

struct DoctorHost {
  std::string name;
  int slots = 0;  ///< 0: not given
  bool local = false;
};

struct DoctorPlan {
  std::string program;   ///< path of this one, which starts what runs on the hosts
  std::string python{};  ///< empty: none was found
  std::vector<DoctorHost> hosts{};
};

/// What Python is started with.
std::vector<std::string> doctor_command(const DoctorPlan& plan, const Options& options);

/// Becomes the doctor; returns only where that is not possible, with an exit code.
int run_doctor(const DoctorPlan& plan, const Options& options, const Environment& environment);

}  // namespace hvd::job
