#pragma once

#include <memory>
#include <string>

#include "report/queued_sink.hpp"
#include "report/serve/live_run.hpp"
#include "report/serve/serve_address.hpp"

namespace egt {

/// Checks whether this build can serve a page. An error contains the missing package.
Status check_live_server();

/// Serves a run's page to browsers and its metrics to monitors, on low-priority threads. It is read-only and
/// bounded: the number of connections, their duration and their bytes are limited. No caller waits for a
/// client.
class LiveServer {
 public:
  /// Listens. unavailable: the port is in use or no thread can start; unsupported: see check_live_server.
  static Result<std::unique_ptr<LiveServer>> open(const ServeAddress& address, std::shared_ptr<LiveRun> run);
  /// Closes, waiting at most one second. A thread that does not end by then is abandoned, with all it uses.
  ~LiveServer();
  LiveServer(const LiveServer&) = delete;
  LiveServer& operator=(const LiveServer&) = delete;

  /// Accepts all ranks' records without blocking the caller.
  Sink& records() { return *records_; }
  /// "http://127.0.0.1:8080/", with the port that the system chose.
  const std::string& url() const { return url_; }
  /// The run has ended with this `result`. Clients that asked for the end get it. Does not wait.
  void finish(Json result);
  /// Stops answering, and closes the port shortly after. Waits half a second at most, for the answers of the
  /// end.
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
