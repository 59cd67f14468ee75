// A program with the provider maca in it: a sum on the device.
#include <iostream>

#include "infini_train/core/device/device.h"
#include "infini_train/core/tensor.h"
#include "infini_train/ops/dispatch.h"

int main() {
  using namespace infini_train;
  const Device maca = Device::Parse("maca");
  const auto ones = [&] {
    Tensor result = Tensor::Empty({1000}, DataType::kFloat32, maca);
    Call<op::Fill>(result, Scalar(1.0));
    return result;
  };
  Tensor sum = Tensor::Empty({1000}, DataType::kFloat32, maca);
  Call<op::Add>(sum, ones(), ones());
  for (const float value : sum.ToVector<float>()) {
    if (value != 2.0f) {
      std::cerr << "1 + 1 is " << value << " on " << maca.ToString() << '\n';
      return 1;
    }
  }
  std::cout << "1 + 1 is 2 on " << maca.ToString() << '\n';
  return 0;
}
