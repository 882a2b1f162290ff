#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "egt/core/clock.hpp"
#include "mpi_test.hpp"
#include "ranks/heartbeat/tcp_heartbeat.hpp"
#include "ranks/mpi/mpi_control.hpp"

namespace egt::test {
namespace {

/// Foreign clients that connect to rank 0 while the ranks connect: one is silent, one sends garbage, one has
/// a wrong token.
class ForeignClients {
 public:
  void call(int port, int ranks) {
    std::vector<std::string> words = {"", "GET / HTTP/1.1\r\n\r\n"};
    for (int rank = 1; rank < ranks; ++rank) {
      const std::string hello = nlohmann::json{{"token", "guessed"}, {"rank", rank}, {"to", 0}}.dump();
      words.push_back(std::string{static_cast<char>(hello.size()), 0, 0, 0, 1} + hello);
    }
    for (const std::string& word : words) sockets_.push_back(connect(port, word));
  }
  bool all_connected() const {
    return std::none_of(sockets_.begin(), sockets_.end(), [](int socket) { return socket < 0; });
  }
  /// True if the client's connection is closed soon.
  static bool is_dropped(int socket) {
    const timeval limit{5, 0};
    ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    char byte = 0;
    const ssize_t bytes = ::recv(socket, &byte, 1, 0);
    return bytes == 0 || (bytes < 0 && errno == ECONNRESET);
  }
  const std::vector<int>& sockets() const { return sockets_; }
  ~ForeignClients() {
    for (const int socket : sockets_) ::close(socket);
  }

 private:
  static int connect(int port, const std::string& word) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) return -1;
    (void)!::send(socket, word.data(), word.size(), MSG_NOSIGNAL);
    return socket;
  }

  std::vector<int> sockets_;
};

/// Control that lets foreign clients connect before the other ranks know rank 0's address.
class OverheardControl final : public egt::Control {
 public:
  OverheardControl(egt::Control& control, ForeignClients& strangers)
      : control_(control), strangers_(strangers) {}
  const RankPlace& place() const override { return control_.place(); }
  Result<std::vector<std::string>> gather(const std::string& text) override {
    const auto own = nlohmann::json::parse(text, nullptr, false);
    if (place().rank == 0 && own.is_object()) strangers_.call(own["port"].get<int>(), place().size);
    return control_.gather(text);
  }
  Result<std::string> broadcast(const std::string& text) override { return control_.broadcast(text); }
  Status barrier() override { return control_.barrier(); }
  Status send_to_root(std::string text) override { return control_.send_to_root(std::move(text)); }
  Result<std::optional<std::string>> receive() override { return control_.receive(); }

 private:
  egt::Control& control_;
  ForeignClients& strangers_;
};

/// Control in which every rank is on its own host and has three addresses: one that does not answer, one that
/// is invalid, and one that works.
class ScatteredControl final : public egt::Control {
 public:
  ScatteredControl(egt::Control& control, std::vector<std::string> last) : control_(control) {
    addresses_.insert(addresses_.end(), last.begin(), last.end());
  }
  const RankPlace& place() const override { return control_.place(); }
  Result<std::vector<std::string>> gather(const std::string& text) override {
    auto own = nlohmann::json::parse(text, nullptr, false);
    if (!own.is_object()) return control_.gather(text);
    own["hostname"] = "host" + std::to_string(place().rank);
    own["addresses"] = addresses_;
    return control_.gather(own.dump());
  }
  Result<std::string> broadcast(const std::string& text) override { return control_.broadcast(text); }
  Status barrier() override { return control_.barrier(); }
  Status send_to_root(std::string text) override { return control_.send_to_root(std::move(text)); }
  Result<std::optional<std::string>> receive() override { return control_.receive(); }

 private:
  egt::Control& control_;
  std::vector<std::string> addresses_ = {"198.51.100.7", "no address"};  // RFC 5737: for documentation
};

class HeartbeatOfRanks : public testing::Test {
 protected:
  void SetUp() override {
    auto opened = open_mpi_control(mpi_session(), 20);
    ASSERT_OK(opened.status());
    control = std::move(opened.value());
    place = control->place();
    OverheardControl overheard(*control, strangers);
    auto heartbeats = open_tcp_heartbeat(overheard, 15);
    ASSERT_OK(heartbeats.status());
    heartbeat = std::move(heartbeats.value());
  }
  void TearDown() override {
    if (control) ASSERT_OK(control->barrier());
  }

  bool poll_until(const std::function<bool()>& done, double seconds) {
    const Clock::time_point start = Clock::now();
    while (!done()) {
      if (seconds_since(start) > seconds) return false;
      heartbeat->poll(0.05);
    }
    return true;
  }
  bool all_peers(const std::function<bool(const Peer&)>& is) {
    return std::all_of(heartbeat->peers().begin(), heartbeat->peers().end(), is);
  }

  ForeignClients strangers;
  std::unique_ptr<egt::Control> control;
  std::unique_ptr<Heartbeat> heartbeat;
  RankPlace place;
};

std::string news_of(int rank, int number, std::size_t bytes = 0) {
  return "rank " + std::to_string(rank) + " number " + std::to_string(number) + std::string(bytes, 'x');
}

TEST_F(HeartbeatOfRanks, KnowsAllOthers) {
  EXPECT_EQ(heartbeat->rank(), place.rank);
  ASSERT_EQ(static_cast<int>(heartbeat->peers().size()), place.size - 1);
  int expected = 0;
  for (const Peer& peer : heartbeat->peers()) {
    if (expected == place.rank) ++expected;
    EXPECT_EQ(peer.rank, expected++);
    EXPECT_EQ(peer.hostname, place.hostname);
    EXPECT_GT(peer.pid, 0);
    EXPECT_NE(peer.pid, ::getpid());
    EXPECT_TRUE(peer.connected());
  }
}

