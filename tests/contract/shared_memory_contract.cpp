#include <chrono>
#include <numeric>
#include <thread>

#include "device/shared/shared_handle.hpp"
#include "device_contract.hpp"
#include "egt/core/clock.hpp"

namespace egt::contract {
namespace {

constexpr double short_seconds = 0.2, long_seconds = 50;

constexpr std::size_t flag_count = 80;  // more than one kernel takes

/// Zeroed flags in shared memory, and a gate.
class Flags {
 public:
  explicit Flags(Device& device, Stream& stream) : device_(device) {
    Result<SharedBuffer> memory = device.allocate_shared(flag_count * sizeof(std::uint32_t));
    EXPECT_TRUE(memory.ok()) << memory.status().what();
    if (memory.ok()) memory_ = std::move(memory.value());
    Result<std::shared_ptr<FlagGate>> made = FlagGate::make(device);
    EXPECT_TRUE(made.ok()) << made.status().what();
    if (made.ok()) gate = made.value();
    EXPECT_OK(device.set_zero(memory_.buffer.data(), memory_.buffer.bytes(), stream));
    EXPECT_OK(device.synchronize(stream, long_seconds));
  }

  Flag at(std::size_t i, std::uint32_t value) const {
    return {memory_.buffer.as<std::uint32_t>() + i, value};
  }
  Status signal(const Flag& flag, Stream& on) { return device_.signal({&flag, 1}, gate, on); }
  Status await(const Flag& flag, double seconds, Stream& on) {
    return device_.await({&flag, 1}, seconds, gate, on);
  }

  std::shared_ptr<FlagGate> gate;

 private:
  Device& device_;
  SharedBuffer memory_;
};

bool is_done(Device& device, const Event& event) {
  const Result<bool> done = device.done(event);
  return !done.ok() || done.value();
}

}  // namespace

TEST_P(DeviceContract, SharedMemoryIsMemoryThatItsHandleOpens) {
  constexpr std::size_t bytes = 3'000'001;
  Result<SharedBuffer> shared = device().allocate_shared(bytes);
  ASSERT_TRUE(shared.ok()) << shared.status().what();
  EXPECT_EQ(shared.value().buffer.bytes(), bytes);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(shared.value().buffer.data()) % 256, 0u);
  for (const char c : shared.value().handle) EXPECT_TRUE(c > ' ' && c <= '~') << shared.value().handle;
  std::vector<unsigned char> values(bytes);
  std::iota(values.begin(), values.end(), static_cast<unsigned char>(3));
  Result<Buffer> opened = device().open_shared(shared.value().handle);
  ASSERT_TRUE(opened.ok()) << opened.status().what();
  EXPECT_EQ(opened.value().bytes(), bytes);
  upload_bytes(opened.value().data(), values.data(), bytes);
  EXPECT_TRUE(download_values<unsigned char>(shared.value().buffer.data(), bytes) == values);
}

TEST_P(DeviceContract, SharedMemoryIsAccountedForAndGivenBack) {
  constexpr std::size_t bytes = std::size_t{64} << 20;
  const auto free_bytes = [&] {
    const Result<MemoryInfo> memory = device().memory();
    return memory.ok() ? memory.value().free_bytes : 0;
  };
  const std::uint64_t before = free_bytes();
  {
    Result<SharedBuffer> shared = device().allocate_shared(bytes);
    ASSERT_TRUE(shared.ok()) << shared.status().what();
    EXPECT_LE(free_bytes(), before - bytes / 2);
  }
  EXPECT_GE(free_bytes(), before - bytes / 2);
  EXPECT_FAILS(invalid_argument, device().allocate_shared(0).status());
  EXPECT_FAILS(out_of_memory, device().allocate_shared(std::size_t{1} << 50).status());
}

