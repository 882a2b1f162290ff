#include <chrono>
#include <thread>

#include "device_contract.hpp"
#include "egt/core/clock.hpp"

namespace egt::contract {
TEST_P(DeviceContract, AnEventNeverRecordedIsDone) {
  const std::unique_ptr<Event> event = new_event();
  const Result<bool> done = device().done(*event);
  ASSERT_TRUE(done.ok());
  EXPECT_TRUE(done.value());
  EXPECT_OK(device().wait(stream(), *event));
  finish();
}

TEST_P(DeviceContract, CallsReturnBeforeTheirWorkAndEventsTellWhenItIsOver) {
  const Buffer words = allocate(slow_words * 4), digest = allocate(sizeof(Digest));
  EXPECT_OK(device().set_zero(words.data(), words.bytes(), stream()));
  const std::unique_ptr<Event> event = new_event();
  bool seen_waiting = false;
  for (int attempt = 0; attempt < 10 && !seen_waiting; ++attempt) {  // this thread may be preempted
    for (int i = 0; i < 5; ++i) enqueue_slow_work(words, digest, stream());
    EXPECT_OK(device().record(*event, stream()));
    const Result<bool> done = device().done(*event);
    ASSERT_TRUE(done.ok());
    seen_waiting = !done.value();
    finish();
    const Result<bool> after = device().done(*event);
    ASSERT_TRUE(after.ok());
    EXPECT_TRUE(after.value());
  }
  EXPECT_TRUE(seen_waiting) << "every call waited for its work";
}

TEST_P(DeviceContract, ElapsedTimeIsThatOfTheWorkBetween) {
  const Buffer words = allocate(slow_words * 4), digest = allocate(sizeof(Digest));
  EXPECT_OK(device().set_zero(words.data(), words.bytes(), stream()));
  finish();
  const std::unique_ptr<Event> events[] = {new_event(), new_event(), new_event()};
  EXPECT_FALSE(device().elapsed_ms(*events[0], *events[1]).ok()) << "neither was recorded";
  const Clock::time_point start = Clock::now();
  EXPECT_OK(device().record(*events[0], stream()));
  enqueue_slow_work(words, digest, stream());
  EXPECT_OK(device().record(*events[1], stream()));
  for (int i = 0; i < 3; ++i) enqueue_slow_work(words, digest, stream());
  EXPECT_OK(device().record(*events[2], stream()));
  finish();
  const double wall_ms = 1e3 * seconds_since(start);
  const Result<double> one = device().elapsed_ms(*events[0], *events[1]);
  const Result<double> all = device().elapsed_ms(*events[0], *events[2]);
  ASSERT_TRUE(one.ok() && all.ok());
  EXPECT_GT(one.value(), 0.0);
  EXPECT_GT(all.value(), one.value());
  EXPECT_LE(all.value(), wall_ms * 1.05 + 1);
}

/// Memory is read again at each launch, and nothing runs before the launch.
TEST_P(DeviceContract, CapturedWorkRunsEachTimeThatItIsEnqueued) {
  const Buffer sum = upload_values(std::vector<float>(1000, 1)),
               term = upload_values(std::vector<float>(1000, 2));
  const auto add = [&] {
    return device().add({sum.data(), ElementType::f32, 1000}, {term.data(), ElementType::f32, 1000},
                        stream());
  };
  EXPECT_OK(add());  // once, as required
  const auto both = [&] {
    EGT_TRY(add());
    return device().copy(term.data(), sum.data(), sum.bytes(), stream());
  };
  EXPECT_OK(both());
  finish();
  auto captured = device().capture(stream(), both);
  ASSERT_TRUE(captured.ok()) << captured.status().what();
  finish();
  std::vector<float> values(1000);
  download_bytes(values.data(), sum.data(), sum.bytes());
  EXPECT_EQ(values, std::vector<float>(1000, 5)) << "it ran when it was captured";
  for (const float expected : {10.0f, 20.0f, 40.0f}) {
    EXPECT_OK(device().enqueue_captured(*captured.value(), stream()));
    finish();
    download_bytes(values.data(), sum.data(), sum.bytes());
    EXPECT_EQ(values, std::vector<float>(1000, expected));
  }
}

/// The error surfaces at the call, or, if capture only records, at the first launch.
TEST_P(DeviceContract, CapturedWorkThatFailsLeavesTheStreamAsItWas) {
  const auto fail = [] { return Status(StatusCode::unavailable, "on purpose"); };
  auto captured = device().capture(stream(), fail);
  const Status reported =
      captured.ok() ? device().enqueue_captured(*captured.value(), stream()) : captured.status();
  EXPECT_EQ(reported.code(), StatusCode::unavailable);
  const Buffer sum = upload_values(std::vector<float>(4, 1));
  EXPECT_OK(
      device().add({sum.data(), ElementType::f32, 2}, {sum.as<float>() + 2, ElementType::f32, 2}, stream()));
  finish();
}

TEST_P(DeviceContract, WorkThatIsHeldBackBeginsLaterWithTheSameResult) {
  const Buffer words = allocate(slow_words * 4), digest = allocate(sizeof(Digest)),
               other = allocate(sizeof(Digest));
  EXPECT_OK(device().set_zero(words.data(), words.bytes(), stream()));
  enqueue_slow_work(words, digest, stream());
  finish();
  EXPECT_OK(device().allow_holds());
  enqueue_slow_work(words, other, stream());
  finish();
  EXPECT_EQ(download_value<Digest>(other.data()), download_value<Digest>(digest.data()));
  const std::unique_ptr<Stream> second = new_stream();
  const std::unique_ptr<Event> done = new_event(EventUse::order), second_done = new_event(EventUse::order);
  EXPECT_OK(device().set_zero(other.data(), other.bytes(), stream()));
  finish();
  device().hold(true);
  enqueue_slow_work(words, other, stream());
  EXPECT_OK(device().record(*done, stream()));
  EXPECT_OK(device().set_zero(words.data(), sizeof(std::uint32_t), *second));
  EXPECT_OK(device().record(*second_done, *second));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_FALSE(device().done(*done).value());
  EXPECT_FALSE(device().done(*second_done).value()) << "every stream is held";
  device().hold(false);
  finish(*second);
  finish();
  EXPECT_EQ(download_value<Digest>(other.data()), download_value<Digest>(digest.data()));
}

TEST_P(DeviceContract, AStreamWithoutProductsTakesAllElse) {
  const std::unique_ptr<Stream> plain =
      std::move(device().create_stream(StreamPriority::normal, StreamUse::without_products).value());
  const Buffer a = upload_values<float>({2}), b = upload_values<float>({3}), d = allocate(sizeof(float));
  const MatrixView h{d.data(), ElementType::f32, 1, 1};
  const Gemm product{
      .a = {a.data(), ElementType::f32, 1, 1}, .b = {b.data(), ElementType::f32, 1, 1}, .d = h};
  EXPECT_FAILS(invalid_argument, device().gemm(product, *plain));
  EXPECT_FAILS(invalid_argument, device().activation_gradient(h, h, {}, *plain));
  EXPECT_FAILS(invalid_argument, device().loss_gradient({}, *plain));
  EXPECT_OK(device().copy(d.data(), a.data(), sizeof(float), *plain));
  finish(*plain);
  EXPECT_EQ(download_value<float>(d.data()), 2.0f);
  EXPECT_OK(device().gemm(product, stream()));
  EXPECT_EQ(download_value<float>(d.data()), 6.0f);
}

TEST_P(DeviceContract, AnEventForOrderPutsInOrderAndTellsNoTime) {
  const Buffer words = allocate(slow_words * 4), digest = allocate(sizeof(Digest));
  EXPECT_OK(device().set_zero(words.data(), words.bytes(), stream()));
  const std::unique_ptr<Event> order = new_event(EventUse::order), timing = new_event();
  EXPECT_OK(device().record(*timing, stream()));
  enqueue_slow_work(words, digest, stream());
  EXPECT_OK(device().record(*order, stream()));
  const std::unique_ptr<Stream> other = new_stream(StreamPriority::normal);
  EXPECT_OK(device().wait(*other, *order));
  finish(*other);
  const Result<bool> done = device().done(*order);
  EXPECT_TRUE(done.ok() && done.value());
  for (const auto& [from, to] : {std::pair{&timing, &order}, {&order, &timing}}) {
    EXPECT_EQ(device().elapsed_ms(**from, **to).status().code(), StatusCode::invalid_argument);
    EXPECT_EQ(device().busy_ms(**from, **to).status().code(), StatusCode::invalid_argument);
  }
  finish();
}

TEST_P(DeviceContract, AStreamThatIsGivenUpComesToRestAndTakesWorkAgain) {
  const Buffer words = allocate(slow_words * 4), digest = allocate(sizeof(Digest));
  EXPECT_OK(device().set_zero(words.data(), words.bytes(), stream()));
  for (int i = 0; i < 3; ++i) enqueue_slow_work(words, digest, stream());
  EXPECT_OK(device().forget_failure(stream(), 30));
  const std::unique_ptr<Event> event = new_event();
  enqueue_slow_work(words, digest, stream());
  EXPECT_OK(device().record(*event, stream()));
  finish();
}

TEST_P(DeviceContract, BusyTimeIsThatOfTheStreamsOwnWork) {
  const Buffer words = allocate(slow_words * 4), digest = allocate(sizeof(Digest));
  EXPECT_OK(device().set_zero(words.data(), words.bytes(), stream()));
  finish();
  const std::unique_ptr<Event> begin = new_event(), end = new_event();
  EXPECT_FALSE(device().busy_ms(*begin, *end).ok()) << "neither was recorded";
  EXPECT_OK(device().record(*begin, stream()));
  enqueue_slow_work(words, digest, stream());
  EXPECT_OK(device().record(*end, stream()));
  finish();
  const Result<double> busy = device().busy_ms(*begin, *end), elapsed = device().elapsed_ms(*begin, *end);
  ASSERT_TRUE(busy.ok() && elapsed.ok());
  EXPECT_GT(busy.value(), 0.0);
  EXPECT_LE(busy.value(), elapsed.value() * 1.05 + 1);
}

TEST_P(DeviceContract, SynchronizeGivesUpAtItsDeadline) {
  const Buffer words = allocate(slow_words * 4), digest = allocate(sizeof(Digest));
  EXPECT_OK(device().set_zero(words.data(), words.bytes(), stream()));
  bool seen_timeout = false;
  for (int attempt = 0; attempt < 10 && !seen_timeout; ++attempt) {
    for (int i = 0; i < 5; ++i) enqueue_slow_work(words, digest, stream());
    const Status status = device().synchronize(stream(), 1e-4);
    seen_timeout = status.code() == StatusCode::timeout;
    EXPECT_TRUE(status.ok() || seen_timeout) << status.what();
    finish();
  }
  EXPECT_TRUE(seen_timeout);
}

TEST_P(DeviceContract, AStreamWaitsForWhatAnotherDidBeforeTheEvent) {
  const std::unique_ptr<Stream> consumer = new_stream(StreamPriority::high);
  const Buffer words = allocate(slow_words * 4), seen = allocate(slow_words * 4),
               digest = allocate(sizeof(Digest));
  EXPECT_OK(device().set_zero(words.data(), words.bytes(), stream()));
  const Buffer report = allocate(sizeof(Mismatches));
  for (std::uint64_t round = 0; round < 3; ++round) {
    const Pattern pattern{PatternKind::random, 0, 50 + round};
    const std::unique_ptr<Event> event = new_event();
    enqueue_slow_work(words, digest, stream());
    EXPECT_OK(device().fill({words.as<std::uint32_t>(), slow_words}, pattern, stream()));
    EXPECT_OK(device().record(*event, stream()));
    EXPECT_OK(device().wait(*consumer, *event));
    EXPECT_OK(device().copy(seen.data(), words.data(), words.bytes(), *consumer));
    EXPECT_OK(device().reset(report.as<Mismatches>(), *consumer));
    EXPECT_OK(
        device().verify({seen.as<std::uint32_t>(), slow_words}, pattern, report.as<Mismatches>(), *consumer));
    finish(*consumer);
    EXPECT_EQ(download_value<Mismatches>(report.data()).count, 0u) << "round " << round;
    finish();
  }
}

TEST_P(DeviceContract, AWaitIsForTheRecordingBeforeIt) {
  // The consumer waits for the first recording only; the second one, after slow work, does not affect it.
  const std::unique_ptr<Stream> consumer = new_stream();
  const Buffer words = allocate(slow_words * 4), digest = allocate(sizeof(Digest));
  EXPECT_OK(device().set_zero(words.data(), words.bytes(), stream()));
  bool seen_early = false;
  for (int attempt = 0; attempt < 10 && !seen_early; ++attempt) {
    const std::unique_ptr<Event> event = new_event(), end = new_event();
    EXPECT_OK(device().record(*event, stream()));
    EXPECT_OK(device().wait(*consumer, *event));
    for (int i = 0; i < 5; ++i) enqueue_slow_work(words, digest, stream());
    EXPECT_OK(device().record(*event, stream()));
    EXPECT_OK(device().record(*end, stream()));
    finish(*consumer);
    const Result<bool> done = device().done(*end);
    ASSERT_TRUE(done.ok());
    seen_early = !done.value();
    finish();
  }
  EXPECT_TRUE(seen_early);
}

TEST_P(DeviceContract, AnEventAndAStreamMayGoBeforeTheirWorkIsOver) {
  const Buffer words = allocate(slow_words * 4), digest = allocate(sizeof(Digest));
  EXPECT_OK(device().set_zero(words.data(), words.bytes(), stream()));
  finish();
  {
    const std::unique_ptr<Stream> other = new_stream(StreamPriority::background);
    const std::unique_ptr<Event> event = new_event();
    enqueue_slow_work(words, digest, *other);
    EXPECT_OK(device().fill({words.as<std::uint32_t>(), slow_words}, {PatternKind::random, 0, 60}, *other));
    EXPECT_OK(device().record(*event, *other));
    EXPECT_OK(device().wait(stream(), *event));
  }
  const Buffer report = allocate(sizeof(Mismatches));
  EXPECT_OK(device().reset(report.as<Mismatches>(), stream()));
  EXPECT_OK(device().verify({words.as<std::uint32_t>(), slow_words}, {PatternKind::random, 0, 60},
                            report.as<Mismatches>(), stream()));
  EXPECT_EQ(download_value<Mismatches>(report.data()).count, 0u);
}

/// Random exchange between streams, compared with the same exchange in sequence. Each step fills one stream's
/// block, or copies another stream's block after an event and lets that stream continue after another event.
TEST_P(DeviceContract, AnyExchangeThroughEventsHasTheOrderOfItsCalls) {
  constexpr std::size_t stream_count = 4, steps = 400;
  constexpr std::uint64_t block = 20011;
  std::unique_ptr<Stream> streams[] = {new_stream(StreamPriority::high), new_stream(), new_stream(),
                                       new_stream(StreamPriority::background)};
  const Buffer memory = allocate(stream_count * block * 4),
               report = allocate(stream_count * sizeof(Mismatches));
  std::vector<std::unique_ptr<Event>> events;
  std::vector<std::uint64_t> seeds(stream_count, 0);
  const auto words = [&](std::size_t s) { return WordsView{memory.as<std::uint32_t>() + s * block, block}; };
  const auto order = [&](std::size_t before, std::size_t after) {
    events.push_back(new_event());
    EXPECT_OK(device().record(*events.back(), *streams[before]));
    EXPECT_OK(device().wait(*streams[after], *events.back()));
  };
  for (std::size_t s = 0; s < stream_count; ++s)
    EXPECT_OK(device().fill(words(s), {PatternKind::random, 0, seeds[s]}, *streams[s]));
  reference::Engine engine(70);
  for (std::uint64_t step = 1; step <= steps; ++step) {
    const std::size_t to = engine() % stream_count, from = engine() % stream_count;
    if (to == from) {
      seeds[to] = step;
      EXPECT_OK(device().fill(words(to), {PatternKind::random, 0, step}, *streams[to]));
      continue;
    }
    seeds[to] = seeds[from];
    order(from, to);
    EXPECT_OK(device().copy(words(to).data, words(from).data, block * 4, *streams[to]));
    order(to, from);
  }
  for (std::size_t s = 0; s < stream_count; ++s) {
    EXPECT_OK(device().reset(report.as<Mismatches>() + s, *streams[s]));
    EXPECT_OK(device().verify(words(s), {PatternKind::random, 0, seeds[s]}, report.as<Mismatches>() + s,
                              *streams[s]));
  }
  for (const std::unique_ptr<Stream>& each : streams) finish(*each);
  for (std::size_t s = 0; s < stream_count; ++s)
    EXPECT_EQ(download_value<Mismatches>(report.as<Mismatches>() + s).count, 0u) << "stream " << s;
}

TEST_P(DeviceContract, ThreadsMayUseStreamsOfTheirOwnAtOnce) {
  constexpr std::size_t thread_count = 4;
  constexpr std::int64_t size = 96;
  reference::Matrix operand(ElementType::f32, size, size, size);
  reference::Engine engine(80);
  reference::fill_uniform(operand, engine);
  const DeviceMatrix a = upload(operand);
  const Buffer results = allocate(thread_count * size * size * 4),
               digests = allocate(thread_count * sizeof(Digest));
  std::vector<std::unique_ptr<Stream>> streams;
  for (std::size_t t = 0; t < thread_count; ++t) streams.push_back(new_stream());
  const auto work = [&](std::size_t t) {
    const MatrixView d(results.as<float>() + t * size * size, ElementType::f32, size, size);
    for (int round = 0; round < 50; ++round) {
      EXPECT_OK(device().gemm({Precision::fp32, a.view, a.view, d}, *streams[t]));
      EXPECT_OK(device().digest({static_cast<std::uint32_t*>(d.data), size * size}, digests.as<Digest>() + t,
                                *streams[t]));
    }
    finish(*streams[t]);
  };
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < thread_count; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  const std::vector<Digest> found = download_values<Digest>(digests.data(), thread_count);
  for (const Digest& digest : found) EXPECT_EQ(digest, found[0]);
}

}  // namespace egt::contract
