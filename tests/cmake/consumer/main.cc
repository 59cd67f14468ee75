#include <iostream>

#include "infini_train/core/error.h"
#include "infini_train/core/extension_api.h"

int main() {
  try {
    throw infini_train::Error("expected 1, found 2");
  } catch (const infini_train::Error& error) {
    std::cout << "extension API " << INFINI_TRAIN_EXTENSION_API_VERSION << ": " << error.what()
              << '\n';
  }
}
