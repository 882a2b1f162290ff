#include "report/serve/live_server.hpp"

#if EGT_WITH_HTTPLIB

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <httplib.h>

#include "egt/core/clock.hpp"
#include "egt/core/file_io.hpp"
#include "egt/core/process_limits.hpp"

namespace egt {
namespace {

constexpr int workers = 8;                 // threads that answer concurrently, without the one for /healthz
constexpr std::size_t max_waiting = 64;    // queued requests; further ones are closed at once
constexpr std::size_t max_arriving = 64;   // incomplete requests; more close the oldest
constexpr std::size_t max_request = 8192;  // bytes, including headers
constexpr int send_buffer = 64 << 10;      // kernel send buffer in bytes per connection
constexpr double request_s = 3;            // max time to receive a request
constexpr double answer_s = 10;            // max time from the start until its answer is sent
constexpr double end_patience_s = 1;
constexpr double last_answers_s = 0.5;  // max time to send the result to the clients that asked for it
constexpr int busy_pause_ms = 50;       // if no file descriptor is available
constexpr int low_priority = 19;        // the lowest, so that the computation has precedence

constexpr const char* policy =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
constexpr const char* paths =
    "there are: / /api/page /api/result /api/end /api/lines?from=N&seconds=S /api/journal?from=N&rank=R "
    "/metrics /healthz\n";

/// Constant-time comparison: it does not depend on the position of the first difference.
bool is_same_secret(std::string_view given, std::string_view secret) {
  unsigned different = given.size() == secret.size() ? 0 : 1;
  for (std::size_t at = 0; at < given.size(); ++at)
    different |=
        static_cast<unsigned char>(given[at]) ^ static_cast<unsigned char>(secret[at % secret.size()]);
  return different == 0;
}

/// A nonnegative integer parameter; empty if invalid. Absent: 0.
template <typename T>
std::optional<T> number_in(const httplib::Request& request, const char* name) {
  const std::string text = request.has_param(name) ? request.get_param_value(name) : "0";
  T value{};
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool is_number = error == std::errc() && stop == text.data() + text.size() && value >= 0;
  return is_number ? std::optional(value) : std::nullopt;
}

/// A client's connection with limits on time and received bytes. The library has no such limits: its timeouts
/// restart with each byte, lines may have any length, and connections are never closed in favor of others.
/// The request is complete before the library reads it.
class Connection : public httplib::Stream {
 public:
  /// `stop` becomes readable at shutdown.
  Connection(Descriptor file, int stop) : file_(std::move(file)), stop_(stop) {}

  int file() const { return file_.get(); }
  /// Receives the available bytes without waiting.
  void take_in() {
    const ssize_t got = ::recv(file(), buffer_.data() + total_, buffer_.size() - total_, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (got <= 0)
      is_ended_ = true;
    else
      total_ += static_cast<std::size_t>(got);
  }
  /// Whether the request is received up to the blank line, or the client sends no more.
  bool is_ready() const {
    return is_ended_ || total_ == buffer_.size() || received().find("\r\n\r\n") != std::string_view::npos;
  }
  bool asks_for(std::string_view path) const {
    const std::size_t space = received().find(' ');
    return space != std::string_view::npos && received().substr(space + 1).starts_with(path);
  }
  /// The time limit of the answer starts again, since the request waited.
  void restart() { began_ = Clock::now(); }
  double seconds_left(double seconds) const { return seconds - seconds_since(began_); }

  ssize_t read(char* text, std::size_t size) override {
    const std::size_t taken = std::min(size, total_ - at_);
    std::copy_n(buffer_.begin() + static_cast<std::ptrdiff_t>(at_), taken, text);
    at_ += taken;
    return static_cast<ssize_t>(taken);
  }
  ssize_t write(const char* text, std::size_t size) override {
    while (waits_to_send()) {
      const ssize_t sent = ::send(file(), text, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent >= 0) return sent;
      if (errno != EAGAIN && errno != EINTR) break;
    }
    return -1;
  }
  // Older and newer versions of the library require different members of the following.
  bool is_readable() const override { return true; }
  bool is_writable() const { return true; }
  bool wait_readable() const { return true; }
  bool wait_writable() const { return true; }
  time_t duration() const { return 0; }
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  socket_t socket() const override { return 0; }  // the library compares it with select's limit

 private:
  std::string_view received() const { return {buffer_.data(), total_}; }
  bool waits_to_send() const {
    const double left = seconds_left(answer_s);
    if (left <= 0) return false;
    std::array<pollfd, 2> files = {{{file(), POLLOUT, 0}, {stop_, POLLIN, 0}}};
    const int ready = ::poll(files.data(), files.size(), static_cast<int>(left * 1e3) + 1);
    return ready > 0 && files[1].revents == 0;
  }

  const Descriptor file_;
  const int stop_;
  Clock::time_point began_ = Clock::now();
  std::array<char, max_request> buffer_;
  std::size_t at_ = 0, total_ = 0;  ///< bytes read by the library; bytes received
  bool is_ended_ = false;           ///< the client sends no more
};
using Connections = std::deque<std::unique_ptr<Connection>>;

/// Uses the library for one request per connection: parsing the request and writing the answer.
class Answers : public httplib::Server {
 public:
  Answers(std::shared_ptr<LiveRun> run, ServeAddress address, std::string token)
      : run_(std::move(run)), address_(std::move(address)), token_(std::move(token)) {
    svr_sock_ = 0;  // the library writes only if this is not INVALID_SOCKET
    set_default_headers({{"Content-Security-Policy", policy},
                         {"X-Content-Type-Options", "nosniff"},
                         {"Referrer-Policy", "no-referrer"},
                         {"Cache-Control", "no-store"}});
    set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      answer(request, response);
      return HandlerResponse::Handled;
    });
  }

