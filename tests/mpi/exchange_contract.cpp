#include "exchange_contract.hpp"

#include <cstring>

#include "egt/core/clock.hpp"
#include "egt/core/pattern.hpp"
#include "egt/ranks/agreement.hpp"
#include "ranks/mpi/mpi_control.hpp"

namespace egt::test {

/// One, odd, a page and one byte, 1 MiB and one byte more, several MiB and odd.
constexpr std::size_t sizes[] = {1, 1001, 4097, 1048576, 1048577, 5242887};
/// Memory of an aborted collective must stay allocated until MPI is finalized: see mpi_communicator.hpp.
constexpr std::size_t given_up_bytes = 8 << 20;

void ExchangeContract::SetUp() {
  const RankPlace& place = mpi_session().place();
  auto opened_control = open_mpi_control(mpi_session(), patience_s);
  ASSERT_OK(opened_control.status());
  control = std::move(opened_control.value());
  auto opened = GetParam().open_device(place);
  ASSERT_OK(agree(*control, opened.status()));
  device = std::move(opened.value());
  auto made = device->create_stream(StreamPriority::high);
  ASSERT_OK(agree(*control, made.status()));
  stream = std::move(made.value());
  communicator = open();
  ASSERT_TRUE(communicator);
  rank = communicator->rank();
  size = communicator->size();
}

void ExchangeContract::TearDown() {
  if (HasFailure() && communicator) communicator->abort();
}

std::unique_ptr<Communicator> ExchangeContract::open() {
  auto opened = GetParam().open(*control);
  const Status agreed = agree(*control, opened.status());
  EXPECT_TRUE(agreed.ok()) << agreed.what();
  return agreed.ok() ? std::move(opened.value()) : nullptr;
}

ExchangeContract::Letter ExchangeContract::letter(int from, int to, int number, std::size_t bytes) {
  const std::uint64_t seed = mix64(static_cast<std::uint64_t>((from * 64 + to) * 64 + number));
  Letter written(bytes);
  for (std::size_t i = 0; i < bytes; ++i) written[i] = static_cast<std::uint8_t>(mix64(seed + i));
  return written;
}

Buffer ExchangeContract::upload(const Letter& letter) {
  Buffer buffer = std::move(device->allocate(letter.size()).value());
  if (letter.empty()) return buffer;
  Buffer pinned = std::move(device->allocate_pinned(letter.size()).value());
  std::memcpy(pinned.data(), letter.data(), letter.size());
  EXPECT_TRUE(device->copy(buffer.data(), pinned.data(), letter.size(), *stream).ok());
  EXPECT_TRUE(finish().ok());
  return buffer;
}

ExchangeContract::Letter ExchangeContract::download(const Buffer& buffer) {
  if (buffer.bytes() == 0) return {};
  Buffer pinned = std::move(device->allocate_pinned(buffer.bytes()).value());
  EXPECT_TRUE(device->copy(pinned.data(), buffer.data(), buffer.bytes(), *stream).ok());
  const Status finished = finish();
  EXPECT_TRUE(finished.ok()) << finished.what();
  return {pinned.as<std::uint8_t>(), pinned.as<std::uint8_t>() + buffer.bytes()};
}

void ExchangeContract::expect_letters(Communicator& ranks, const std::vector<std::pair<int, int>>& ways) {
  const int own = ranks.rank();
  for (const std::size_t bytes : sizes) {
    std::vector<Buffer> buffers;
    std::vector<Message> sends, receives;
    std::vector<std::pair<std::size_t, int>> expected;
    for (const auto& [from, to] : ways) {
      if (from == own) {
        buffers.push_back(upload(letter(from, to, 0, bytes)));
        sends.push_back(message(buffers.back(), to));
      }
      if (to == own) {
        expected.push_back({buffers.size(), from});
        buffers.push_back(blank(bytes));
        receives.push_back(message(buffers.back(), from));
      }
    }
    if (!buffers.empty()) ASSERT_OK(ranks.exchange(sends, receives, *stream));
    ASSERT_OK(finish());
    for (const auto& [index, from] : expected)
      EXPECT_TRUE(download(buffers[index]) == letter(from, own, 0, bytes)) << bytes << " from " << from;
  }
}

float ExchangeContract::sum(Communicator& ranks, float value) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(&value);
  const Buffer buffer = upload(Letter(bytes, bytes + sizeof value));
  EXPECT_TRUE(ranks.all_reduce(buffer.data(), 1, ElementType::f32, *stream).ok());
  const Letter summed = download(buffer);
  float result = 0;
  std::memcpy(&result, summed.data(), sizeof result);
  return result;
}

