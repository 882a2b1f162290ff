#include "egt/core/process_limits.hpp"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <system_error>
#include <utility>

namespace egt {
namespace {

TEST(NoThread, HasEveryLimitThatAThreadNeeds) {
  for (const auto& [which, option] :
       {std::pair(RLIMIT_NPROC, "-u "), std::pair(RLIMIT_AS, "-v "), std::pair(RLIMIT_DATA, "-d ")}) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(which, &before), 0);
    // Finite, but above the 2^44 bytes that AddressSanitizer maps: below that, an allocation could end the
    // process.
    const rlimit large{.rlim_cur = std::min(rlim_t{1} << 47, before.rlim_max), .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(which, &large), 0);
    const Status refused = no_thread("the test", std::system_error(EAGAIN, std::generic_category()));
    ASSERT_EQ(::setrlimit(which, &before), 0);
    EXPECT_EQ(refused.code(), StatusCode::unavailable);
    EXPECT_THAT(refused.what(), testing::HasSubstr(std::string("ulimit ") + option));
  }
}

}  // namespace
}  // namespace egt
