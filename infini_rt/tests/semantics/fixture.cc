#include "semantics/fixture.h"

#include <chrono>
#include <cstring>
#include <thread>

namespace infini::rt::runtime {
namespace {

constexpr std::size_t kFillerBytes = 16 << 20;
constexpr int kFills = 64;

// The first byte has the value and every byte equals its neighbour; fast without optimisation too.
bool SameBytes(const std::uint8_t* bytes, std::size_t size, int value) {
  return size == 0 || (bytes[0] == value && std::memcmp(bytes, bytes + 1, size - 1) == 0);
}

}  // namespace

std::string TypeName(const testing::TestParamInfo<Device::Type>& info) {
  return std::string(Device::StringFromType(info.param));
}

void Semantics::SetUp() {
  ASSERT_EQ(set_runtime_device_type(GetParam()), kSuccess);
  int count = 0;
  ASSERT_OK(GetDeviceCount(&count));
  ASSERT_GT(count, 0);
  ASSERT_OK(SetDevice(0));
  GetLastError();
}

void Semantics::TearDown() {
  EXPECT_OK(DeviceSynchronize());
  GetLastError();
}

DeviceBuffer::DeviceBuffer(std::size_t size) : size_(size) {
  EXPECT_OK(Malloc(&ptr_, size));
}

DeviceBuffer::~DeviceBuffer() {
  EXPECT_OK(Free(ptr_));
}

std::vector<std::uint8_t> DeviceBuffer::Read() const {
  std::vector<std::uint8_t> bytes(size_);
  EXPECT_OK(DeviceSynchronize());
  EXPECT_OK(Memcpy(bytes.data(), ptr_, size_, kMemcpyDeviceToHost));
  return bytes;
}

PinnedBuffer::PinnedBuffer(std::size_t size) : size_(size) {
  EXPECT_OK(MallocHost(&ptr_, size));
}

PinnedBuffer::~PinnedBuffer() {
  EXPECT_OK(FreeHost(ptr_));
}

TestStream::TestStream() {
  EXPECT_OK(StreamCreate(&stream_));
}

TestStream::TestStream(unsigned int flags) {
  EXPECT_OK(StreamCreateWithFlags(&stream_, flags));
}

TestStream::~TestStream() {
  if (stream_ != nullptr) {
    EXPECT_OK(StreamDestroy(stream_));
  }
}

TestEvent::TestEvent() {
  EXPECT_OK(EventCreate(&event_));
}

TestEvent::TestEvent(unsigned int flags) {
  EXPECT_OK(EventCreateWithFlags(&event_, flags));
}

TestEvent::~TestEvent() {
  if (event_ != nullptr) {
    EXPECT_OK(EventDestroy(event_));
  }
}

Gate::Gate()
    : exact_(Supports(runtime_device_type(), kFeatureHostFunction)),
      filler_(exact_ ? 1 : kFillerBytes) {}

Gate::~Gate() {
  Open();
  while (waiting_.load() > 0)
    std::this_thread::yield();
}

void Gate::Close(Stream stream) {
  if (exact_) {
    waiting_.fetch_add(1);
    ASSERT_OK(LaunchHostFunc(stream, &Gate::Wait, this));
    return;
  }
  for (int i = 0; i < kFills; ++i) {
    ASSERT_OK(MemsetAsync(filler_.get(), i, filler_.size(), stream));
  }
}

void Gate::Wait(void* gate) {
  auto* self = static_cast<Gate*>(gate);
  while (!self->open_.load())
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  self->waiting_.fetch_sub(1);
}

bool AllEqual(const std::vector<std::uint8_t>& bytes, int value) {
  return SameBytes(bytes.data(), bytes.size(), value);
}

bool AllEqual(const PinnedBuffer& buffer, int value) {
  return SameBytes(buffer.data(), buffer.size(), value);
}

}  // namespace infini::rt::runtime
