#pragma once

#include <string>

namespace infini_train::test {

/// The order in which the registering files of this folder were initialised.
inline std::string& RegistrationOrder() {
  static std::string order;
  return order;
}

/// A file names itself as it registers.
struct NoteRegistration {
  explicit NoteRegistration(const char* what) {
    std::string& order = RegistrationOrder();
    if (!order.empty()) order += ' ';
    order += what;
  }
};

}  // namespace infini_train::test
