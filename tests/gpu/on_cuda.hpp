#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "device/cuda/cuda_device.hpp"
#include "egt/core/pattern.hpp"
#include "egt/ranks/agreement.hpp"
#include "ranks/mpi/mpi_control.hpp"
#include "ranks/nccl/nccl_communicator.hpp"
#include "tests/mpi/mpi_test.hpp"

/// Fixtures for tests with one rank per GPU of one host.
namespace egt::test {

constexpr double control_timeout_s = 60, nccl_timeout_s = 30, stream_timeout_s = 60;

/// Random sign, fraction and magnitude (2^-20 to 2^20): sums of three or more depend on their order.
inline float random_float(int rank, std::size_t i) {
  const std::uint64_t h = mix64(static_cast<std::uint64_t>(rank) * 1000003 + i + 1);
  return std::ldexp(static_cast<float>(h >> 40) / 16777216.0f - 0.5f, static_cast<int>(h % 41) - 20);
}

/// A new communicator of all ranks.
inline Result<std::unique_ptr<Communicator>> open_nccl(Control& control) {
  std::string id;
  Status made;
  if (control.place().rank == 0) {
    auto unique_id = make_nccl_unique_id();
    made = unique_id.status();
    if (made.ok()) id = unique_id.value();
  }
  EGT_TRY(agree(control, made));
  EGT_TRY_ASSIGN(id, control.broadcast(id));
  auto opened = open_nccl_communicator(id, control.place(), nccl_timeout_s);
  EGT_TRY(agree(control, opened.status()));
  return opened;
}

/// A rank with its GPU and a stream. A derived SetUp calls this one first and returns if it failed.
class OnCuda : public testing::Test {
 protected:
  explicit OnCuda(StreamPriority priority) : priority_(priority) {}

  void SetUp() override {
    const RankPlace& place = mpi_session().place();
    rank = place.rank;
    size = place.size;
    auto opened_control = open_mpi_control(mpi_session(), control_timeout_s);
    ASSERT_OK(opened_control.status());
    control = std::move(opened_control.value());
    auto opened = open_cuda_device(place.local_rank);
    ASSERT_OK(agree(*control, opened.status()));
    device = std::move(opened.value());
    auto made = device->create_stream(priority_);
    ASSERT_OK(agree(*control, made.status()));
    stream = std::move(made.value());
  }

  Status finish() { return device->synchronize(*stream, stream_timeout_s); }

  template <typename T>
  Buffer upload(const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    Buffer buffer = std::move(device->allocate(bytes).value());
    Buffer pinned = std::move(device->allocate_pinned(bytes).value());
    if (bytes > 0) {
      std::memcpy(pinned.data(), values.data(), bytes);
      EXPECT_TRUE(device->copy(buffer.data(), pinned.data(), bytes, *stream).ok());
    }
    EXPECT_TRUE(finish().ok());
    return buffer;
  }

  /// Valid after the work in the stream.
  template <typename T>
  std::vector<T> download(const void* from, std::size_t count) {
    Buffer pinned = std::move(device->allocate_pinned(count * sizeof(T)).value());
    if (count > 0) {
      EXPECT_TRUE(device->copy(pinned.data(), from, count * sizeof(T), *stream).ok());
    }
    const Status finished = finish();
    EXPECT_TRUE(finished.ok()) << finished.what();
    return {pinned.as<T>(), pinned.as<T>() + count};
  }

  /// True if all ranks hold the same bytes. Only rank 0 compares; the other ranks return true.
  template <typename T>
  bool equal_on_all_ranks(const std::vector<T>& values) {
    const auto all =
        control->gather(std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)));
    return all.ok() && std::all_of(all.value().begin(), all.value().end(),
                                   [&](const std::string& one) { return one == all.value().front(); });
  }

  // Order of destruction: a stream before its device.
  std::unique_ptr<Control> control;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  int rank = 0, size = 1;

 private:
  const StreamPriority priority_;
};

}  // namespace egt::test
