#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "egt/device/device.hpp"
#include "egt/ranks/communicator.hpp"
#include "egt/ranks/control.hpp"
#include "mpi_test.hpp"

namespace egt::test {

/// Opens the communicator and the device of the suite. Each adapter instantiates ExchangeContract.
struct RanksUnderTest {
  std::string name;
  std::function<Result<std::unique_ptr<Device>>(const RankPlace&)> open_device;
  /// Collective call.
  std::function<Result<std::unique_ptr<Communicator>>(Control&)> open;
};

inline void PrintTo(const RanksUnderTest& ranks, std::ostream* stream) {
  *stream << ranks.name;
}

inline std::string name_of(const testing::TestParamInfo<RanksUnderTest>& info) {
  return info.param.name;
}

/// Checks the guarantees of egt/ranks/communicator.hpp for exchanges and for split communicators.
class ExchangeContract : public testing::TestWithParam<RanksUnderTest> {
 protected:
  /// Bytes in device memory that only their own message should write.
  using Letter = std::vector<std::uint8_t>;

  void SetUp() override;
  /// Aborts work that waits for a missing peer: stream destructors wait for their work.
  void TearDown() override;

  int next() const { return (rank + 1) % size; }
  int previous() const { return (rank + size - 1) % size; }
  int last() const { return size - 1; }

  std::unique_ptr<Communicator> open();
  /// The message number `number` from `from` to `to`; all messages differ.
  static Letter letter(int from, int to, int number, std::size_t bytes);
  Buffer upload(const Letter& letter);
  Letter download(const Buffer& buffer);
  /// A receive buffer with other content.
  Buffer blank(std::size_t bytes) { return upload(letter(-1, -1, -1, bytes)); }
  static Message message(const Buffer& buffer, int peer) { return {buffer.data(), buffer.bytes(), peer}; }
  Status finish() { return device->synchronize(*stream, patience_s); }

  /// Rank `from` of `ranks` sends rank `to` a message of every size, one exchange per size.
  void expect_letters(Communicator& ranks, const std::vector<std::pair<int, int>>& ways);
  /// All-reduced sum of `value` over `ranks`.
  float sum(Communicator& ranks, float value);

  static constexpr double patience_s = 60;

  // Order of destruction: communicator, streams, device.
  std::unique_ptr<Control> control;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Communicator> communicator;
  int rank = 0, size = 1;
};

}  // namespace egt::test
