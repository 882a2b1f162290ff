#include "command/run/run.hpp"

#include <fmt/format.h>

#include "report/console/console_style.hpp"

/// Routes a run's records to their sinks.
namespace egt {
namespace {

/// Writes to the journal and to another sink for this rank's records.
class Tee : public Sink {
 public:
  Tee(Sink& journal, Sink& other) : journal_(journal), other_(other) {}
  Status write(const Record& record) override {
    const Status written = journal_.write(record);
    EGT_TRY(other_.write(record));
    return written;
  }
  Status flush() override {
    EGT_TRY(other_.flush());
    return journal_.flush();
  }

 private:
  Sink& journal_;
  Sink& other_;
};

/// Passes the records that the purpose displays to the console.
class Shown : public Sink {
 public:
  Shown(Sink& console, const RunPurpose& purpose) : console_(console), purpose_(purpose) {}
  Status write(const Record& record) override {
    return purpose_.is_shown(record) ? console_.write(record) : Status();
  }
  Status flush() override { return console_.flush(); }

 private:
  Sink& console_;
  const RunPurpose& purpose_;
};

}  // namespace

Status Run::open_log() {
  if (!is_root() || options_.common.log_file.empty()) return {};
  EGT_TRY_ASSIGN(log_, LogFile::open(options_.common.log_file, options_.common.log_level));
  EGT_TRY_ASSIGN(log_sink_, QueuedSink::open("the log file", log_));
  return {};
}

void Run::open_route() {
  std::vector<Sink*> sinks;
  if (is_root()) sinks.push_back((shown_ = std::make_unique<Shown>(console_->sink(), purpose_)).get());
  if (is_root()) sinks.push_back(&time_lines_);
  std::vector<Record> earlier;
  if (is_root() && is_resumed())  // unreadable records are missing in the charts
    if (auto read = read_journals(directory_.path(), JournalContent::evidence, &time_lines_); read.ok())
      earlier = std::move(read.value().records);
  open_live_server(std::move(earlier));
  if (live_server_) sinks.push_back(&live_server_->records());
  if (log_sink_) sinks.push_back(log_sink_.get());
  if (is_root() && purpose_.compares_peers())
    sinks.push_back((straggler_detector_ = std::make_unique<StragglerDetector>(records_)).get());
  if (is_root() && purpose_.all_records()) sinks.push_back(purpose_.all_records());
  if (purpose_.own_records()) own_records_ = std::make_unique<Tee>(*journal_, *purpose_.own_records());
  Sink& own = own_records_ ? *own_records_ : *journal_;
  route_ = std::make_unique<RecordRouter>(control_, records_, own, board_.line("journal"), std::move(sinks));
}

/// A port in use does not prevent the burn-in.
void Run::open_live_server(std::vector<Record> earlier) {
  if (!is_root() || !options_.run.serve) return;
  auto server = LiveServer::open(*options_.run.serve,
                                 std::make_shared<LiveRun>(LiveRun::Settings{
                                     .directory = directory_.path(),
                                     .ranks = control_.place().size,
                                     .earlier = std::move(earlier),
                                     .lines = time_lines_,
                                     .main_thread = [this] { return board_.line("main").read(); },
                                     .patience_seconds = options_.run.watch.collective_timeout_seconds}));
  if (!server.ok()) {
    records_.warning(fmt::format("--serve {}: {}; the run continues without its page",
                                 options_.run.serve->text(), server.status().what()));
    return;
  }
  live_server_ = std::move(server.value());
  console_->show([url = live_server_->url()](Console& console) { console.on_live_page(url); });
}

/// Called on every rank, since any of them may have to report the end of the run.
Status Run::open_console() {
  ConsoleStyle style = detect_console_style(options_.common.progress);
  style.messages = options_.common.log_level;
  EGT_TRY_ASSIGN(console_, QueuedConsole::open(style));
  return {};
}

void Run::show_devices(const std::vector<std::string>& cards) {
  std::vector<Json> starts, filled;
  for (const std::string& card : cards) filled.push_back(Json::parse(card));
  for (const Json& card : filled) starts.push_back(card.at("start"));
  console_->show([starts, filled](Console& console) {
    console.on_start(starts);
    for (std::size_t rank = 0; rank < filled.size(); ++rank)
      console.on_memory_filled(static_cast<int>(rank), filled[rank].at("used"), filled[rank].at("total"));
  });
}

}  // namespace egt
