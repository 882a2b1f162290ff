#pragma once

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "egt/device/dnn.hpp"
#include "tests/contract/device_contract.hpp"

namespace egt::contract {

/// Checks every guarantee of egt/device/dnn.hpp on the parameter's device. The cases are skipped with a
/// reason if the parameter has no `open_dnn` or `open_dnn` returns unavailable.
class DnnContract : public DeviceContract {
 protected:
  void SetUp() override;
  void TearDown() override;

 public:
  Dnn& dnn() { return *dnn_; }
  /// The subset of fp32, tf32 and bf16 that the library supports.
  std::vector<Precision> dnn_precisions();
  /// The supported image types: f32, and bf16 if that precision is supported.
  std::vector<ElementType> image_types();

  /// An operation of this shape. Returns null and fails the test if it cannot be created.
  template <typename Shape>
  auto make(const Shape& shape) {
    auto made = dnn().make(shape);
    EXPECT_TRUE(made.ok()) << made.status().what();
    return made.ok() ? std::move(made.value()) : nullptr;
  }

  /// Elements after an output that must not be modified.
  static constexpr std::int64_t guard = 16;
  /// Allocates `count` elements and the guard elements, all filled with NaN.
  DeviceArray output(ElementType type, std::int64_t count);
  /// The output, after a check that every element was written and the guard elements were not.
  reference::Array written(const DeviceArray& output);

 private:
  std::unique_ptr<Dnn> dnn_;
};

/// Uniform in [-1, 1), rounded to the type.
reference::Array uniform_array(ElementType type, std::int64_t count, std::uint64_t seed);
/// Integers in [-8, 8]: sums of a few are exact in every type.
reference::Array small_integers(ElementType type, std::int64_t count, std::uint64_t seed);

}  // namespace egt::contract
