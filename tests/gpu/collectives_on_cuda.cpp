// Run by mpirun with one rank per GPU of one host: NCCL's collectives and the trainer that uses them.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "egt/core/clock.hpp"
#include "egt/core/math/half.hpp"
#include "egt/core/pattern.hpp"
#include "model/mlp_trainer.hpp"
#include "on_cuda.hpp"
#include "tests/mpi/exchange_contract.hpp"
#include "tests/support/single_rank_communicator.hpp"
#include "tests/support/state_digests.hpp"

namespace egt::test {
namespace {

/// Zero, one, odd, odd above a power of two, several MB.
constexpr std::size_t counts[] = {0, 1, 3, 1001, 262147, 1500001};

/// Integers in [-15, 15]: sums over few ranks are exact in any order, also in bfloat16.
float whole_number(int rank, std::size_t i) {
  return static_cast<float>(mix64(static_cast<std::uint64_t>(rank) * 1000003 + i + 1) % 31) - 15.0f;
}

INSTANTIATE_TEST_SUITE_P(Nccl, ExchangeContract,
                         testing::Values(RanksUnderTest{
                             .name = "cuda",
                             .open_device =
                                 [](const RankPlace& place) { return open_cuda_device(place.local_rank); },
                             .open = open_nccl}),
                         name_of);

class ConnectedOnCuda : public OnCuda {
 protected:
  ConnectedOnCuda() : OnCuda(StreamPriority::high) {}

  void SetUp() override {
    OnCuda::SetUp();
    if (HasFatalFailure()) return;
    communicator = connect();
    ASSERT_TRUE(communicator);
  }

  /// A new communicator of all ranks, or null on every rank after a failure was reported.
  std::unique_ptr<Communicator> connect() {
    auto opened = open_nccl(*control);
    EXPECT_TRUE(opened.ok()) << opened.status().what();
    return opened.ok() ? std::move(opened.value()) : nullptr;
  }

  /// Aborts work that waits for a missing peer: stream destructors wait for their work.
  void TearDown() override {
    if (HasFailure() && communicator) communicator->abort();
  }

  std::unique_ptr<Communicator> communicator;
};

class Collectives : public ConnectedOnCuda {};

TEST_F(Collectives, AllReduceOfFloatsGivesTheKnownSums) {
  for (const std::size_t count : counts) {
    std::vector<float> mine(count), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      mine[i] = whole_number(rank, i);
      for (int r = 0; r < size; ++r) expected[i] += whole_number(r, i);
    }
    const Buffer data = upload(mine);
    ASSERT_OK(communicator->all_reduce(data.data(), count, ElementType::f32, *stream));
    EXPECT_TRUE(download<float>(data.data(), count) == expected) << count;
    ASSERT_OK(communicator->check());
  }
}

TEST_F(Collectives, AllReduceOfBfloat16GivesTheKnownSums) {
  for (const std::size_t count : counts) {
    std::vector<std::uint16_t> mine(count), expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      mine[i] = to_bfloat16(whole_number(rank, i)).bits;
      float sum = 0;
      for (int r = 0; r < size; ++r) sum += whole_number(r, i);
      expected[i] = to_bfloat16(sum).bits;
    }
    const Buffer data = upload(mine);
    ASSERT_OK(communicator->all_reduce(data.data(), count, ElementType::bf16, *stream));
    std::vector<std::uint16_t> sums = download<std::uint16_t>(data.data(), count);
    for (std::uint16_t& sum : sums)
      if (sum == 0x8000u) sum = 0;  // either zero is correct
    EXPECT_TRUE(sums == expected) << count;
  }
}

TEST_F(Collectives, AllReduceGivesTheSameBitsOnAllRanksAndEveryTime) {
  constexpr std::size_t count = 1500001;
  std::vector<float> mine(count);
  for (std::size_t i = 0; i < count; ++i) mine[i] = random_float(rank, i);
  std::vector<float> sums[2];
  for (auto& sum : sums) {
    const Buffer data = upload(mine);
    ASSERT_OK(communicator->all_reduce(data.data(), count, ElementType::f32, *stream));
    sum = download<float>(data.data(), count);
    EXPECT_TRUE(equal_on_all_ranks(sum));
  }
  EXPECT_EQ(0, std::memcmp(sums[0].data(), sums[1].data(), count * sizeof(float)));
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < count; ++i) {
    double expected = 0, magnitude = 0;
    for (int r = 0; r < size; ++r) {
      expected += random_float(r, i);
      magnitude += std::abs(random_float(r, i));
    }
    wrong += !(std::abs(sums[0][i] - expected) <= 1e-6 * magnitude);
  }
  EXPECT_EQ(wrong, 0u);
}