TEST_P(DeviceContract, AHandleThatNamesNothingHereIsRefusedWithTheReason) {
  std::string released;
  {
    Result<SharedBuffer> shared = device().allocate_shared(4096);
    ASSERT_TRUE(shared.ok()) << shared.status().what();
    released = shared.value().handle;
  }
  EXPECT_FAILS(unavailable, device().open_shared(released).status());
  for (const char* text : {"", "egt1", "7", "egt1/////////"})
    EXPECT_FAILS(invalid_argument, device().open_shared(text).status());
  const Result<SharedHandle> parsed = SharedHandle::parse(released);
  ASSERT_TRUE(parsed.ok()) << parsed.status().what();
  SharedHandle elsewhere = parsed.value();
  elsewhere.host = "another";
  const Status refused = device().open_shared(elsewhere.text()).status();
  EXPECT_EQ(refused.code(), StatusCode::unavailable);
  EXPECT_NE(refused.what().find("another host"), std::string::npos) << refused.what();
  SharedHandle of_the_dead = parsed.value();
  of_the_dead.pid = 1 << 22;  // above the most that Linux gives out
  const Status gone = device().open_shared(of_the_dead.text()).status();
  EXPECT_EQ(gone.code(), StatusCode::unavailable);
  EXPECT_NE(gone.what().find("no more"), std::string::npos) << gone.what();
}

TEST_P(DeviceContract, AStreamGoesOnWhenAnotherOneHasSignalledAndSeesItsWork) {
  Flags flags(device(), stream());
  const Buffer words = allocate(slow_words * 4), digest = allocate(sizeof(Digest));
  const Buffer source = upload_values(std::vector<int>(1000, 7)), passed = allocate(4000),
               result = allocate(4000);
  EXPECT_OK(device().set_zero(words.data(), words.bytes(), stream()));
  EXPECT_OK(device().set_zero(passed.data(), 4000, stream()));
  enqueue_slow_work(words, digest, stream());  // a GPU may load no kernel while another one waits
  finish();
  const std::unique_ptr<Stream> other = new_stream();
  const std::unique_ptr<Event> event = new_event();
  EXPECT_OK(flags.await(flags.at(1, 5), long_seconds, *other));
  EXPECT_OK(device().copy(result.data(), passed.data(), 4000, *other));
  EXPECT_OK(device().record(*event, *other));
  EXPECT_OK(flags.signal(flags.at(1, 4), stream()));
  finish();
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_FALSE(is_done(device(), *event)) << "the flag had an earlier value";
  enqueue_slow_work(words, digest, stream());
  EXPECT_OK(device().copy(passed.data(), source.data(), 4000, stream()));
  EXPECT_OK(flags.signal(flags.at(1, 6), stream()));
  finish(*other);
  EXPECT_EQ(download_values<int>(result.data(), 1000), std::vector<int>(1000, 7));
  finish();
  EXPECT_EQ(download_value<std::uint32_t>(flags.at(1, 0).word), 6u);
}

TEST_P(DeviceContract, ManyFlagsAreWrittenAndAwaitedAtOnce) {
  Flags flags(device(), stream());
  std::vector<Flag> all;
  std::vector<std::uint32_t> expected;
  for (std::size_t i = 0; i < flag_count; ++i) {
    expected.push_back(static_cast<std::uint32_t>(100 + i));
    all.push_back(flags.at(i, expected.back()));
  }
  const std::unique_ptr<Stream> other = new_stream();
  const std::unique_ptr<Event> event = new_event();
  EXPECT_OK(device().await(all, long_seconds, flags.gate, *other));
  EXPECT_OK(device().record(*event, *other));
  std::vector<Flag> most = all;
  most.erase(most.begin() + flag_count / 2);
  EXPECT_OK(device().signal(most, flags.gate, stream()));
  finish();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(is_done(device(), *event)) << "one flag was not written";
  EXPECT_OK(flags.signal(all[flag_count / 2], stream()));
  finish(*other);
  EXPECT_EQ(download_values<std::uint32_t>(flags.at(0, 0).word, flag_count), expected);
}

TEST_P(DeviceContract, FlagsCountOnOverTheirEnd) {
  Flags flags(device(), stream());
  EXPECT_OK(flags.await(flags.at(0, 0), short_seconds, stream()));
  EXPECT_OK(flags.await(flags.at(0, 0xFFFFFFFEu), short_seconds, stream()));  // two before 0
  EXPECT_OK(flags.signal(flags.at(0, 0xFFFFFFFFu), stream()));
  EXPECT_OK(flags.await(flags.at(0, 0xFFFFFFFFu), short_seconds, stream()));
  finish();
  const std::unique_ptr<Stream> other = new_stream();
  const std::unique_ptr<Event> event = new_event();
  EXPECT_OK(flags.await(flags.at(0, 1), long_seconds, *other));
  EXPECT_OK(device().record(*event, *other));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(is_done(device(), *event)) << "1 comes after 2^32 - 1";
  EXPECT_OK(flags.signal(flags.at(0, 2), stream()));
  finish(*other);
}

