#pragma once

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "egt/device/dnn.hpp"
#include "tests/contract/device_contract.hpp"

namespace egt::contract {

/// Every promise of egt/device/dnn.hpp, checked on the device of the parameter. Where the parameter opens no
/// such library, or its `open_dnn` answers unavailable, the cases are skipped with that reason.
class DnnContract : public DeviceContract {
 protected:
  void SetUp() override;
  void TearDown() override;

 public:
  Dnn& dnn() { return *dnn_; }
  /// Those of fp32, tf32 and bf16 that the library has.
  std::vector<Precision> dnn_precisions();
  /// The types of images that it has: f32, and bf16 with that precision.
  std::vector<ElementType> image_types();

  /// An operation of the shape; null, and the test fails, where it cannot be made.
  template <typename Shape>
  auto make(const Shape& shape) {
    auto made = dnn().make(shape);
    EXPECT_TRUE(made.ok()) << made.status().what();
    return made.ok() ? std::move(made.value()) : nullptr;
  }

  /// Elements behind an output that nobody may touch.
  static constexpr std::int64_t guard = 16;
  /// Room for `count` elements and the guard, all of them NaN.
  DeviceArray output(ElementType type, std::int64_t count);
  /// The output with its guard: every element was written, the guard was not.
  reference::Array written(const DeviceArray& output);

 private:
  std::unique_ptr<Dnn> dnn_;
};

/// Uniform in [-1, 1), rounded to the type.
reference::Array uniform_array(ElementType type, std::int64_t count, std::uint64_t seed);
/// Integers of -8 .. 8: sums of a few are exact in every type.
reference::Array small_integers(ElementType type, std::int64_t count, std::uint64_t seed);

}  // namespace egt::contract