  /// A template, since only one of the calls compiles with the installed library. Newer versions of the
  /// library also require both endpoint addresses, which are unused here.
  void serve(auto& connection) {
    bool is_closed = false;
    const auto limit = [](httplib::Request& request) {
      request.ranges.clear();                    // a client may request thousands
      request.headers.erase("Accept-Encoding");  // compression would cost CPU time
    };
    if constexpr (requires { process_request(connection, true, is_closed, limit); })
      process_request(connection, true, is_closed, limit);
    else
      process_request(connection, "", 0, "", 0, true, is_closed, limit);
  }

 private:
  void answer(const httplib::Request& request, httplib::Response& response) const {
    if (request.method != "GET" && request.method != "HEAD") {
      response.set_header("Allow", "GET, HEAD");
      return refuse(response, 405, "only GET and HEAD are answered\n");
    }
    if (!is_host(request.get_header_value("Host")))
      return refuse(response, 403, "this host has no such name: ask by the address that it serves at\n");
    if (!may_ask(request)) {
      response.set_header("WWW-Authenticate", "Bearer");
      return refuse(response, 401,
                    "the token of EGT_SERVE_TOKEN is needed: ?token=TOKEN, or a header "
                    "\"Authorization: Bearer TOKEN\"\n");
    }
    route(request, response);
  }

  void route(const httplib::Request& request, httplib::Response& response) const {
    const std::string& path = request.path;
    constexpr const char *html = "text/html; charset=utf-8", *json = "application/json";
    if (path == "/") return give(response, run_->text(LiveRun::page), html);
    if (path == "/api/page" || path == "/api/end") return give(response, run_->text(LiveRun::data), json);
    if (path == "/api/result") return give(response, run_->text(LiveRun::result), json);
    if (path == "/metrics")
      return give(response, run_->text(LiveRun::metrics), "text/plain; version=0.0.4; charset=utf-8");
    if (path == "/healthz") {
      const std::string trouble = run_->trouble();
      return trouble.empty() ? give(response, "ok\n") : refuse(response, 503, trouble + "\n");
    }
    const auto from = number_in<std::int64_t>(request, "from");
    if (path == "/api/lines") {
      const auto seconds = number_in<double>(request, "seconds");
      if (!from || !seconds) return refuse(response, 400, "from, seconds: use numbers of 0 or more\n");
      return give(response, run_->lines(static_cast<std::size_t>(*from), *seconds), json);
    }
    if (path != "/api/journal") return refuse(response, 404, paths);
    const auto rank = number_in<int>(request, "rank");
    if (!from || !rank) return refuse(response, 400, "from, rank: use whole numbers of 0 or more\n");
    const auto journal = run_->journal(*rank, *from);
    if (journal.ok()) return give(response, journal.value(), json);
    refuse(response, journal.status().code() == StatusCode::unavailable ? 404 : 400,
           journal.status().what() + "\n");
  }

  /// All clients share one copy.
  static void give(httplib::Response& response, LiveRun::Text text, const char* type) {
    response.set_content_provider(text->size(), type,
                                  [text](std::size_t at, std::size_t length, httplib::DataSink& sink) {
                                    return sink.write(text->data() + at, length);
                                  });
  }
  static void give(httplib::Response& response, std::string text,
                   const char* type = "text/plain; charset=utf-8") {
    give(response, std::make_shared<const std::string>(std::move(text)), type);
  }
  static void refuse(httplib::Response& response, int status, std::string why) {
    response.status = status;
    give(response, std::move(why));
  }

