#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "egt/device/device.hpp"
#include "egt/device/dnn.hpp"
#include "reference.hpp"

namespace egt::contract {

/// Opens the device for the suite. Each adapter has a fixture file that instantiates DeviceContract and
/// DnnContract (dnn/dnn_contract.hpp).
struct DeviceUnderTest {
  std::string name;
  std::function<Result<std::unique_ptr<Device>>()> open;
  /// Opens the library of deep-learning primitives; empty if the build has none.
  std::function<Result<std::unique_ptr<Dnn>>(Device&)> open_dnn = {};
};

inline void PrintTo(const DeviceUnderTest& device, std::ostream* stream) {
  *stream << device.name;
}

/// An array on the device.
struct DeviceArray {
  Buffer buffer;
  ElementType type = ElementType::f32;
  std::int64_t count = 0;

  VectorView view() const { return {buffer.data(), type, count}; }
  float* floats() const { return buffer.as<float>(); }
};

/// A matrix on the device.
struct DeviceMatrix {
  Buffer buffer;
  MatrixView view;
};

/// Checks every guarantee of egt/device/device.hpp on the parameter's device. Memory is accessed through
/// allocate, allocate_pinned and copy only.
class DeviceContract : public testing::TestWithParam<DeviceUnderTest> {
 protected:
  static constexpr double patience_seconds = 60;

  void SetUp() override;
  void TearDown() override;

 public:
  Device& device() { return *device_; }
  Stream& stream() { return *stream_; }
  /// GPUs are several hundred times faster.
  int slow_iterations() const { return is_host() ? 4 : 1000; }
  bool is_host() const { return device_->info().backend == "host"; }
  /// The training precisions that the device supports.
  std::vector<Precision> precisions();

  Buffer allocate(std::size_t bytes);
  std::unique_ptr<Stream> new_stream(StreamPriority priority = StreamPriority::normal);
  std::unique_ptr<Event> new_event(EventUse use = EventUse::timing);
  /// Waits for the stream's work and expects success.
  void finish(Stream& stream);
  void finish() { finish(*stream_); }

  void upload_bytes(void* to, const void* from, std::size_t bytes);
  void download_bytes(void* to, const void* from, std::size_t bytes);

  DeviceArray upload(const reference::Array& array);
  DeviceMatrix upload(const reference::Matrix& matrix);
  void download(const DeviceArray& from, reference::Array& to);
  void download(const DeviceMatrix& from, reference::Matrix& to);
  reference::Array download(const DeviceArray& from);

  template <typename T>
  Buffer upload_values(const std::vector<T>& values) {
    Buffer buffer = allocate(values.size() * sizeof(T));
    upload_bytes(buffer.data(), values.data(), values.size() * sizeof(T));
    return buffer;
  }
  template <typename T>
  std::vector<T> download_values(const void* from, std::size_t count) {
    std::vector<T> values(count);
    download_bytes(values.data(), from, count * sizeof(T));
    return values;
  }
  template <typename T>
  T download_value(const void* from) {
    T value;
    download_bytes(&value, from, sizeof(T));
    return value;
  }

  /// A copy of `z` after `activate` with these extreme-compute parameters and a digest.
  struct ActivatedMatrix {
    reference::Matrix h;
    Digest digest;
  };
  ActivatedMatrix activate(const reference::Matrix& z, const reference::Array& bias, ExtremeTerm extreme);

  /// The digest of these words, computed on the device.
  Digest digest_of(const std::vector<std::uint32_t>& words);
  /// Enqueues work of at least some milliseconds in `on`. `words`: slow_words words.
  static constexpr std::uint64_t slow_words = 1 << 19;
  void enqueue_slow_work(const Buffer& words, const Buffer& digest, Stream& on);

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
};

constexpr ElementType all_types[] = {ElementType::f64, ElementType::f32, ElementType::f16, ElementType::bf16};

}  // namespace egt::contract

/// Expects an ok Status; otherwise prints its text.
#define EXPECT_OK(expression)                                                               \
  do {                                                                                      \
    const ::egt::Status egt_tested = (expression);                                          \
    EXPECT_TRUE(egt_tested.ok()) << egt_tested.what() << " (" << egt_tested.where() << ")"; \
  } while (false)

/// Expects a Status with this code and a one-line reason.
#define EXPECT_FAILS(status_code, expression)                                          \
  do {                                                                                 \
    const ::egt::Status egt_tested = (expression);                                     \
    EXPECT_EQ(egt_tested.code(), ::egt::StatusCode::status_code) << egt_tested.what(); \
    EXPECT_FALSE(egt_tested.what().empty());                                           \
    EXPECT_EQ(egt_tested.what().find('\n'), std::string::npos) << egt_tested.what();   \
  } while (false)