TEST_P(ExchangeContract, OneWayBetweenTwoWhileTheOthersDoNotCall) {
  expect_letters(*communicator, {{0, last()}});
}

TEST_P(ExchangeContract, BothWaysBetweenTwo) {
  expect_letters(*communicator, {{0, last()}, {last(), 0}});
}

TEST_P(ExchangeContract, InARing) {
  std::vector<std::pair<int, int>> ways;
  for (int r = 0; r < size; ++r) ways.push_back({r, (r + 1) % size});
  expect_letters(*communicator, ways);
}

TEST_P(ExchangeContract, FromAllToAllInAnyOrder) {
  std::vector<std::pair<int, int>> ways;
  for (int from = 0; from < size; ++from)
    for (int to = size - 1; to >= 0; --to) ways.push_back({from, to});
  expect_letters(*communicator, ways);
}

TEST_P(ExchangeContract, AllToAllOfEverySize) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{1001}, std::size_t{1500001}}) {
    Letter mine, expected;
    for (int r = 0; r < size; ++r) {
      const Letter outgoing = letter(rank, r, 0, bytes), incoming = letter(r, rank, 0, bytes);
      mine.insert(mine.end(), outgoing.begin(), outgoing.end());
      expected.insert(expected.end(), incoming.begin(), incoming.end());
    }
    const Buffer from = upload(mine), to = blank(expected.size());
    ASSERT_OK(all_to_all(*communicator, from.data(), to.data(), bytes, *stream));
    EXPECT_TRUE(download(to) == expected) << bytes;
    EXPECT_TRUE(download(from) == mine) << bytes;
  }
}

TEST_P(ExchangeContract, ToItselfIsACopyInOrder) {
  const Letter first = letter(rank, rank, 1, 1001), second = letter(rank, rank, 2, 1001);
  const Buffer a = upload(first), b = upload(second), c = blank(1001), d = blank(1001);
  ASSERT_OK(communicator->exchange(std::vector{message(a, rank), message(b, rank)},
                                   std::vector{message(c, rank), message(d, rank)}, *stream));
  EXPECT_TRUE(download(c) == first);
  EXPECT_TRUE(download(d) == second);
}

TEST_P(ExchangeContract, ToItselfMustMatch) {
  const Buffer a = blank(16), b = blank(17);
  const std::vector out{message(a, rank)}, in{message(b, rank)};
  EXPECT_EQ(communicator->exchange(out, in, *stream).code(), StatusCode::invalid_argument);
  EXPECT_EQ(communicator->exchange(out, {}, *stream).code(), StatusCode::invalid_argument);
  EXPECT_EQ(communicator->exchange({}, in, *stream).code(), StatusCode::invalid_argument);
}

TEST_P(ExchangeContract, MessagesOfAPairComeInTheirOrderWhateverTheirSizes) {
  const std::vector<std::size_t> lengths{3000001, 1, 0, 70001, 3000001, 5};
  std::vector<Buffer> outgoing, incoming;
  std::vector<Message> sends, receives;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    outgoing.push_back(upload(letter(rank, next(), static_cast<int>(i), lengths[i])));
    incoming.push_back(blank(lengths[i]));
    sends.push_back(message(outgoing[i], next()));
    receives.push_back(message(incoming[i], previous()));
  }
  ASSERT_OK(communicator->exchange(sends, receives, *stream));
  for (std::size_t i = 0; i < lengths.size(); ++i)
    EXPECT_TRUE(download(incoming[i]) == letter(previous(), rank, static_cast<int>(i), lengths[i])) << i;
}