  /// Rejects DNS rebinding: a page of another site would send its own hostname.
  bool is_host(std::string host) const {
    if (!address_.is_loopback()) return true;  // protected by the token
    const std::size_t colon = host.rfind(':');
    if (colon != std::string::npos && host.find(']', colon) == std::string::npos) host.resize(colon);
    return host == "localhost" || host == "127.0.0.1" || host == "[::1]" || host == address_.address;
  }
  bool may_ask(const httplib::Request& request) const {
    constexpr std::string_view scheme = "Bearer ";
    if (token_.empty()) return true;
    const std::string header = request.get_header_value("Authorization");
    return is_same_secret(request.get_param_value("token"), token_) ||
           (header.starts_with(scheme) &&
            is_same_secret(std::string_view(header).substr(scheme.size()), token_));
  }

  const std::shared_ptr<LiveRun> run_;
  const ServeAddress address_;
  const std::string token_;
};

/// Sets the port in `address`.
Result<Descriptor> listen_at(ServeAddress& address) {
  sockaddr_in6 six{};
  sockaddr_in four{};
  const bool is_six = ::inet_pton(AF_INET6, address.address.c_str(), &six.sin6_addr) == 1;
  ::inet_pton(AF_INET, address.address.c_str(), &four.sin_addr);
  six.sin6_family = AF_INET6;
  four.sin_family = AF_INET;
  six.sin6_port = four.sin_port = htons(static_cast<std::uint16_t>(address.port));
  auto* const own = is_six ? reinterpret_cast<sockaddr*>(&six) : reinterpret_cast<sockaddr*>(&four);
  socklen_t size = is_six ? sizeof six : sizeof four;
  Descriptor file(::socket(own->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int yes = 1;
  if (!file.valid() || ::setsockopt(file.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      ::bind(file.get(), own, size) != 0 || ::listen(file.get(), static_cast<int>(max_waiting)) != 0 ||
      ::getsockname(file.get(), own, &size) != 0)
    return Status(StatusCode::unavailable, std::generic_category().message(errno), errno);
  address.port = ntohs(is_six ? six.sin6_port : four.sin_port);
  return file;
}

/// The thread name identifies it in `top -H`.
void settle_thread() {
  ::pthread_setname_np(::pthread_self(), "live page");
  static_cast<void>(::setpriority(PRIO_PROCESS, static_cast<id_t>(::syscall(SYS_gettid)), low_priority));
}

}  // namespace

Status check_live_server() {
  return {};
}

/// State shared by the server and its threads.
struct LiveServer::State {
  State(std::shared_ptr<LiveRun> a_run, const ServeAddress& address, Descriptor a_file)
      : run(a_run), answers(std::move(a_run), address, serve_token()), file(std::move(a_file)) {}

  Status start(const std::shared_ptr<State>& self);
  void finish();
  void stop();
  void accept();
  void take_client(Connections& arriving);
  void enqueue(std::unique_ptr<Connection> connection);
  void work(Connections& queue);
  void leave();

  const std::shared_ptr<LiveRun> run;
  Answers answers;
  Descriptor file;  ///< listening socket; used only by the listener thread once it runs
  const Descriptor stopping{::eventfd(0, EFD_CLOEXEC)};
  std::vector<std::thread> threads;
  std::mutex mutex;  ///< protects the members below
  std::condition_variable changed;
  Connections waiting, health;  ///< requests; /healthz has its own thread
  Connections ending;           ///< requests of /api/end, which wait for it; the newest ones
  int running = 0, busy = 0;    ///< threads; those of them that answer
  bool has_ended = false, is_stopped = false;
};

Status LiveServer::State::start(const std::shared_ptr<State>& self) {
  for (int i = 0; i <= workers + 1; ++i) {
    EGT_TRY_ASSIGN(std::thread thread, start_thread("the live page", [self, i] {
                     i == 0 ? self->accept() : self->work(i == 1 ? self->health : self->waiting);
                   }));
    threads.push_back(std::move(thread));
    const std::lock_guard lock(mutex);
    ++running;
  }
  return {};
}

void LiveServer::State::finish() {
  const std::lock_guard lock(mutex);
  has_ended = true;
  for (auto& connection : ending) {
    connection->restart();
    waiting.push_back(std::move(connection));
  }
  ending.clear();
  changed.notify_all();
}

void LiveServer::State::stop() {
  std::unique_lock lock(mutex);
  if (has_ended && !is_stopped)
    changed.wait_for(lock, std::chrono::duration<double>(last_answers_s),
                     [this] { return waiting.empty() && busy == 0; });
  is_stopped = true;
  static_cast<void>(::eventfd_write(stopping.get(), 1));
  changed.notify_all();
}

/// Main loop of the listener thread. Requests are received here, so a slow client blocks no other thread.
void LiveServer::State::accept() {
  settle_thread();
  Connections arriving;
  for (;;) {
    std::vector<pollfd> files = {{file.get(), POLLIN, 0}, {stopping.get(), POLLIN, 0}};
    for (const auto& one : arriving) files.push_back({one->file(), POLLIN, 0});
    const int patience_ms =
        arriving.empty()
            ? -1
            : static_cast<int>(std::max(arriving.front()->seconds_left(request_s), 0.0) * 1e3) + 1;
    if (::poll(files.data(), files.size(), patience_ms) < 0 && errno != EINTR) break;
    if (files[1].revents != 0) break;
    for (std::size_t i = 0; i < arriving.size(); ++i)
      if (files[i + 2].revents != 0) arriving[i]->take_in();
    for (auto& one : arriving) {
      if (one->is_ready())
        enqueue(std::move(one));
      else if (one->seconds_left(request_s) <= 0)
        one = nullptr;  // closes it
    }
    std::erase(arriving, nullptr);
    if (files[0].revents != 0) take_client(arriving);
  }
  file = Descriptor();
  leave();
}

/// If no more files can be opened, closes the oldest connection with an incomplete request.
void LiveServer::State::take_client(Connections& arriving) {
  Descriptor client(::accept4(file.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  const bool lacks_files =
      !client.valid() && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS);
  if (lacks_files && arriving.empty()) {
    pollfd stop = {stopping.get(), POLLIN, 0};
    ::poll(&stop, 1, busy_pause_ms);
  }
  if (!arriving.empty() && (lacks_files || arriving.size() >= max_arriving)) arriving.pop_front();
  if (!client.valid()) return;
  ::setsockopt(client.get(), SOL_SOCKET, SO_SNDBUF, &send_buffer, sizeof send_buffer);
  arriving.push_back(std::make_unique<Connection>(std::move(client), stopping.get()));
}

void LiveServer::State::enqueue(std::unique_ptr<Connection> connection) {
  const std::lock_guard lock(mutex);
  Connections& queue = connection->asks_for("/healthz")                 ? health
                       : connection->asks_for("/api/end") && !has_ended ? ending
                                                                        : waiting;
  if (&queue == &ending && queue.size() >= max_waiting) queue.pop_front();  // its client asks again
  if (queue.size() >= max_waiting) return;                                  // closes it
  queue.push_back(std::move(connection));
  changed.notify_all();
}

/// Main loop of an answering thread.
void LiveServer::State::work(Connections& queue) {
  settle_thread();
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return is_stopped || !queue.empty(); });
    if (is_stopped) break;
    const std::unique_ptr<Connection> connection = std::move(queue.front());
    queue.pop_front();
    ++busy;
    lock.unlock();
    answers.serve(*connection);
    ::shutdown(connection->file(), SHUT_WR);
    lock.lock();
    --busy;
    changed.notify_all();
  }
  lock.unlock();
  leave();
}

void LiveServer::State::leave() {
  const std::lock_guard lock(mutex);
  --running;
  changed.notify_all();
}

Result<std::unique_ptr<LiveServer>> LiveServer::open(const ServeAddress& address,
                                                     std::shared_ptr<LiveRun> run) {
  ServeAddress own = address;
  EGT_TRY_ASSIGN(Descriptor file, listen_at(own));
  EGT_TRY_ASSIGN(auto records, QueuedSink::open("the records of the live page", run));
  auto state = std::make_shared<State>(std::move(run), own, std::move(file));
  std::unique_ptr<LiveServer> server(
      new LiveServer(state, std::move(records), fmt::format("http://{}/", own.text())));
  EGT_TRY(state->start(state));
  return server;
}

void LiveServer::finish(Json result) {
  state_->run->finish(std::move(result));
  state_->finish();
}

void LiveServer::close() {
  state_->stop();
}

LiveServer::~LiveServer() {
  close();
  state_->run->end();
  std::unique_lock lock(state_->mutex);
  const bool ended = state_->changed.wait_for(lock, std::chrono::duration<double>(end_patience_s),
                                              [this] { return state_->running == 0; });
  lock.unlock();
  for (std::thread& thread : state_->threads) ended ? thread.join() : thread.detach();
}

}  // namespace egt

#else

namespace egt {

struct LiveServer::State {};

Status check_live_server() {
  return {StatusCode::unsupported,
          "this program was built without cpp-httplib; install libcpp-httplib-dev (Debian, Ubuntu) and build "
          "it again"};
}

Result<std::unique_ptr<LiveServer>> LiveServer::open(const ServeAddress&, std::shared_ptr<LiveRun>) {
  return check_live_server();
}

void LiveServer::finish(Json) {}
void LiveServer::close() {}
LiveServer::~LiveServer() = default;

}  // namespace egt

#endif
