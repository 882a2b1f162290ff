#include "device_contract.hpp"

#include <cstring>

namespace egt::contract {

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DeviceContract);

void DeviceContract::SetUp() {
  Result<std::unique_ptr<Device>> opened = GetParam().open();
  ASSERT_TRUE(opened.ok()) << opened.status().what();
  device_ = std::move(opened.value());
  stream_ = new_stream();
}

void DeviceContract::TearDown() {
  stream_.reset();
  device_.reset();
}

std::vector<Precision> DeviceContract::precisions() {
  std::vector<Precision> found;
  for (const Precision precision :
       {Precision::fp64, Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16})
    if (device().supports(precision).yes()) found.push_back(precision);
  return found;
}

Buffer DeviceContract::allocate(std::size_t bytes) {
  Result<Buffer> buffer = device().allocate(bytes);
  EXPECT_TRUE(buffer.ok()) << buffer.status().what();
  return buffer.ok() ? std::move(buffer.value()) : Buffer();
}

std::unique_ptr<Stream> DeviceContract::new_stream(StreamPriority priority) {
  Result<std::unique_ptr<Stream>> stream = device().create_stream(priority);
  EXPECT_TRUE(stream.ok()) << stream.status().what();
  return stream.ok() ? std::move(stream.value()) : nullptr;
}

std::unique_ptr<Event> DeviceContract::new_event(EventUse use) {
  Result<std::unique_ptr<Event>> event = device().create_event(use);
  EXPECT_TRUE(event.ok()) << event.status().what();
  return event.ok() ? std::move(event.value()) : nullptr;
}

void DeviceContract::finish(Stream& stream) {
  EXPECT_OK(device().synchronize(stream, patience_seconds));
}

void DeviceContract::upload_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  Result<Buffer> staging = device().allocate_pinned(bytes);
  ASSERT_TRUE(staging.ok()) << staging.status().what();
  std::memcpy(staging.value().data(), from, bytes);
  EXPECT_OK(device().copy(to, staging.value().data(), bytes, stream()));
  finish();
}

void DeviceContract::download_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  Result<Buffer> staging = device().allocate_pinned(bytes);
  ASSERT_TRUE(staging.ok()) << staging.status().what();
  EXPECT_OK(device().copy(staging.value().data(), from, bytes, stream()));
  finish();
  std::memcpy(to, staging.value().data(), bytes);
}

DeviceArray DeviceContract::upload(const reference::Array& array) {
  DeviceArray on_device{allocate(array.bytes()), array.type(), array.count()};
  upload_bytes(on_device.buffer.data(), array.data(), array.bytes());
  return on_device;
}

DeviceMatrix DeviceContract::upload(const reference::Matrix& matrix) {
  DeviceMatrix on_device{allocate(matrix.array.bytes()), {}};
  on_device.view =
      MatrixView(on_device.buffer.data(), matrix.type(), matrix.rows(), matrix.columns(), matrix.leading());
  upload_bytes(on_device.buffer.data(), matrix.array.data(), matrix.array.bytes());
  return on_device;
}

void DeviceContract::download(const DeviceArray& from, reference::Array& to) {
  download_bytes(to.data(), from.buffer.data(), to.bytes());
}

void DeviceContract::download(const DeviceMatrix& from, reference::Matrix& to) {
  download_bytes(to.array.data(), from.buffer.data(), to.array.bytes());
}

reference::Array DeviceContract::download(const DeviceArray& from) {
  reference::Array array(from.type, from.count);
  download(from, array);
  return array;
}

DeviceContract::ActivatedMatrix DeviceContract::activate(const reference::Matrix& z,
                                                         const reference::Array& bias, ExtremeTerm extreme) {
  const DeviceMatrix h = upload(z);
  const DeviceArray bias_on_device = upload(bias);
  const Buffer digest = allocate(sizeof(Digest));
  extreme.digest = digest.as<Digest>();
  EXPECT_OK(device().activate(h.view, bias_on_device.floats(), extreme, stream()));
  ActivatedMatrix result{z, download_value<Digest>(digest.data())};
  download(h, result.h);
  return result;
}

Digest DeviceContract::digest_of(const std::vector<std::uint32_t>& words) {
  const Buffer buffer = upload_values(words), digest = allocate(sizeof(Digest));
  EXPECT_OK(device().digest({buffer.as<std::uint32_t>(), words.size()}, digest.as<Digest>(), stream()));
  return download_value<Digest>(digest.data());
}

void DeviceContract::enqueue_slow_work(const Buffer& words, const Buffer& digest, Stream& on) {
  EXPECT_OK(device().sine_exponential({words.as<std::uint32_t>(), slow_words}, slow_iterations(),
                                      digest.as<Digest>(), on));
}

}  // namespace egt::contract