TEST_P(ExchangeContract, TheOrderOfAPairGoesOnFromExchangeToExchange) {
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  constexpr std::size_t bytes = 100001;
  if (rank == 0) {  // both in one exchange
    const Buffer a = upload(letter(0, last(), 0, bytes)), b = upload(letter(0, last(), 1, bytes));
    ASSERT_OK(communicator->exchange(std::vector{message(a, last()), message(b, last())}, {}, *stream));
    ASSERT_OK(finish());
  } else if (rank == last()) {  // one after the other
    const Buffer a = blank(bytes), b = blank(bytes);
    ASSERT_OK(communicator->exchange({}, std::vector{message(a, 0)}, *stream));
    ASSERT_OK(communicator->exchange({}, std::vector{message(b, 0)}, *stream));
    EXPECT_TRUE(download(a) == letter(0, last(), 0, bytes));
    EXPECT_TRUE(download(b) == letter(0, last(), 1, bytes));
  }
}

TEST_P(ExchangeContract, NothingIsSentWhereAllIsEmpty) {
  ASSERT_OK(communicator->exchange({}, {}, *stream));
  const std::vector<Message> out{{nullptr, 0, next()}}, in{{nullptr, 0, previous()}};
  ASSERT_OK(communicator->exchange(out, in, *stream));
  ASSERT_OK(finish());
  EXPECT_EQ(sum(*communicator, 1), static_cast<float>(size));
}

TEST_P(ExchangeContract, APeerThatIsNoRankIsRefusedAndNothingIsSent) {
  const Buffer a = blank(16), b = blank(16);
  for (const int wrong : {-1, size}) {
    const std::vector good_then_wrong{message(a, next()), message(a, wrong)};
    EXPECT_EQ(communicator->exchange(good_then_wrong, {}, *stream).code(), StatusCode::invalid_argument);
    EXPECT_EQ(communicator->exchange({}, std::vector{message(b, wrong)}, *stream).code(),
              StatusCode::invalid_argument);
  }
  expect_letters(*communicator, {{0, last()}, {last(), 0}});
}

TEST_P(ExchangeContract, SplitInTwoGroupsWorksBesideItsParent) {
  auto split = communicator->split(rank % 2);
  ASSERT_OK(split.status());
  Communicator& half = *split.value();
  EXPECT_EQ(half.rank(), rank / 2);
  EXPECT_EQ(half.size(), (size + 1 - rank % 2) / 2);
  float expected = 0;
  for (int r = rank % 2; r < size; r += 2) expected += static_cast<float>(r + 1);
  for (int times = 0; times < 2; ++times) {
    EXPECT_EQ(sum(half, static_cast<float>(rank + 1)), expected);
    EXPECT_EQ(sum(*communicator, 1), static_cast<float>(size));
  }
  std::vector<std::pair<int, int>> ways;
  for (int r = 0; r < half.size(); ++r) ways.push_back({r, (r + 1) % half.size()});
  expect_letters(half, ways);
  EXPECT_FALSE(half.exchange(std::vector<Message>{{nullptr, 0, half.size()}}, {}, *stream).ok());
}

TEST_P(ExchangeContract, ARankMayStayOutOfASplit) {
  auto none = communicator->split(-1);
  ASSERT_OK(none.status());
  EXPECT_FALSE(none.value());
  auto split = communicator->split(rank == 0 ? -1 : 7);
  ASSERT_OK(split.status());
  EXPECT_EQ(split.value() == nullptr, rank == 0);
  if (rank > 0) {
    EXPECT_EQ(split.value()->rank(), rank - 1);
    EXPECT_EQ(split.value()->size(), size - 1);
    EXPECT_EQ(sum(*split.value(), 2), 2.0f * static_cast<float>(size - 1));
  }
  EXPECT_EQ(sum(*communicator, 1), static_cast<float>(size));
}