TEST_F(Collectives, ReduceScatterSumsFloats) {
  for (const std::size_t count : counts) {
    const std::size_t first = static_cast<std::size_t>(rank) * count;
    std::vector<float> mine(count * static_cast<std::size_t>(size)), expected(count);
    for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = whole_number(rank, i);
    for (std::size_t i = 0; i < count; ++i)
      for (int r = 0; r < size; ++r) expected[i] += whole_number(r, first + i);
    const Buffer from = upload(mine), to = upload(std::vector<float>(count, -99.0f));
    ASSERT_OK(communicator->reduce_scatter(from.data(), to.data(), count, ElementType::f32, *stream));
    EXPECT_TRUE(download<float>(to.data(), count) == expected) << count;
  }
}

TEST_F(Collectives, ReduceScatterSumsBfloat16) {
  constexpr std::size_t count = 70001;
  const std::size_t first = static_cast<std::size_t>(rank) * count;
  std::vector<std::uint16_t> mine(count * static_cast<std::size_t>(size)), expected(count);
  for (std::size_t i = 0; i < mine.size(); ++i) mine[i] = to_bfloat16(whole_number(rank, i)).bits;
  for (std::size_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < size; ++r) sum += whole_number(r, first + i);
    expected[i] = to_bfloat16(sum).bits;
  }
  const Buffer from = upload(mine), to = upload(std::vector<std::uint16_t>(count));
  ASSERT_OK(communicator->reduce_scatter(from.data(), to.data(), count, ElementType::bf16, *stream));
  std::vector<std::uint16_t> sums = download<std::uint16_t>(to.data(), count);
  for (std::uint16_t& sum : sums)
    if (sum == 0x8000u) sum = 0;  // either zero is correct
  EXPECT_TRUE(sums == expected);
}

TEST_F(Collectives, SumsAreMadeOfNoOtherType) {
  const Buffer data = upload(std::vector<double>{1.0});
  EXPECT_EQ(communicator->reduce_scatter(data.data(), data.data(), 1, ElementType::f64, *stream).code(),
            StatusCode::invalid_argument);
  EXPECT_EQ(communicator->all_reduce(data.data(), 1, ElementType::f64, *stream).code(),
            StatusCode::invalid_argument);
}

TEST_F(Collectives, BroadcastFromEveryRoot) {
  for (int root = 0; root < size; ++root)
    for (const std::size_t bytes : counts) {
      std::vector<std::uint8_t> mine(bytes), expected(bytes);
      for (std::size_t i = 0; i < bytes; ++i)
        expected[i] = static_cast<std::uint8_t>(mix64(i + static_cast<std::size_t>(root)));
      if (rank == root) mine = expected;
      const Buffer data = upload(mine);
      ASSERT_OK(communicator->broadcast(data.data(), bytes, root, *stream));
      EXPECT_TRUE(download<std::uint8_t>(data.data(), bytes) == expected) << bytes << " from " << root;
    }
}

