#include "session/journal_gathering.hpp"

#include <gmock/gmock.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <thread>

namespace egt {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

constexpr int rank_count = 3;

/// Exchanges texts between ranks that are threads.
class Exchange {
 public:
  void put(const std::string& box, std::string text) {
    const std::lock_guard lock(mutex_);
    boxes_[box].push_back(std::move(text));
    came_.notify_all();
  }
  std::optional<std::string> take(const std::string& box, double seconds) {
    std::unique_lock lock(mutex_);
    auto& texts = boxes_[box];
    if (!came_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return !texts.empty(); }))
      return std::nullopt;
    std::string text = std::move(texts.front());
    texts.pop_front();
    return text;
  }

 private:
  std::mutex mutex_;
  std::condition_variable came_;
  std::map<std::string, std::deque<std::string>> boxes_;
};

class ThreadControl : public Control {
 public:
  ThreadControl(Exchange& exchange, int rank)
      : exchange_(exchange),
        place_{.rank = rank,
               .size = rank_count,
               .local_rank = 0,
               .local_size = 1,
               .hostname = rank == 0 ? "node1" : "node2"} {}
  const RankPlace& place() const override { return place_; }
  Result<std::vector<std::string>> gather(const std::string& text) override {
    std::vector<std::string> texts;
    if (place_.rank > 0) exchange_.put("gather" + std::to_string(place_.rank), text);
    for (int rank = 0; place_.rank == 0 && rank < rank_count; ++rank)
      texts.push_back(rank == 0 ? text : exchange_.take("gather" + std::to_string(rank), 10).value());
    return texts;
  }
  Result<std::string> broadcast(const std::string& text) override {
    for (int rank = 1; place_.rank == 0 && rank < rank_count; ++rank)
      exchange_.put("down" + std::to_string(rank), text);
    if (place_.rank == 0) return text;
    std::string got = exchange_.take("down" + std::to_string(place_.rank), 10).value();
    if (on_request) on_request(got);
    return got;
  }
  Status barrier() override { return {StatusCode::unsupported, "not in this test"}; }
  Status send_to_root(std::string text) override {
    if (!is_mute) exchange_.put("up", std::move(text));
    return {};
  }
  Result<std::optional<std::string>> receive() override { return exchange_.take("up", 0); }

  std::function<void(const std::string&)> on_request;
  bool is_mute = false;

 private:
  Exchange& exchange_;
  RankPlace place_;
};

/// Ranks 0 and 1 share the folder `here`; rank 2 has the folder `there`.
class JournalGathering : public testing::Test {
 protected:
  JournalGathering() {
    std::string name = fs::temp_directory_path() / "egt_gathering_XXXXXX";
    folder = mkdtemp(name.data());
    fs::create_directories(here());
    fs::create_directories(there());
    for (int rank = 0; rank < rank_count; ++rank)
      controls.push_back(std::make_unique<ThreadControl>(exchange, rank));
  }
  ~JournalGathering() override { fs::remove_all(folder); }

