#include <infini/rt.h>

#include <cstdlib>
#include <list>
#include <new>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace {

thread_local int allocations = 0;

}  // namespace

[[gnu::noinline]] void* operator new(std::size_t size) {
  ++allocations;
  void* ptr = std::malloc(size);
  if (ptr == nullptr) throw std::bad_alloc();
  return ptr;
}
[[gnu::noinline]] void* operator new[](std::size_t size) {
  return operator new(size);
}
[[gnu::noinline]] void operator delete(void* ptr) noexcept {
  std::free(ptr);
}
[[gnu::noinline]] void operator delete(void* ptr, std::size_t) noexcept {
  std::free(ptr);
}
[[gnu::noinline]] void operator delete[](void* ptr) noexcept {
  std::free(ptr);
}
[[gnu::noinline]] void operator delete[](void* ptr, std::size_t) noexcept {
  std::free(ptr);
}

namespace infini::rt {
namespace {

TEST(TensorView, DefaultStridesAreRowMajor) {
  float data[24];
  TensorView view(data, {2, 3, 4});
  EXPECT_EQ(view.ndim(), 3u);
  EXPECT_EQ(view.numel(), 24u);
  EXPECT_EQ(view.stride(0), 12);
  EXPECT_EQ(view.stride(1), 4);
  EXPECT_EQ(view.stride(-1), 1);
  EXPECT_EQ(view.size(-3), 2u);
  EXPECT_EQ(view.dtype(), DataType::kFloat32);
  EXPECT_EQ(view.element_size(), 4u);
  EXPECT_EQ(view.device(), Device());
  EXPECT_TRUE(view.IsContiguous());
}

TEST(TensorView, IndexingAndTransposeMoveThePointer) {
  double data[6];
  TensorView view(data, {2, 3}, DataType::kFloat64, Device(Device::Type::kCpu, 1));
  EXPECT_EQ(view[1].data(), data + 3);
  EXPECT_EQ(view[1].ndim(), 1u);
  EXPECT_EQ(view.T()[2].data(), data + 2);
  EXPECT_EQ(view.T()[2].stride(0), 3);
  EXPECT_EQ(view.T().device().index(), 1);
  EXPECT_FALSE(view.T().IsContiguous());
  EXPECT_EQ(view.T().T(), view);
  TensorView reversed(data + 3, {2, 3}, DataType::kFloat64, {}, {-3, 1});
  EXPECT_EQ(reversed[1].data(), data);
}

TEST(TensorView, BadUseThrows) {
  TensorView view(nullptr, {2, 3});
  EXPECT_THROW(view.size(2), std::out_of_range);
  EXPECT_THROW(view.stride(-3), std::out_of_range);
  EXPECT_THROW(view[2], std::out_of_range);
  EXPECT_THROW(view[0][0][0], std::out_of_range);
  EXPECT_THROW(view[0].T(), std::invalid_argument);
  EXPECT_THROW(TensorView(nullptr, {2, 3}, DataType::kInt8, {}, {1}), std::invalid_argument);
}

TEST(TensorView, ContiguityIgnoresAxesOfSizeOne) {
  auto contiguous = [](TensorView::Shape shape, TensorView::Strides strides) {
    return TensorView(nullptr, shape, DataType::kFloat32, {}, strides).IsContiguous();
  };
  EXPECT_TRUE(contiguous({1, 4}, {100, 1}));
  EXPECT_TRUE(contiguous({1}, {7}));
  EXPECT_TRUE(contiguous({}, {}));
  EXPECT_TRUE(contiguous({0, 4}, {9, 9}));
  EXPECT_FALSE(contiguous({2, 4}, {5, 1}));
  EXPECT_FALSE(contiguous({2, 4}, {4, 2}));
}

TEST(TensorView, FindsBroadcastAxes) {
  auto broadcast = [](TensorView::Shape shape, TensorView::Strides strides) {
    return TensorView(nullptr, shape, DataType::kFloat32, {}, strides).HasBroadcastDim();
  };
  EXPECT_TRUE(broadcast({1, 4}, {0, 0}));
  EXPECT_TRUE(broadcast({3, 4}, {0, 1}));
  EXPECT_FALSE(broadcast({1, 4}, {0, 1}));
}

TEST(TensorView, PrintsWithoutReadingData) {
  TensorView view(reinterpret_cast<void*>(16), {2, 0}, DataType::kBFloat16,
                  Device(Device::Type::kMetax, 2));
  EXPECT_EQ(view.ToString(), "TensorView(bfloat16, shape [2, 0], strides [0, 1], metax:2)");
}

TEST(TensorView, ShapesComeFromAnyRange) {
  std::vector<std::size_t> vector = {2, 3};
  std::list<int> list = {2, 3};
  EXPECT_EQ(TensorView(nullptr, TensorView::Shape(vector)), TensorView(nullptr, {2, 3}));
  EXPECT_EQ(TensorView(nullptr, TensorView::Shape(list)), TensorView(nullptr, {2, 3}));
}

TEST(TensorView, ConstructionUpToRankEightAllocatesNothing) {
  TensorView::Shape shape{1, 2, 3, 4, 5, 6, 7, 8};
  float data[1];
  int before = allocations;
  TensorView view(data, shape);
  TensorView copy = view;
  TensorView moved = std::move(copy);
  TensorView row = moved[0];
  moved = row;
  TensorView strided(data, {2, 2}, DataType::kInt8, {}, {1, 2});
  TensorView transposed = strided.T();
  EXPECT_EQ(allocations, before);
  EXPECT_EQ(row.ndim(), 7u);
  EXPECT_EQ(transposed.stride(0), 2);
}

TEST(TensorView, HigherRanksWork) {
  TensorView view(nullptr, TensorView::Shape(12, 2));
  EXPECT_EQ(view.numel(), 4096u);
  EXPECT_EQ(view.stride(0), 2048);
  TensorView copy = view;
  EXPECT_EQ(copy, view);
  TensorView moved = std::move(copy);
  EXPECT_EQ(moved, view);
  int before = allocations;
  TensorView nine = moved;
  nine = TensorView(nullptr, {4});
  EXPECT_GT(allocations, before);
  EXPECT_EQ(nine.ndim(), 1u);
}

TEST(TensorView, TemporariesGiveTheirMetadataAway) {
  TensorView::Shape shape = TensorView(nullptr, {4, 5}).shape();
  EXPECT_EQ(shape, (TensorView::Shape{4, 5}));
}

}  // namespace
}  // namespace infini::rt
