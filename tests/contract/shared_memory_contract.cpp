#include <atomic>
#include <numeric>
#include <optional>

#include "device/shared/shared_handle.hpp"
#include "device/shared/shared_pages.hpp"
#include "device_contract.hpp"
#include "egt/core/wait.hpp"

namespace egt::contract {
namespace {
constexpr double timeout_s = 30;
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
  of_the_dead.pid = 1 << 22;  // above the maximum pid of Linux
  const Status gone = device().open_shared(of_the_dead.text()).status();
  EXPECT_EQ(gone.code(), StatusCode::unavailable);
  EXPECT_NE(gone.what().find("no more"), std::string::npos) << gone.what();
}

/// Signals of a device in their own shared pages.
class Signals {
 public:
  explicit Signals(Device& device) {
    Result<SharedPages> made = SharedPages::create(64);
    EXPECT_TRUE(made.ok()) << made.status().what();
    pages_ = std::move(made.value());
    Result<Buffer> registered = device.register_signals(pages_->data(), pages_->bytes());
    EXPECT_TRUE(registered.ok()) << registered.status().what();
    if (registered.ok()) registered_ = std::move(registered.value());
  }
  std::uint32_t* at(std::size_t index) { return static_cast<std::uint32_t*>(pages_->data()) + index; }
  std::uint32_t value(std::size_t index) {
    return std::atomic_ref(*at(index)).load(std::memory_order_acquire);
  }

 private:
  std::optional<SharedPages> pages_;
  Buffer registered_;
};

TEST_P(DeviceContract, ASignalHoldsAStreamBackUntilItsNumberHasCome) {
  Signals signals(device());
  auto waiting = device().create_stream(StreamPriority::normal),
       other = device().create_stream(StreamPriority::normal);
  auto reached = device().create_event(EventUse::order);
  ASSERT_TRUE(waiting.ok() && other.ok() && reached.ok());
  const auto is_done = [&](double seconds) {
    return wait_until([&] { return device().done(*reached.value()); }, {.seconds = seconds}).ok();
  };
  EXPECT_OK(device().await_signal(signals.at(3), 7, *waiting.value()));
  EXPECT_OK(device().record(*reached.value(), *waiting.value()));
  EXPECT_FALSE(is_done(0.05));
  EXPECT_OK(device().write_signal(signals.at(3), 6, *other.value()));
  EXPECT_OK(device().synchronize(*other.value(), timeout_s));
  EXPECT_EQ(signals.value(3), 6u);
  EXPECT_FALSE(is_done(0.05)) << "an earlier number";
  EXPECT_OK(device().write_signal(signals.at(3), 9, *other.value()));
  EXPECT_TRUE(is_done(timeout_s)) << "a later number";
  std::atomic_ref(*signals.at(4)).store(2);  // counters that wrap around
  EXPECT_OK(device().await_signal(signals.at(4), 0xFFFFFFFE, *waiting.value()));
  EXPECT_OK(device().await_signal(signals.at(5), 1, *waiting.value()));
  EXPECT_OK(device().record(*reached.value(), *waiting.value()));
  EXPECT_FALSE(is_done(0.05));
  std::atomic_ref(*signals.at(5)).store(1);  // stored by a host
  EXPECT_TRUE(is_done(timeout_s));
}

TEST_P(DeviceContract, ASignalIsWrittenBehindTheStreamsEarlierWork) {
  Signals signals(device());
  constexpr std::size_t bytes = std::size_t{16} << 20;
  auto memory = device().allocate(bytes);
  auto stream = device().create_stream(StreamPriority::normal);
  auto worked = device().create_event(EventUse::order);
  ASSERT_TRUE(memory.ok() && stream.ok() && worked.ok());
  for (std::uint32_t round = 1; round <= 10; ++round) {
    for (int i = 0; i < 5; ++i) EXPECT_OK(device().set_zero(memory.value().data(), bytes, *stream.value()));
    EXPECT_OK(device().record(*worked.value(), *stream.value()));
    EXPECT_OK(device().write_signal(signals.at(0), round, *stream.value()));
    const auto has_come = [&] { return Result<bool>(signals.value(0) == round); };
    ASSERT_TRUE(wait_until(has_come, {.seconds = timeout_s}).ok());
    EXPECT_TRUE(device().done(*worked.value()).value());
  }
}

TEST_P(DeviceContract, SignalsAreInMemoryThatBeginsAPage) {
  Result<SharedPages> pages = SharedPages::create(64);
  ASSERT_TRUE(pages.ok());
  EXPECT_FAILS(invalid_argument, device().register_signals(nullptr, 64).status());
  EXPECT_FAILS(invalid_argument, device().register_signals(pages.value().data(), 0).status());
  EXPECT_FAILS(invalid_argument,
               device().register_signals(static_cast<std::byte*>(pages.value().data()) + 8, 8).status());
}

}  // namespace egt::contract
