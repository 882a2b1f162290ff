#pragma once

#include <memory>
#include <string>

#include "report/queued_sink.hpp"
#include "report/serve/live_run.hpp"
#include "report/serve/serve_address.hpp"

namespace egt {

/// Why this build cannot serve a page, with the package that it lacks; ok: it can.
Status check_live_server();

/// Serves a run's page to browsers and its figures to monitors, on threads of low priority. It is read-only
/// and bounded, whatever clients do: so many at once, so long and so many bytes each. No caller waits for
/// one.
class LiveServer {
 public:
  /// Listens. `unavailable`: the port is taken, or there are no threads; unsupported: see check_live_server.
  static Result<std::unique_ptr<LiveServer>> open(const ServeAddress& address, std::shared_ptr<LiveRun> run);
  /// Closes, and waits a second at most; a thread that does not end then is left behind, with all it uses.
  ~LiveServer();
  LiveServer(const LiveServer&) = delete;
  LiveServer& operator=(const LiveServer&) = delete;

  /// Takes all ranks' records, and keeps nobody waiting.
  Sink& records() { return *records_; }
  /// "http://127.0.0.1:8080/", with the port that the system chose.
  const std::string& url() const { return url_; }
  /// From here on nobody is answered, and the port is closed within a moment. Does not wait.
  void close();

 private:
  struct State;
  LiveServer(std::shared_ptr<State> state, std::unique_ptr<QueuedSink> records, std::string url)
      : state_(std::move(state)), records_(std::move(records)), url_(std::move(url)) {}

  const std::shared_ptr<State> state_;  ///< shared with its threads
  const std::unique_ptr<QueuedSink> records_;
  const std::string url_;
};

}  // namespace egt
