#include "egt/ranks/agreement.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace egt {
namespace {

/// Rank 1 of 2, to which rank 0 broadcasts this text.
class Listener final : public Control {
 public:
  explicit Listener(std::string text) : text_(std::move(text)) { place_.rank = 1, place_.size = 2; }

  const RankPlace& place() const override { return place_; }
  Result<std::vector<std::string>> gather(const std::string&) override { return std::vector<std::string>(); }
  Result<std::string> broadcast(const std::string&) override { return text_; }
  Status barrier() override { return {}; }
  Status send_to_root(std::string) override { return {}; }
  Result<std::optional<std::string>> receive() override { return std::optional<std::string>(); }

 private:
  RankPlace place_;
  std::string text_;
};

Status agreed(const std::string& text) {
  Listener control(text);
  return agree(control, {});
}

TEST(Agreement, IsOkOnlyIfAllRanksAre) {
  EXPECT_TRUE(agreed("0:0:").ok());
  const Status other = agreed("0:7:2 gone!");
  EXPECT_EQ(other.code(), StatusCode::unavailable);
  EXPECT_EQ(other.what(), "rank 1: gone!");
}

TEST(Agreement, ADamagedTextIsAnError) {
  for (const char* text : {"", "0:", "0:8:        ", "0:3:0 x", "0:4:99 x", "0:1:x", "0:0:0:", "no number"})
    EXPECT_NE(agreed(text).code(), StatusCode::ok) << text;  // which would be exit code 0
}

}  // namespace
}  // namespace egt
