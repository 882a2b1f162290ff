#include <numeric>

#include "device/shared/shared_handle.hpp"
#include "device_contract.hpp"

namespace egt::contract {
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

}  // namespace egt::contract
