#include "ranks/mpi/mpi_control.hpp"

#include <climits>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "egt/core/digest.hpp"
#include "egt/core/wait.hpp"
#include "ranks/mpi/mpi_session_impl.hpp"

namespace egt {
namespace {

constexpr int text_tag = 1;

/// Length of a text, with its inverse: a corrupted length would make MPI write beyond the text's memory.
struct Length {
  std::uint64_t value = 0, inverse = ~std::uint64_t{0};
  Status check() const {
    return value == ~inverse ? Status()
                             : Status(StatusCode::aborted, "the length of a text changed in transit");
  }
};
constexpr int length_words = 2;
static_assert(sizeof(Length) == length_words * sizeof(std::uint64_t));

Length length_of(const std::string& text) {
  return {text.size(), ~std::uint64_t{text.size()}};
}

/// One collective in progress and its memory. It stays allocated after a timeout, since MPI may still use it.
struct Collective {
  MPI_Request request = MPI_REQUEST_NULL;
  std::string mine;
  std::string all;
  Length my_length;
  std::vector<Length> lengths;  ///< of all ranks, on rank 0
  std::vector<int> counts;
  std::vector<int> offsets;
};

class MpiControl final : public Control {
 public:
  MpiControl(MpiSession::Impl& session, MPI_Comm comm, double timeout_seconds)
      : session_(session), comm_(comm), timeout_seconds_(timeout_seconds) {}
  ~MpiControl() override;

  const RankPlace& place() const override { return session_.place; }
  Result<std::vector<std::string>> gather(const std::string& text) override;
  Result<std::string> broadcast(const std::string& text) override;
  Status barrier() override;
  Status send_to_root(std::string text) override;
  Result<std::optional<std::string>> receive() override;

 private:
  /// Shared, not moved, since MPI uses the text in place.
  struct Message {
    std::string text;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  bool is_root() const { return session_.place.rank == 0; }
  int size() const { return session_.place.size; }
  Status finish(const std::shared_ptr<Collective>& collective, const char* what);
  Status keep(const Status& status);
  Status gather_texts(const std::shared_ptr<Collective>& collective);
  Result<bool> sent_all();
  void leave(const std::shared_ptr<Message>& message);

