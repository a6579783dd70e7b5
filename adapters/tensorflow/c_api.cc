#include "adapters/tensorflow/c_api.h"

#include <dlfcn.h>
#include <link.h>

#include <string_view>
#include <utility>

namespace hvd::tf {
namespace {

/// Returns the path of the loaded library of this name, in any version.
std::string framework_path() {
  std::string path;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* found) {
        const std::string_view name = info->dlpi_name;
        if (name.find("libtensorflow_framework.so") == std::string_view::npos) return 0;
        *static_cast<std::string*>(found) = name;
        return 1;
      },
      &path);
  return path;
}

/// std::__1::cout, which exists only in libraries linked with libc++.
constexpr char kCoutOfLibcxx[] = "_ZNSt3__14coutE";

class Loader {
 public:
  Loader() {
    const std::string path = framework_path();
    if (path.empty()) {
      problem_ = "there is no libtensorflow_framework in this process";
      return;
    }
    library_ = dlopen(path.c_str(), RTLD_NOLOAD | RTLD_NOW);
    if (dlsym(library_, kCoutOfLibcxx) != nullptr) {
      problem_ = path + " is built with libc++, whose std::function has a different layout";
      return;
    }
    take_values();
    take_definitions();
    take_shapes();
    take_kernels();
    take_for_gpus();
    if (missing_ == nullptr) return;
    problem_ = path + " has no function " + missing_;
    if (missing_count_ > 1)
      problem_ += " and lacks " + std::to_string(missing_count_ - 1) + " other functions";
  }

  const Api& api() const { return api_; }
  const GpuApi& gpu_api() const { return gpu_api_; }
  void* symbol(const char* name) const { return dlsym(library_, name); }
  const std::string& problem() const { return problem_; }

 private:
  template <class Function>
  void take(const char* name, Function*& function) {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
    if (function != nullptr) return;
    if (missing_ == nullptr) missing_ = name;
    ++missing_count_;
  }

  template <class Function>
  void take_optional(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(dlsym(library_, name));
  }

  void take_for_gpus() {
    take_optional("TF_KernelBuilder_HostMemory", gpu_api_.host_memory);
    take_optional("TF_StepId", gpu_api_.step_id);
    take_optional("TF_GetDeviceId", gpu_api_.device_id);
    take_optional("TF_GetStream", gpu_api_.get_stream);
  }

  void take_values() {
    take("TF_NewStatus", api_.new_status);
    take("TF_DeleteStatus", api_.delete_status);
    take("TF_SetStatus", api_.set_status);
    take("TF_GetCode", api_.code);
    take("TF_Message", api_.message);
    take("TF_TensorType", api_.tensor_type);
    take("TF_NumDims", api_.num_dims);
    take("TF_Dim", api_.dim);
    take("TF_TensorData", api_.tensor_data);
    take("TF_TensorByteSize", api_.tensor_bytes);
    take("TF_NewTensor", api_.new_tensor);
    take("TF_DeleteTensor", api_.delete_tensor);
  }

  void take_definitions() {
    take("TF_NewOpDefinitionBuilder", api_.new_op);
    take("TF_OpDefinitionBuilderAddAttr", api_.add_attribute);
    take("TF_OpDefinitionBuilderAddInput", api_.add_input);
    take("TF_OpDefinitionBuilderAddOutput", api_.add_output);
    take("TF_OpDefinitionBuilderSetIsStateful", api_.set_stateful);
    take("TF_OpDefinitionBuilderSetShapeInferenceFunction", api_.set_shape_inference);
    take("TF_RegisterOpDefinition", api_.register_op);
  }

  void take_shapes() {
    take("TF_ShapeInferenceContextNumInputs", api_.inference_inputs);
    take("TF_NewShapeHandle", api_.new_shape);
    take("TF_DeleteShapeHandle", api_.delete_shape);
    take("TF_ShapeInferenceContextGetInput", api_.inference_input);
    take("TF_ShapeInferenceContextSetOutput", api_.inference_output);
    take("TF_ShapeInferenceContextScalar", api_.scalar);
    take("TF_ShapeInferenceContextVectorFromSize", api_.vector);
    take("TF_ShapeInferenceContextWithRankAtLeast", api_.with_rank_at_least);
    take("TF_ShapeInferenceContextSubshape", api_.subshape);
    take("TF_ShapeInferenceContextConcatenateShapes", api_.concatenate);
  }

  void take_kernels() {
    take("TF_NewKernelBuilder", api_.new_kernel);
    take("TF_NewAsyncKernelBuilder", api_.new_async_kernel);
    take("TF_RegisterKernelBuilder", api_.register_kernel);
    take("TF_RunAsyncOpKernelDoneCallback", api_.run_done);
    take("TF_OpKernelConstruction_GetName", api_.node_name);
    take("TF_OpKernelConstruction_GetAttrInt64", api_.attribute_int);
    take("TF_OpKernelConstruction_GetAttrBool", api_.attribute_bool);
    take("TF_OpKernelConstruction_Failure", api_.construction_failed);
    take("TF_GetFrameId", api_.frame_id);
    take("TF_GetIterId", api_.iteration_id);
    take("TF_NumInputs", api_.num_inputs);
    take("TF_GetInput", api_.get_input);
    take("TF_SetOutput", api_.set_output);
    take("TF_AllocateOutput", api_.allocate_output);
    take("TF_ForwardInputOrAllocateOutput", api_.forward_or_allocate);
    take("TF_OpKernelContext_Failure", api_.execution_failed);
  }

  void* library_ = nullptr;
  Api api_{};
  GpuApi gpu_api_{};
  const char* missing_ = nullptr;  ///< the first
  int missing_count_ = 0;
  std::string problem_;
};

// Never destroyed: kernels may run until the end of the process.
const Loader& loader() {
  static const Loader& instance = *new Loader;
  return instance;
}

}  // namespace

const std::string& api_problem() { return loader().problem(); }
const Api& api() { return loader().api(); }
const GpuApi& gpu_api() { return loader().gpu_api(); }
void* framework_symbol(const char* name) { return loader().symbol(name); }

}  // namespace hvd::tf
