#include "loadtest/images/image_feed.hpp"

#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <new>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/image_fixture.hpp"

namespace egt::test {
namespace {

using testing::HasSubstr;

constexpr std::uint64_t seed = 42;

/// Images of one pixel: step, rank and index. `before` may delay or fail.
class NumberedImages : public ImageSet {
 public:
  using Before = std::function<Status(const ImageBatch&, std::int64_t, const std::stop_token&)>;
  explicit NumberedImages(Before before = {}) : ImageSet(0, 1), before_(std::move(before)) {}
  int classes() const override { return 1; }
  Status make(const ImageBatch& batch, std::int64_t index, float* pixels, std::int32_t* label,
              const std::stop_token& stop) const override {
    if (before_) EGT_TRY(before_(batch, index, stop));
    pixels[0] = static_cast<float>(batch.step);
    pixels[1] = static_cast<float>(batch.rank);
    pixels[2] = static_cast<float>(index);
    *label = static_cast<std::int32_t>(index);
    return {};
  }

 private:
  const Before before_;
};

Status sleep_ms(int ms) {
  std::this_thread::sleep_for(std::chrono::milliseconds(ms));
  return {};
}

/// Blocks until the worker is stopped.
Status never(const ImageBatch&, std::int64_t, const std::stop_token& stop) {
  while (!stop.stop_requested()) EGT_TRY(sleep_ms(1));
  return {StatusCode::stopped, "a stop was asked for"};
}

std::unique_ptr<ImageFeed> loader_of(FeedTarget& target, const ImageSet& set, const LoaderPlan& plan) {
  auto loader = make_image_loader(*target.device, set, plan);
  EXPECT_EQ(loader.status().what(), "");
  return loader.ok() ? std::move(loader.value()) : nullptr;
}

TEST(GeneratedImages, OfAClassAreItsPrototypeAndNoiseAboutIt) {
  const GeneratedImages set(seed, 12, 5);
  const ImageBatch batch{.step = 3, .images = 1000};
  const MadeBatch made = made_by(set, batch);
  const std::size_t values = static_cast<std::size_t>(set.values());
  const auto distance = [&](const float* pixels, std::size_t label) {
    double sum = 0;
    for (std::size_t v = 0; v < values; ++v)
      sum += std::pow(double{pixels[v]} - double{set.prototypes()[label * values + v]}, 2);
    return std::sqrt(sum / static_cast<double>(values));
  };
  std::vector<std::vector<float>> means(5, std::vector<float>(values));
  std::vector<int> count(5);
  for (std::size_t i = 0; i < 1000; ++i) {
    const auto label = static_cast<std::size_t>(made.labels[i]);
    ASSERT_LT(label, 5u);
    ++count[label];
    for (std::size_t v = 0; v < values; ++v) means[label][v] += made.pixels[i * values + v];
    for (std::size_t other = 0; other < 5; ++other)
      EXPECT_GE(distance(&made.pixels[i * values], other), distance(&made.pixels[i * values], label));
  }
  for (std::size_t label = 0; label < 5; ++label) {
    EXPECT_GT(count[label], 150);
    for (float& value : means[label]) value /= static_cast<float>(count[label]);
    EXPECT_LT(distance(means[label].data(), label), 0.03);
    EXPECT_GT(distance(means[label].data(), (label + 1) % 5), 0.3);
  }
  for (const float value : made.pixels) EXPECT_LE(std::abs(value), 1.0f);
}

TEST(GeneratedImages, DependOnSeedStepRankAndIndex) {
  const ImageBatch batch{.step = 3, .rank = 1, .ranks = 4, .images = 2};
  std::set<std::vector<float>> all;
  const auto add = [&](std::uint64_t a_seed, std::uint64_t step, int rank) {
    ImageBatch other = batch;
    other.step = step, other.rank = rank;
    const MadeBatch made = made_by(GeneratedImages(a_seed, 4), other);
    all.insert({made.pixels.begin(), made.pixels.begin() + 48});
    all.insert({made.pixels.begin() + 48, made.pixels.end()});
  };
  add(42, 3, 1);
  add(43, 3, 1);
  add(42, 4, 1);
  add(42, 3, 2);
  EXPECT_EQ(all.size(), 8u);
  add(42, 3, 1);
  EXPECT_EQ(all.size(), 8u) << "the same again";
}

TEST(DeviceImages, HaveTheBitsThatTheHostMakes) {
  for (const std::int64_t side : {5, 16}) {
    const GeneratedImages set(seed, side);
    ImageBatch batch{.step = 1000, .rank = 3, .ranks = 8, .images = 9};
    FeedTarget target(batch.images, set.values());
    auto feed = make_device_images(*target.device, set, batch, *target.stream);
    ASSERT_TRUE(feed.ok()) << feed.status().what();
    for (int step = 0; step < 9; ++step, ++batch.step)
      EXPECT_EQ(target.next(*feed.value()), made_by(set, batch)) << step;
    EXPECT_EQ(feed.value()->figures().workers, 0);
    EXPECT_EQ(loader_bottleneck(feed.value()->figures(), 100, 4), "");
  }
}

TEST(DeviceImages, EnqueuesFourBatchesAheadOfTheDevice) {
  const GeneratedImages set(seed, 4);
  const ImageBatch batch{.images = 4};
  FeedTarget target(batch.images, set.values());
  ASSERT_TRUE(target.device->allow_holds().ok());
  auto feed = std::move(make_device_images(*target.device, set, batch, *target.stream).value());
  target.device->hold(true);
  for (int step = 0; step < 4; ++step) EXPECT_EQ(target.enqueue(*feed, {.seconds = 0}).what(), "");
  EXPECT_EQ(target.enqueue(*feed, {.seconds = 0.05}).code(), StatusCode::timeout);
  target.device->hold(false);
  EXPECT_EQ(target.next(*feed), made_by(set, {.step = 4, .images = 4}));
}

TEST(ImageLoader, MakesTheSameBitsWithAnyNumberOfWorkers) {
  const GeneratedImages set(seed, 5);
  for (const int workers : {1, 2, 5}) {
    LoaderPlan plan{.first = {.step = 7, .rank = 1, .ranks = 2, .images = 9}, .workers = workers};
    FeedTarget target(plan.first.images, set.values());
    const auto loader = loader_of(target, set, plan);
    ASSERT_NE(loader, nullptr);
    for (int step = 0; step < 12; ++step, ++plan.first.step)
      EXPECT_EQ(target.next(*loader), made_by(set, plan.first)) << workers << " workers, batch " << step;
  }
}

TEST(ImageLoader, DeliversInOrderThoughLaterBatchesAreReadyFirst) {
  const NumberedImages set([](const ImageBatch& batch, std::int64_t index, const std::stop_token&) {
    return sleep_ms(batch.step % 3 == 0 && index == 1 ? 20 : 0);
  });
  const LoaderPlan plan{.first = {.images = 8}, .workers = 4, .ahead = 3};
  FeedTarget target(plan.first.images, set.values());
  const auto loader = loader_of(target, set, plan);
  for (std::uint64_t step = 0; step < 30; ++step) {
    const MadeBatch made = target.next(*loader);
    ASSERT_EQ(made, made_by(NumberedImages(), {.step = step, .images = 8}));
  }
}

TEST(ImageLoader, WritesNoBatchOverOneThatTheDeviceHasNotRead) {
  const NumberedImages set;
  const LoaderPlan plan{.first = {.images = 4}, .workers = 2, .ahead = 2};
  FeedTarget target(3 * plan.first.images, set.values());
  ASSERT_TRUE(target.device->allow_holds().ok());
  const auto loader = loader_of(target, set, plan);
  target.device->hold(true);
  float* const x = target.pixels.as<float>();
  std::int32_t* const labels = target.labels.as<std::int32_t>();
  for (int b = 0; b < 3; ++b)
    ASSERT_TRUE(loader->enqueue(x + 12 * b, labels + 4 * b, *target.stream, {.seconds = 60}).ok());
  EXPECT_EQ(loader->enqueue(x, labels, *target.stream, {.seconds = 0.1}).code(), StatusCode::timeout);
  EXPECT_EQ(loader->figures().made, 12) << "as many batches as there are buffers";
  target.device->hold(false);
  ASSERT_TRUE(target.device->synchronize(*target.stream, 60).ok());
  for (int i = 0; i < 12; ++i) {
    EXPECT_EQ(x[3 * i], static_cast<float>(i / 4));
    EXPECT_EQ(labels[i], i % 4);
  }
  EXPECT_EQ(target.next(*loader).pixels[0], 3);
}

TEST(ImageLoader, TellsThatItStarvesTheDevice) {
  const NumberedImages set(
      [](const ImageBatch&, std::int64_t, const std::stop_token&) { return sleep_ms(5); });
  const LoaderPlan plan{.first = {.images = 8}, .workers = 2};
  FeedTarget target(plan.first.images, set.values());
  const auto loader = loader_of(target, set, plan);
  for (int step = 0; step < 9; ++step) target.next(*loader);
  const FeedFigures figures = loader->figures();
  EXPECT_EQ(figures.delivered, 64) << "of the first batch the start is not known";
  EXPECT_EQ(figures.batch, 8);
  EXPECT_GT(figures.waited_seconds, 0);  // how much depends on the load of this host
  EXPECT_LE(figures.waited_seconds, figures.elapsed_seconds);
  EXPECT_GE(figures.seconds_a_batch(), 0.020);
  EXPECT_GE(figures.made, 72);
  EXPECT_THAT(loader_bottleneck(figures, 1e5, 64),
              HasSubstr("with 2 workers, the device takes 100000: raise --num-workers"));
}

TEST(ImageLoader, ThatIsFastEnoughIsNoBottleneck) {
  const NumberedImages set;
  const LoaderPlan plan{.first = {.images = 8}, .workers = 1};
  FeedTarget target(plan.first.images, set.values());
  const auto loader = loader_of(target, set, plan);
  for (int step = 0; step < 6; ++step) {
    ASSERT_TRUE(eventually([&] { return loader->figures().made >= 8 * (step + 1); }));
    target.next(*loader);
    EXPECT_TRUE(sleep_ms(20).ok());
  }
  EXPECT_EQ(loader_bottleneck(loader->figures(), 0, 64), "");
}

TEST(LoaderBottleneck, IsToldWithBothRatesAndWhatHelps) {
  const FeedFigures starved{
      .workers = 2, .batch = 10, .delivered = 1200, .elapsed_seconds = 10, .waited_seconds = 8};
  EXPECT_EQ(loader_bottleneck(starved, 800, 16),
            "the loader is the bottleneck: it makes 120 images/s with 2 workers, the device takes 800: raise "
            "--num-workers");
  EXPECT_THAT(loader_bottleneck(starved, 800, 2), HasSubstr("more than 2 cores would help"));
  EXPECT_THAT(loader_bottleneck(starved, 0, 4), HasSubstr("which are waited for 80 % of the time"));
  EXPECT_EQ(loader_bottleneck(starved, 121, 16), "") << "the device takes no more";
  FeedFigures fed = starved;
  fed.waited_seconds = 0.4;
  EXPECT_EQ(loader_bottleneck(fed, 800, 16), "");
  EXPECT_EQ(loader_bottleneck({}, 800, 16), "");
}

TEST(ImageLoader, TellsWhatAWorkerFailedWith) {
  const auto failure_of = [](const NumberedImages::Before& before) {
    const NumberedImages set(before);
    FeedTarget target(8, set.values());
    const auto loader = loader_of(target, set, {.first = {.images = 8}, .workers = 2});
    Status status;
    for (int step = 0; step < 4 && status.ok(); ++step) status = target.enqueue(*loader);
    EXPECT_EQ(target.enqueue(*loader).what(), status.what()) << "and again";
    return status;
  };
  const auto at = [](const ImageBatch& batch, std::int64_t index) { return batch.step == 3 && index == 5; };
  const Status failed = failure_of([&](const ImageBatch& batch, std::int64_t index, const std::stop_token&) {
    return at(batch, index) ? Status(StatusCode::unavailable, "no image") : Status();
  });
  EXPECT_EQ(failed.what(), "no image");
  const Status no_memory =
      failure_of([&](const ImageBatch& batch, std::int64_t index, const std::stop_token&) {
        if (at(batch, index)) throw std::bad_alloc();
        return Status();
      });
  EXPECT_EQ(no_memory.code(), StatusCode::out_of_memory);
}

TEST(ImageLoader, AWaitEndsAtItsDeadlineAndWhenAStopIsAskedFor) {
  const NumberedImages set(&never);
  FeedTarget target(8, set.values());
  auto loader = loader_of(target, set, {.first = {.images = 8}, .workers = 3});
  const Status late = target.enqueue(*loader, {.seconds = 0.05});
  EXPECT_EQ(late.code(), StatusCode::timeout);
  EXPECT_THAT(late.what(), HasSubstr("the image loader made no batch of 8 images within 0.05 s"));
  std::stop_source stop;
  const std::jthread asks([&] {
    EXPECT_TRUE(sleep_ms(50).ok());
    stop.request_stop();
  });
  EXPECT_EQ(target.enqueue(*loader, {.seconds = 100, .stop = stop.get_token()}).code(), StatusCode::stopped);
  loader.reset();
}

TEST(ImageLoader, EndsWhileItsQueueIsFullOrTheDeviceHasNotRead) {
  const NumberedImages set;
  FeedTarget target(8, set.values());
  ASSERT_TRUE(target.device->allow_holds().ok());
  auto loader = loader_of(target, set, {.first = {.images = 8}, .workers = 2, .ahead = 1});
  ASSERT_TRUE(eventually([&] { return loader->figures().made == 16; }));
  target.device->hold(true);
  ASSERT_TRUE(target.enqueue(*loader).ok());
  const std::jthread releases([&] {
    EXPECT_TRUE(sleep_ms(50).ok());
    target.device->hold(false);
  });
  loader.reset();
  EXPECT_EQ(target.labels.as<std::int32_t>()[7], 7) << "buffers went before the device had read them";
}

TEST(ImageLoader, RefusesAPlanThatIsNone) {
  const NumberedImages set;
  FeedTarget target(1, set.values());
  for (const LoaderPlan& plan : {LoaderPlan{.first = {}, .workers = 0}, LoaderPlan{.first = {}, .ahead = 0},
                                 LoaderPlan{.first = {.images = 0}}})
    EXPECT_EQ(make_image_loader(*target.device, set, plan).status().code(), StatusCode::invalid_argument);
}

}  // namespace
}  // namespace egt::test