TEST_P(ExchangeContract, ASplitOfASplitOutlivesBoth) {
  auto all = communicator->split(0);
  ASSERT_OK(all.status());
  auto pair = all.value()->split(rank / 2);
  ASSERT_OK(pair.status());
  all.value().reset();
  communicator.reset();
  Communicator& two = *pair.value();
  EXPECT_EQ(two.rank(), rank % 2);
  const int members = rank / 2 * 2 + 1 < size ? 2 : 1;
  ASSERT_EQ(two.size(), members);
  EXPECT_EQ(sum(two, 3), 3.0f * static_cast<float>(members));
  expect_letters(two, {{0, members - 1}, {members - 1, 0}});
}

TEST_P(ExchangeContract, AbortEndsAnExchangeThatAPeerNeverJoins) {
  if (size == 1) GTEST_SKIP() << "needs two ranks";
  static const auto* outgoing = new Buffer(blank(given_up_bytes));
  static const auto* incoming = new Buffer(blank(given_up_bytes));
  auto split = communicator->split(0);
  ASSERT_OK(split.status());
  // A first exchange of all ranks: NCCL connects two ranks at their first message.
  const std::vector sends{message(*outgoing, next())}, receives{message(*incoming, previous())};
  ASSERT_OK(split.value()->exchange(sends, receives, *stream));
  ASSERT_OK(finish());
  if (rank == 0) {
    ASSERT_OK(split.value()->exchange(sends, receives, *stream));
    EXPECT_EQ(device->synchronize(*stream, 0.5).code(), StatusCode::timeout) << "a peer joined";
    ASSERT_OK(split.value()->check());
    communicator->abort();  // also aborts communicators split from it
    EXPECT_NE(finish().code(), StatusCode::timeout) << "the stream did not drain";
  }
  ASSERT_OK(control->barrier());
  communicator->abort();  // every survivor aborts the same communicator
  EXPECT_EQ(split.value()->check().code(), StatusCode::aborted);
  EXPECT_EQ(split.value()->exchange(sends, receives, *stream).code(), StatusCode::aborted);
  EXPECT_EQ(communicator->split(0).status().code(), StatusCode::aborted);
  split.value().reset();
  communicator = open();
  ASSERT_TRUE(communicator);
  stream = std::move(device->create_stream(StreamPriority::high).value());  // the old one may have failed
  expect_letters(*communicator, {{0, last()}, {last(), 0}});
}

TEST_P(ExchangeContract, AnInterruptReachesWhatWasSplitAndLeavesWorkUnderWay) {
  auto split = communicator->split(0);
  ASSERT_OK(split.status());
  communicator->interrupt();
  const Buffer buffer = blank(4);
  for (Communicator* ranks : {communicator.get(), split.value().get()}) {
    EXPECT_EQ(ranks->check().code(), StatusCode::aborted);
    EXPECT_EQ(ranks->all_reduce(buffer.data(), 1, ElementType::f32, *stream).code(), StatusCode::aborted);
    EXPECT_EQ(ranks->exchange({}, {}, *stream).code(), StatusCode::aborted);
    EXPECT_EQ(ranks->split(0).status().code(), StatusCode::aborted);
  }
  ASSERT_OK(finish());
}

TEST_P(ExchangeContract, TheEndOfASplitLeavesItsParent) {
  auto split = communicator->split(0);
  ASSERT_OK(split.status());
  split.value()->abort();
  EXPECT_EQ(split.value()->check().code(), StatusCode::aborted);
  ASSERT_OK(communicator->check());
  EXPECT_EQ(sum(*communicator, 1), static_cast<float>(size));
}

}  // namespace egt::test
