// Uses the provider as far as the program is linked with it.
#include <iostream>

#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"
#include "infini_train_outside/backend.h"

int main() try {
  infini_train::outside::RegisterBackend();
  const auto device = infini_train::Device::Parse("outside:1");
  const auto tensor = infini_train::Tensor::Empty({2}, infini_train::DataType::kFloat32, device);
  std::cout << "a tensor on " << tensor.device().ToString() << '\n';
  return 0;
} catch (const infini_train::Error& error) {
  std::cout << error.what() << '\n';
  return 2;
}
