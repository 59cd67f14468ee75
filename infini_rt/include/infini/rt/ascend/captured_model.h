#pragma once

#include <dlfcn.h>

#include <atomic>
#include <type_traits>

/// Graphs of Ascend: the capture calls, which only newer versions of the library have, and a shared
/// reference to what they give.
namespace infini::rt::runtime::ascend {

/// ACL's experimental capture calls, looked up at run time. The enumerations cross as integers.
struct CaptureFunctions {
  int (*begin)(void* stream, int mode) = nullptr;
  int (*get_info)(void* stream, int* status, void** model) = nullptr;
  int (*end)(void* stream, void** model) = nullptr;
  int (*execute)(void* model, void* stream) = nullptr;
  int (*destroy)(void* model) = nullptr;  // may be missing where the others exist

  bool available() const { return begin && get_info && end && execute; }

  static const CaptureFunctions& Get() {
    static const CaptureFunctions functions = Load();
    return functions;
  }

 private:
  static CaptureFunctions Load() {
    CaptureFunctions functions;
    void* library = RTLD_DEFAULT;
    if (dlsym(library, "aclmdlRICaptureBegin") == nullptr) {
      library = dlopen("libascendcl.so", RTLD_NOW);
      if (library == nullptr) return functions;
    }
    auto find = [&](auto& function, const char* name) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    };
    find(functions.begin, "aclmdlRICaptureBegin");
    find(functions.get_info, "aclmdlRICaptureGetInfo");
    find(functions.end, "aclmdlRICaptureEnd");
    find(functions.execute, "aclmdlRIExecuteAsync");
    find(functions.destroy, "aclmdlRIDestroy");
    return functions;
  }
};

/// Ends a capture that the stream began, if it is in one, and throws the result away.
inline void AbandonCapture(void* stream) {
  const CaptureFunctions& capture = CaptureFunctions::Get();
  int status = 0;
  void* model = nullptr;
  if (!capture.available() || capture.get_info(stream, &status, &model) != 0 || status == 0) return;
  model = nullptr;
  if (capture.end(stream, &model) == 0 && model != nullptr && capture.destroy != nullptr) {
    capture.destroy(model);
  }
}

/// A captured model with one reference per graph or executable handle.
class CapturedModel {
 public:
  explicit CapturedModel(void* native) : native_(native) {}

  void* native() const { return native_; }
  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }

  /// Drops a reference; with the last one the model goes. If ACL refuses, because the model still
  /// runs, the reference stays and the caller may try again.
  int Unref() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) != 1) return 0;
    auto destroy = CaptureFunctions::Get().destroy;
    if (int error = destroy != nullptr ? destroy(native_) : 0; error != 0) {
      references_.fetch_add(1, std::memory_order_relaxed);
      return error;
    }
    delete this;
    return 0;
  }

 private:
  void* const native_;
  std::atomic<int> references_{1};
};

}  // namespace infini::rt::runtime::ascend