TEST_F(HeartbeatOfRanks, StrangersAreDropped) {
  if (place.rank != 0 || place.size == 1) return;
  EXPECT_TRUE(strangers.all_connected());
  for (const int socket : strangers.sockets()) EXPECT_TRUE(ForeignClients::is_dropped(socket));
}

TEST_F(HeartbeatOfRanks, AddressesThatLeadNowhereCostAMoment) {
  ScatteredControl scattered(*control, {"127.0.0.1"});
  const auto opened = open_tcp_heartbeat(scattered, 15);
  ASSERT_OK(opened.status());
  EXPECT_EQ(opened.value()->peers().size(), static_cast<std::size_t>(place.size - 1));
  ASSERT_OK(control->barrier());
}

TEST_F(HeartbeatOfRanks, RanksThatCannotBeReachedAreToldWithAllThatWasTried) {
  if (place.size == 1) return;
  ScatteredControl scattered(*control, {});
  const auto opened = open_tcp_heartbeat(scattered, 1);
  EXPECT_FALSE(opened.ok());
  for (const char* reported : {" does not reach rank 0 on host0", "198.51.100.7 (", "no address ("})
    EXPECT_NE(opened.status().what().find(reported), std::string::npos) << opened.status().what();
  ASSERT_OK(control->barrier());
}

/// As under a low ulimit -n; MPI has all the descriptors that it needs.
TEST_F(HeartbeatOfRanks, ARankWithoutDescriptorsIsToldOnAll) {
  if (place.size == 1) return;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  if (place.rank == place.size - 1) {
    const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  }
  const auto opened = open_tcp_heartbeat(*control, 5);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_EQ(opened.status().code(), StatusCode::unavailable);
  EXPECT_NE(opened.status().what().find("no heartbeats between the ranks: eventfd: Too many open files"),
            std::string::npos)
      << opened.status().what();
  ASSERT_OK(control->barrier());
}

TEST_F(HeartbeatOfRanks, NewsOfAllReachAll) {
  for (int number = 0; number < 3; ++number) {
    ASSERT_OK(control->barrier());
    heartbeat->send(news_of(place.rank, number));
    EXPECT_TRUE(poll_until(
        [&] { return all_peers([&](const Peer& peer) { return peer.text == news_of(peer.rank, number); }); },
        10));
  }
}

TEST_F(HeartbeatOfRanks, TextsOfAnySizeArriveWhole) {
  for (const std::size_t bytes : {std::size_t{0}, std::size_t{1}, std::size_t{16384}, std::size_t{1234567}}) {
    heartbeat->send(news_of(place.rank, 1, bytes));
    EXPECT_TRUE(poll_until(
        [&] {
          return all_peers([&](const Peer& peer) { return peer.text == news_of(peer.rank, 1, bytes); });
        },
        10));
    while (!heartbeat->flush(1)) continue;
    ASSERT_OK(control->barrier());
  }
}

TEST_F(HeartbeatOfRanks, ARankThatStopsSendingGrowsOldAndBlocksNobody) {
  const bool silent = place.rank == place.size - 1;
  ASSERT_OK(control->barrier());
  const Clock::time_point start = Clock::now();
  if (!silent) {
    // Far more than all buffers hold, to a peer that does not read.
    while (seconds_since(start) < 1.5) {
      heartbeat->send(news_of(place.rank, 1, 1 << 20));
      heartbeat->poll(0.01);
    }
    const std::vector<Peer>& peers = heartbeat->peers();
    EXPECT_GT(peers.back().seconds, 1.4);
    for (const Peer& peer : peers) {
      EXPECT_TRUE(peer.connected());
      EXPECT_TRUE(peer.rank == place.size - 1 || peer.seconds < peers.back().seconds);
    }
  }
  ASSERT_OK(control->barrier());
  heartbeat->send("last");
  EXPECT_TRUE(
      poll_until([&] { return all_peers([](const Peer& peer) { return peer.text == "last"; }); }, 10));
  while (!heartbeat->flush(1)) continue;
}

TEST_F(HeartbeatOfRanks, AGoodbyeIsNoLoss) {
  if (place.rank == place.size - 1) {
    heartbeat->send("the last word");
    heartbeat->goodbye();
    heartbeat.reset();
  } else {
    const auto left = [&] { return heartbeat->peers().back().left; };
    EXPECT_TRUE(poll_until(left, 5));
    EXPECT_FALSE(heartbeat->peers().back().gone);
    EXPECT_EQ(heartbeat->peers().back().text, "the last word");
    heartbeat->poll(0.1);
    EXPECT_FALSE(heartbeat->peers().back().gone);
  }
  ASSERT_OK(control->barrier());
}

TEST_F(HeartbeatOfRanks, AnEndWithoutGoodbyeWakesThePollAtOnce) {
  ASSERT_OK(control->barrier());
  if (place.rank == place.size - 1) {
    heartbeat.reset();
  } else {
    const auto gone = [&] { return heartbeat->peers().back().gone; };
    while (!gone()) heartbeat->poll(3600);
  }
  ASSERT_OK(control->barrier());
}

TEST_F(HeartbeatOfRanks, WakeEndsThePoll) {
  const Clock::time_point start = Clock::now();
  std::jthread waker([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    heartbeat->wake();
  });
  heartbeat->poll(3600);
  EXPECT_GT(seconds_since(start), 0.05);
}

}  // namespace
}  // namespace egt::test