  MpiSession::Impl& session_;
  MPI_Comm comm_;
  const double timeout_seconds_;
  Status lost_;  ///< a possibly local error: later calls may not match those of the other ranks
  std::deque<std::shared_ptr<Message>> outgoing_;
  std::shared_ptr<Message> incoming_;
  std::deque<std::string> own_;  ///< texts that rank 0 sent to its own queue
};

MpiControl::~MpiControl() {
  // A failure needs no report here. Unsent texts pass to the session, which then does not finalize.
  const Status sent =
      wait_until([this] { return sent_all(); },
                 {.seconds = timeout_seconds_, .what = "the sending of the last texts to rank 0"});
  const bool clean = sent.ok() && !incoming_;
  for (const auto& message : outgoing_) leave(message);
  if (incoming_) leave(incoming_);
  if (clean && !session_.abandoned) MPI_Comm_free(&comm_);
}

void MpiControl::leave(const std::shared_ptr<Message>& message) {
  session_.adopt({{message->request}, message});
}

Status MpiControl::finish(const std::shared_ptr<Collective>& collective, const char* what) {
  Status status = wait_until(
      [&] {
        return mpi_done({&collective->request, 1});
      },
      {.seconds = timeout_seconds_, .what = what});
  if (!status.ok()) session_.adopt({{collective->request}, collective});
  return status;
}

/// After an error of a collective call, no other call is made and MPI is not finalized.
Status MpiControl::keep(const Status& status) {
  if (status.ok()) return {};
  session_.abandoned = true;
  return lost_ = status;
}

Status MpiControl::gather_texts(const std::shared_ptr<Collective>& collective) {
  Collective& c = *collective;
  if (is_root()) {
    std::uint64_t total = 0;
    for (const Length& length : c.lengths) {
      EGT_TRY(keep(length.check()));
      total += length.value;
    }
    if (total > INT_MAX) return {StatusCode::invalid_argument, "the ranks' texts exceed 2^31 bytes together"};
    c.all.resize(total);
    int offset = 0;
    for (const Length& length : c.lengths) {
      c.counts.push_back(static_cast<int>(length.value));
      c.offsets.push_back(offset);
      offset += c.counts.back();
    }
  }
  EGT_TRY(mpi_status(MPI_Igatherv(c.mine.data(), static_cast<int>(c.mine.size()), MPI_BYTE, c.all.data(),
                                  c.counts.data(), c.offsets.data(), MPI_BYTE, 0, comm_, &c.request),
                     "MPI_Igatherv"));
  return finish(collective, "the gathering of all ranks' texts");
}

Result<std::vector<std::string>> MpiControl::gather(const std::string& text) {
  EGT_TRY(lost_);
  if (text.size() > INT_MAX) return Status(StatusCode::invalid_argument, "the text exceeds 2^31 bytes");
  auto collective = std::make_shared<Collective>();
  Collective& c = *collective;
  c.mine = sealed(text);
  c.my_length = length_of(c.mine);
  c.lengths.resize(is_root() ? static_cast<std::size_t>(size()) : 0);
  EGT_TRY(mpi_status(MPI_Igather(&c.my_length, length_words, MPI_UINT64_T, c.lengths.data(), length_words,
                                 MPI_UINT64_T, 0, comm_, &c.request),
                     "MPI_Igather"));
  EGT_TRY(finish(collective, "the gathering of all ranks' texts"));
  EGT_TRY(gather_texts(collective));
  std::vector<std::string> texts;
  for (std::size_t i = 0; i < c.counts.size(); ++i) {
    Result<std::string> one =
        unsealed(c.all.substr(static_cast<std::size_t>(c.offsets[i]), static_cast<std::size_t>(c.counts[i])));
    EGT_TRY(keep(one.status()));
    texts.push_back(std::move(one.value()));
  }
  return texts;
}

Result<std::string> MpiControl::broadcast(const std::string& text) {
  EGT_TRY(lost_);
  if (text.size() > INT_MAX) return Status(StatusCode::invalid_argument, "the text exceeds 2^31 bytes");
  auto collective = std::make_shared<Collective>();
  Collective& c = *collective;
  c.mine = sealed(text);
  c.my_length = length_of(c.mine);
  EGT_TRY(
      mpi_status(MPI_Ibcast(&c.my_length, length_words, MPI_UINT64_T, 0, comm_, &c.request), "MPI_Ibcast"));
  EGT_TRY(finish(collective, "the broadcast of rank 0's text"));
  EGT_TRY(keep(c.my_length.check()));
  c.mine.resize(c.my_length.value);
  EGT_TRY(
      mpi_status(MPI_Ibcast(c.mine.data(), static_cast<int>(c.mine.size()), MPI_BYTE, 0, comm_, &c.request),
                 "MPI_Ibcast"));
  EGT_TRY(finish(collective, "the broadcast of rank 0's text"));
  Result<std::string> received = unsealed(std::move(c.mine));
  EGT_TRY(keep(received.status()));
  return received;
}

Status MpiControl::barrier() {
  EGT_TRY(lost_);
  auto collective = std::make_shared<Collective>();
  EGT_TRY(mpi_status(MPI_Ibarrier(comm_, &collective->request), "MPI_Ibarrier"));
  return finish(collective, "the barrier of all ranks");
}

Status MpiControl::send_to_root(std::string text) {
  if (text.size() > INT_MAX) return {StatusCode::invalid_argument, "the text exceeds 2^31 bytes"};
  if (is_root()) {
    own_.push_back(std::move(text));
    return {};
  }
  EGT_TRY(sent_all().status());
  Message& message = *outgoing_.emplace_back(std::make_shared<Message>());
  message.text = sealed(text);
  return mpi_status(MPI_Isend(message.text.data(), static_cast<int>(message.text.size()), MPI_BYTE, 0,
                              text_tag, comm_, &message.request),
                    "MPI_Isend");
}

Result<bool> MpiControl::sent_all() {
  while (!outgoing_.empty()) {
    EGT_TRY_ASSIGN(const bool sent, mpi_done({&outgoing_.front()->request, 1}));
    if (!sent) return false;
    outgoing_.pop_front();
  }
  return true;
}

Result<std::optional<std::string>> MpiControl::receive() {
  if (!own_.empty()) {
    std::optional<std::string> text = std::move(own_.front());
    own_.pop_front();
    return text;
  }
  if (!incoming_) {
    int there = 0, bytes = 0;
    MPI_Message handle = MPI_MESSAGE_NULL;
    MPI_Status status;
    EGT_TRY(
        mpi_status(MPI_Improbe(MPI_ANY_SOURCE, text_tag, comm_, &there, &handle, &status), "MPI_Improbe"));
    if (!there) return std::optional<std::string>();
    EGT_TRY(mpi_status(MPI_Get_count(&status, MPI_BYTE, &bytes), "MPI_Get_count"));
    incoming_ = std::make_shared<Message>();
    incoming_->text.resize(static_cast<std::size_t>(bytes));
    EGT_TRY(mpi_status(MPI_Imrecv(incoming_->text.data(), bytes, MPI_BYTE, &handle, &incoming_->request),
                       "MPI_Imrecv"));
  }
  EGT_TRY_ASSIGN(const bool whole, mpi_done({&incoming_->request, 1}));
  if (!whole) return std::optional<std::string>();
  Result<std::string> text = unsealed(std::move(incoming_->text));
  incoming_.reset();
  EGT_TRY(text.status());
  return std::optional<std::string>(std::move(text.value()));
}

}  // namespace

Result<std::unique_ptr<Control>> open_mpi_control(MpiSession& session, double timeout_seconds) {
  EGT_TRY_ASSIGN(const MPI_Comm comm, session.impl().duplicate(timeout_seconds));
  return std::unique_ptr<Control>(new MpiControl(session.impl(), comm, timeout_seconds));
}

}  // namespace egt
