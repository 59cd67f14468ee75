// A kernel of one's own, in the dialect of the shared kernels, on a tensor of the device sim.
#include <cstdint>
#include <iostream>
#include <vector>

#include "backends/simt/dialect.h"
#include "infini_train/core/device/device_guard.h"
#include "infini_train/core/error.h"
#include "infini_train/core/tensor.h"

namespace simt = infini_train::simt;

SIMT_KERNEL void Axpy(float a, const float* x, float* y, std::int64_t count) {
  for (std::int64_t i = simt::GlobalThreadIndex(); i < count; i += simt::GlobalThreadCount())
    simt::Store(y + i, a * simt::Load(x + i) + simt::Load(y + i));
}

int main() try {
  using infini_train::Tensor;
  const auto device = infini_train::Device::Parse("sim");
  constexpr std::int64_t kCount = 1000;
  const Tensor x = Tensor::Empty({kCount}, infini_train::DataType::kFloat32, device);
  const Tensor y = Tensor::EmptyLike(x);
  const std::vector<float> ones(kCount, 1.0f);
  x.CopyFromHost(ones.data(), x.nbytes());
  y.CopyFromHost(ones.data(), y.nbytes());

  const auto stream = static_cast<simt::NativeStream>(infini_train::CurrentStream(device));
  simt::Launch(simt::Context(device, stream), simt::Linear(kCount), &Axpy, 2.0f, x.data<float>(),
               y.data<float>(), kCount);

  std::cout << "2 * 1 + 1 = " << y.ToVector<float>().back() << '\n';
  return 0;
} catch (const infini_train::Error& error) {
  std::cerr << "own_kernel: " << error.what() << '\n';
  return 2;
}