  fs::path here() const { return folder / "here"; }
  fs::path there() const { return folder / "there"; }
  static void write(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }
  static std::string read(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  static std::vector<std::string> names(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }

  std::vector<std::string> gather() {
    std::vector<std::string> missing;
    std::vector<std::jthread> ranks;
    for (int rank = 0; rank < rank_count; ++rank)
      ranks.emplace_back([&, rank] {
        ThreadControl& control = *controls[static_cast<std::size_t>(rank)];
        const std::string directory = rank == 2 ? there() : here();
        const auto found = find_run_directories(control, directory);
        ASSERT_TRUE(found.ok()) << found.status().what();
        const GatheringSetup setup{.control = control,
                                   .directory = directory,
                                   .directories = found.value(),
                                   .answer_seconds = answer_seconds,
                                   .total_seconds = [this] { return total_seconds; },
                                   .begin_request = [] {}};
        if (before_gathering && rank == 0) before_gathering();
        if (rank == 0)
          missing = gather_journals(setup);
        else
          EXPECT_EQ(offer_journals(setup).what(), "");
      });
    ranks.clear();
    return missing;
  }
  std::string reported(const std::string& why) const {
    return "the journal of rank 2 is in node2:" + there().string() + " and not here: " + why;
  }

  fs::path folder;
  Exchange exchange;
  std::vector<std::unique_ptr<ThreadControl>> controls;
  double answer_seconds = 10, total_seconds = 10;
  std::function<void()> before_gathering;
};

TEST_F(JournalGathering, BringsAFileOfAnyLengthFromElsewhere) {
  constexpr std::size_t chunk = 1 << 20;
  for (const std::size_t length : {std::size_t{0}, chunk - 1, chunk, 3 * chunk + 100}) {
    const std::string content(length, 'x');
    write(here() / "journal.rank1.jsonl", "rank 1\n");
    write(there() / "journal.rank1.jsonl", "of another run\n");
    write(there() / "journal.rank2.jsonl", content);
    fs::remove(here() / "journal.rank2.jsonl");
    EXPECT_THAT(gather(), IsEmpty());
    EXPECT_THAT(names(here()), ElementsAre("journal.rank1.jsonl", "journal.rank2.jsonl"));
    EXPECT_EQ(read(here() / "journal.rank1.jsonl"), "rank 1\n");
    EXPECT_TRUE(read(here() / "journal.rank2.jsonl") == content) << length;
    EXPECT_THAT(names(there()), ElementsAre("journal.rank1.jsonl", "journal.rank2.jsonl"));
  }
}

TEST_F(JournalGathering, LetsAFileGrowButNotChange) {
  write(here() / "journal.rank2.jsonl", "one\n");
  write(there() / "journal.rank2.jsonl", "one\ntwo\n");
  EXPECT_THAT(gather(), IsEmpty());
  EXPECT_EQ(read(here() / "journal.rank2.jsonl"), "one\ntwo\n");
  write(there() / "journal.rank2.jsonl", "one\n");
  EXPECT_THAT(gather(), IsEmpty());
  EXPECT_EQ(read(here() / "journal.rank2.jsonl"), "one\ntwo\n");
  write(there() / "journal.rank2.jsonl", "one\nanother\n");
  EXPECT_THAT(gather(), ElementsAre(reported((here() / "journal.rank2.jsonl").string() +
                                             ": is there already, with other content")));
  EXPECT_EQ(read(here() / "journal.rank2.jsonl"), "one\ntwo\n");
  EXPECT_THAT(names(here()), ElementsAre("journal.rank2.jsonl"));
}

TEST_F(JournalGathering, TellsWhatDidNotCome) {
  EXPECT_THAT(
      gather(),
      ElementsAre(StartsWith(reported((there() / "journal.rank2.jsonl").string() + ": cannot be read"))));
  write(there() / "journal.rank2.jsonl", "two\n");
  total_seconds = 0;
  EXPECT_THAT(gather(), ElementsAre(reported("there was no time left for it")));
  total_seconds = 10;
  before_gathering = [this] { fs::remove_all(here()); };
  EXPECT_THAT(gather(), ElementsAre(StartsWith(reported((here() / "journal.rank2.jsonl").string()))));
  fs::create_directories(here());
  before_gathering = nullptr;
  answer_seconds = 0.05;
  controls[2]->on_request = [this](const std::string& request) {
    controls[2]->is_mute = request.starts_with("2 0");
  };
  EXPECT_THAT(gather(), ElementsAre(HasSubstr(" did not end within 0.05 s")));
  EXPECT_THAT(names(here()), IsEmpty());
}

TEST_F(JournalGathering, TellsWhatIsElsewhereForTheRankThatTells) {
  const std::vector<std::string> places{"node1:/tmp/run", "node2:/tmp/run", "node1:/tmp/run"};
  EXPECT_THAT(report_journals_elsewhere(places, 0, "why"),
              ElementsAre("the journal of rank 1 is in node2:/tmp/run and not here: why"));
  EXPECT_THAT(report_journals_elsewhere(places, 1, "why"),
              ElementsAre("the journals of ranks 0, 2 are in node1:/tmp/run and not here: why"));
}

}  // namespace
}  // namespace egt
