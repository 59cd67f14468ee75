#include <iostream>

#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"

int main() {
  // The CPU registers itself at file scope: without it in the program, there is no memory to be
  // had.
  const auto tensor = infini_train::Tensor::FromVector<float>({1.0f, 2.0f}, {2});
  std::cout << tensor.numel() << " elements" << '\n';
  // Exceptions cross the library's border.
  try {
    tensor.Item();
  } catch (const infini_train::Error& error) {
    std::cout << error.what() << '\n';
    return 0;
  }
  return 1;
}