TEST_F(Collectives, AllGatherInRankOrder) {
  for (const std::size_t bytes : counts) {
    const std::size_t all_bytes = bytes * static_cast<std::size_t>(size);
    std::vector<std::uint8_t> mine(bytes), expected(all_bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      mine[i] = static_cast<std::uint8_t>(mix64(i) + static_cast<unsigned>(rank));
    for (std::size_t i = 0; i < all_bytes; ++i)
      expected[i] = static_cast<std::uint8_t>(mix64(i % bytes) + i / bytes);
    const Buffer from = upload(mine), to = upload(std::vector<std::uint8_t>(all_bytes));
    ASSERT_OK(communicator->all_gather(from.data(), to.data(), bytes, *stream));
    EXPECT_TRUE(download<std::uint8_t>(to.data(), all_bytes) == expected) << bytes;
  }
}

TEST_F(Collectives, AbortEndsACollectiveThatAPeerNeverJoins) {
  constexpr std::size_t count = 1 << 20;
  const Buffer data = upload(std::vector<float>(count, 1.0f));
  // A first collective of all ranks: NCCL connects ranks at the first use of each transport.
  ASSERT_OK(communicator->all_reduce(data.data(), count, ElementType::f32, *stream));
  ASSERT_OK(finish());
  if (rank == 0) {
    ASSERT_OK(communicator->all_reduce(data.data(), count, ElementType::f32, *stream));
    EXPECT_EQ(device->synchronize(*stream, 0.5).code(), StatusCode::timeout) << "a peer joined";
    ASSERT_OK(communicator->check());
    communicator->abort();
    EXPECT_NE(finish().code(), StatusCode::timeout) << "the stream did not drain";
  }
  ASSERT_OK(control->barrier());
  communicator->abort();  // every survivor aborts the same communicator
  EXPECT_EQ(communicator->check().code(), StatusCode::aborted);
  EXPECT_EQ(communicator->all_reduce(data.data(), count, ElementType::f32, *stream).code(),
            StatusCode::aborted);
  communicator = connect();
  ASSERT_TRUE(communicator);
  // The old stream may keep its error.
  stream = std::move(device->create_stream(StreamPriority::high).value());
  const Buffer ones = upload(std::vector<float>(1001, 1.0f));
  ASSERT_OK(communicator->all_reduce(ones.data(), 1001, ElementType::f32, *stream));
  EXPECT_TRUE(download<float>(ones.data(), 1001) == std::vector<float>(1001, static_cast<float>(size)));
}

struct Way {
  Precision precision;
  ElementType gradient_type;
  Optimizer optimizer;
  double tolerance;  ///< per loss: all-reduces use another order, or round to bfloat16
};

class DataParallelOnCuda : public ConnectedOnCuda, public testing::WithParamInterface<Way> {
 protected:
  static constexpr std::int64_t batch_each = 7, steps = 20;

  MlpConfig config(BatchShare batch) const {
    MlpConfig c;
    c.neurons = {33, 65, 17};
    c.batch = batch;
    c.precisions = {GetParam().precision};
    c.optimizer = GetParam().optimizer;
    c.gradient_type = GetParam().gradient_type;
    c.learning_rate = default_learning_rate(c.neurons, c.optimizer, c.batch.global);
    c.extreme_iterations = 3;
    c.seed = 11;
    return c;
  }

  /// The losses. Checks that all ranks of `ranks` end with the same weights.
  std::vector<double> train(Communicator& ranks, const MlpConfig& c) {
    auto made = MlpTrainer::create(*device, ranks, c);
    const Status created = agree(*control, made.status());
    EXPECT_TRUE(created.ok()) << created.what();
    if (!created.ok()) return {};
    std::vector<double> losses;
    const Status trained = train(ranks, *made.value(), losses);
    if (!trained.ok()) ranks.abort();  // so that the trainer's streams complete
    EXPECT_TRUE(trained.ok()) << trained.what();
    return losses;
  }

  Status train(Communicator& ranks, MlpTrainer& trainer, std::vector<double>& losses) {
    for (std::int64_t step = 0; step < steps + MlpTrainer::depth; ++step) {
      if (step < steps) EGT_TRY(trainer.enqueue_step(step, {}, false));
      if (step < MlpTrainer::depth) continue;
      EGT_TRY_ASSIGN(const StepResult result,
                     trainer.retire_step(step - MlpTrainer::depth, stream_timeout_s));
      losses.push_back(result.loss);
    }
    const auto digests = test::state_digests(*device, ranks, trainer);
    for (const auto& one : digests) EXPECT_EQ(one, digests.front());
    return {};
  }
};

TEST_P(DataParallelOnCuda, ManyRanksLearnWhatOneWithTheWholeBatchLearns) {
  const std::int64_t global = batch_each * size;
  const std::vector<double> shared =
      train(*communicator, config({.global = global, .first = batch_each * rank, .local = batch_each}));
  EXPECT_TRUE(equal_on_all_ranks(shared));
  SingleRankCommunicator alone(*device);  // one rank, whatever the world size
  const std::vector<double> whole = train(alone, config({.global = global, .first = 0, .local = global}));
  ASSERT_EQ(shared.size(), static_cast<std::size_t>(steps));
  ASSERT_EQ(whole.size(), static_cast<std::size_t>(steps));
  for (std::size_t step = 0; step < whole.size(); ++step)
    EXPECT_NEAR(shared[step] / whole[step], 1.0, GetParam().tolerance) << "step " << step;
  EXPECT_LT(whole.back(), whole.front());
}

INSTANTIATE_TEST_SUITE_P(Ways, DataParallelOnCuda,
                         testing::Values(Way{Precision::fp64, ElementType::f32, Optimizer::sgd, 2e-5},
                                         Way{Precision::fp32, ElementType::f32, Optimizer::adam, 1e-4},
                                         Way{Precision::tf32, ElementType::f32, Optimizer::sgd, 1e-3},
                                         Way{Precision::fp16, ElementType::f32, Optimizer::sgd, 2e-3},
                                         Way{Precision::bf16, ElementType::f32, Optimizer::adam, 2e-2},
                                         Way{Precision::bf16, ElementType::bf16, Optimizer::sgd, 3e-2}));

}  // namespace
}  // namespace egt::test
