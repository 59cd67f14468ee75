#pragma once

#include <memory>
#include <string>

#include "infini_train/core/error.h"
#include "infini_train/parallel/ccl.h"

namespace infini_train::backend {

/// Stands for the collectives of a provider that was built without its library: every use throws
/// an Error with `How::kText`, which says how to get them.
template <typename How>
class MissingCcl final : public parallel::Ccl {
 public:
  std::string Name() const override { return "none"; }
  parallel::UniqueId CreateUniqueId() override { Refuse(); }

 protected:
  std::unique_ptr<parallel::Communicator> MakeCommunicator(const parallel::UniqueId&, int, int,
                                                           Device) override {
    Refuse();
  }
  void BeginGroup() override { Refuse(); }
  void EndGroup() override { Refuse(); }

 private:
  [[noreturn]] static void Refuse() { throw Error(How::kText); }
};

}  // namespace infini_train::backend