TEST_P(DeviceContract, AWaitThatOutlastsItsDeadlineFailsItsStreamAndThoseBehindIt) {
  Flags flags(device(), stream());
  const std::unique_ptr<Stream> behind = new_stream(), apart = new_stream();
  const std::unique_ptr<Event> event = new_event();
  const Clock::time_point start = Clock::now();
  EXPECT_OK(flags.await(flags.at(0, 1), short_seconds, stream()));
  EXPECT_OK(flags.await(flags.at(0, 2), long_seconds, stream()));
  EXPECT_OK(flags.signal(flags.at(1, 9), stream()));
  EXPECT_OK(device().record(*event, stream()));
  EXPECT_OK(device().wait(*behind, *event));
  EXPECT_FAILS(timeout, device().synchronize(*behind, patience_seconds));
  EXPECT_FAILS(timeout, device().done(*event).status());
  EXPECT_FAILS(timeout, device().synchronize(stream(), patience_seconds));
  EXPECT_GE(seconds_since(start), short_seconds * 0.9);
  EXPECT_LT(seconds_since(start), long_seconds / 2);
  EXPECT_FAILS(timeout, flags.gate->status());
  finish(*apart);
  EXPECT_OK(device().forget_failure(stream(), patience_seconds));
  EXPECT_EQ(download_value<std::uint32_t>(flags.at(1, 0).word), 0u) << "a failed stream told of its work";
}

TEST_P(DeviceContract, AGateThatIsShutEndsAllWaitsUnderItAndNoOthers) {
  Flags flags(device(), stream());
  Result<std::shared_ptr<FlagGate>> another = FlagGate::make(device());
  ASSERT_TRUE(another.ok()) << another.status().what();
  const std::unique_ptr<Stream> second = new_stream(), of_another = new_stream();
  EXPECT_OK(flags.await(flags.at(0, 1), long_seconds, stream()));
  EXPECT_OK(flags.await(flags.at(0, 2), long_seconds, stream()));
  EXPECT_OK(flags.await(flags.at(1, 1), long_seconds, *second));
  const std::unique_ptr<Event> event = new_event();
  const Flag waited = flags.at(2, 1);
  EXPECT_OK(device().await({&waited, 1}, long_seconds, another.value(), *of_another));
  EXPECT_OK(device().record(*event, *of_another));
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const Clock::time_point start = Clock::now();
  std::thread([&] { flags.gate->give_up(); }).join();
  EXPECT_FAILS(aborted, device().synchronize(stream(), patience_seconds));
  EXPECT_FAILS(aborted, device().synchronize(*second, patience_seconds));
  EXPECT_LT(seconds_since(start), 2.0);
  EXPECT_FALSE(is_done(device(), *event)) << "its gate is open";
  EXPECT_OK(device().forget_failure(stream(), patience_seconds));
  EXPECT_OK(device().signal({&waited, 1}, another.value(), stream()));
  finish(*of_another);
  finish();
}

TEST_P(DeviceContract, FlagsWithoutMemoryTimeOrGateAreRefused) {
  Flags flags(device(), stream());
  EXPECT_FAILS(invalid_argument, flags.signal({nullptr, 1}, stream()));
  EXPECT_FAILS(invalid_argument, flags.await({nullptr, 1}, 1, stream()));
  EXPECT_FAILS(invalid_argument, flags.await(flags.at(0, 0), 0, stream()));
  const Flag flag = flags.at(0, 3);
  EXPECT_FAILS(invalid_argument, device().await({&flag, 1}, 1, nullptr, stream()));
  EXPECT_OK(device().signal({&flag, 1}, nullptr, stream()));
  EXPECT_OK(device().signal({}, flags.gate, stream()));
  finish();
  EXPECT_EQ(download_value<std::uint32_t>(flag.word), 3u);
}

}  // namespace egt::contract
