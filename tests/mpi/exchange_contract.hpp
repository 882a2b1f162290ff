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

/// How the suite gets a communicator and the device whose streams it takes. An adapter enters by
/// instantiating ExchangeContract.
struct RanksUnderTest {
  std::string name;
  std::function<Result<std::unique_ptr<Device>>(const RankPlace&)> open_device;
  /// Collective.
  std::function<Result<std::unique_ptr<Communicator>>(Control&)> open;
};

inline void PrintTo(const RanksUnderTest& ranks, std::ostream* stream) {
  *stream << ranks.name;
}

inline std::string name_of(const testing::TestParamInfo<RanksUnderTest>& info) {
  return info.param.name;
}

/// What egt/ranks/communicator.hpp promises of exchanges and of what is split from a communicator.
class ExchangeContract : public testing::TestWithParam<RanksUnderTest> {
 protected:
  /// Bytes in the device's memory, which nobody but their own message should write.
  using Letter = std::vector<std::uint8_t>;

  void SetUp() override;
  /// Ends what a missing peer would never end: streams wait for their work when they are destroyed.
  void TearDown() override;

  int next() const { return (rank + 1) % size; }
  int previous() const { return (rank + size - 1) % size; }
  int last() const { return size - 1; }

  std::unique_ptr<Communicator> open();
  /// What `from` writes to `to` in its letter of that number; unlike all others.
  static Letter letter(int from, int to, int number, std::size_t bytes);
  Buffer upload(const Letter& letter);
  Letter download(const Buffer& buffer);
  /// A buffer for a letter that comes, with another content.
  Buffer blank(std::size_t bytes) { return upload(letter(-1, -1, -1, bytes)); }
  static Message message(const Buffer& buffer, int peer) { return {buffer.data(), buffer.bytes(), peer}; }
  Status finish() { return device->synchronize(*stream, patience_s); }

  /// Rank `from` of `ranks` sends rank `to` a letter of every size, in one exchange for each.
  void expect_letters(Communicator& ranks, const std::vector<std::pair<int, int>>& ways);
  /// The sum over `ranks` of `value`, all-reduced.
  float sum(Communicator& ranks, float value);

  static constexpr double patience_s = 60;

  // In this order: a communicator ends before its streams, they before their device.
  std::unique_ptr<Control> control;
  std::unique_ptr<Device> device;
  std::unique_ptr<Stream> stream;
  std::unique_ptr<Communicator> communicator;
  int rank = 0, size = 1;
};

}  // namespace egt::test
