#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "loadtest/convnet/conv_net.hpp"
#include "loadtest/images/image_feed.hpp"
#include "loadtest/images/image_folder.hpp"
#include "loadtest/load_test.hpp"
#include "workload/common/value_exchange.hpp"

namespace egt {
namespace {

constexpr double learning_rate = 0.01;
constexpr std::int64_t learns_after = 50;  // iterations; with fewer the loss need not fall

/// A convolutional network that trains on, or classifies, the images of a feed.
class NetworkTest final : public LoadJob {
 public:
  NetworkTest(Environment& environment, const LoadTestParts& parts, const LoadTest& test)
      : environment_(environment), device_(environment.device), parts_(parts), test_(test) {}
  /// Destroys the feed first, because it reads the image set and copies on the network's stream.
  ~NetworkTest() override { feed_.reset(); }

  Status open();
  std::int64_t iterations() const override { return parts_.options.epochs * parts_.options.batches; }
  Status run(std::int64_t count, std::vector<double>& ms) override;
  const std::vector<LoadAnswer>& answers() const override { return answers_; }
  Status enqueue_answers(Digest* digests, int round) override;
  Stream& stream() override { return net_->stream(); }
  Result<std::string> inject(const Injection& injection, Flip& flip) override;
  LoadJobFigures figures() const override;
  std::string failure() const override;
  Status give_up(double timeout_seconds) override { return net_->give_up(timeout_seconds); }

 private:
  bool trains() const { return test_.type == LoadTestType::training; }
  Status open_feed();
  Status keep_known_images();
  Status mark(std::size_t index);
  Status read_times(std::int64_t count, std::vector<double>& ms);
  void read_losses();
  Status try_pass();

  Environment& environment_;
  Device& device_;
  const LoadTestParts& parts_;
  const LoadTest test_;
  std::unique_ptr<GeneratedImages> generated_;  ///< null: images come from files
  std::unique_ptr<ImageFeed> feed_;
  Buffer known_, known_labels_;                ///< images of the known-answer passes, in device memory
  Buffer losses_;                              ///< pinned, one per image
  std::vector<std::unique_ptr<Event>> marks_;  ///< between the iterations of a call
  std::vector<LoadAnswer> answers_;
  double device_seconds_ = 0;  ///< of all iterations
  std::int64_t made_ = 0;      ///< iterations
  double loss_first_ = std::numeric_limits<double>::quiet_NaN(), loss_last_ = loss_first_;
  std::unique_ptr<ConvNet> net_;  ///< declared last: its stream finishes before the memory is freed
};

Status NetworkTest::open() {
  const bool ddp = parts_.options.mode == LoadTestMode::ddp;
  EGT_TRY_ASSIGN(net_, ConvNet::create(device_, *parts_.dnn, environment_.communicator,
                                       {.kind = test_.network,
                                        .batch = test_.batch,
                                        .pixels = parts_.options.pixels,
                                        .classes = load_test_classes,
                                        .precision = parts_.precision,
                                        .trains = trains(),
                                        .sums = trains() && ddp && environment_.place.size > 1,
                                        .learning_rate = learning_rate,
                                        .seed = environment_.seed}));
  answers_.push_back({"weights", LoadAnswerKind::state});
  if (trains()) answers_.push_back({"momentum", LoadAnswerKind::state});
  for (const PassTensor& tensor : net_->replay_tensors()) answers_.push_back({net_->name_of(tensor)});
  EGT_TRY_ASSIGN(losses_, device_.allocate_pinned(static_cast<std::size_t>(test_.batch) * sizeof(float)));
  ProgressBoard::Line& line = environment_.board.line("main");  // the next calls are slow on a slow CPU
  line.go_on("loadtest: generates known images");
  EGT_TRY(keep_known_images());
  line.go_on("loadtest: tries a pass");
  EGT_TRY(try_pass());
  line.go_on("loadtest: opens its images");
  return open_feed();
}

/// Finds library failures at first use, which fail only this test. No other rank waits here.
Status NetworkTest::try_pass() {
  EGT_TRY_ASSIGN(const Buffer digests, device_.allocate(answers_.size() * sizeof(Digest)));
  const Status enqueued = enqueue_answers(digests.as<Digest>(), 0);
  EGT_TRY(device_.synchronize(net_->stream(), environment_.peer_timeout_seconds));
  return enqueued;
}

/// Without ddp every rank uses the same images, so that the weights stay equal.
Status NetworkTest::open_feed() {
  const LoadTestOptions& options = parts_.options;
  const bool ddp = options.mode == LoadTestMode::ddp;
  const ImageBatch first{.step = 0,
                         .rank = ddp ? environment_.place.rank : 0,
                         .ranks = ddp ? environment_.place.size : 1,
                         .images = test_.batch};
  if (parts_.folder == nullptr) {
    generated_ = std::make_unique<GeneratedImages>(environment_.seed, options.pixels);
    if (options.workers == 0) {
      EGT_TRY_ASSIGN(feed_, make_device_images(device_, *generated_, first, net_->stream()));
      return {};
    }
  }
  const ImageSet& set = parts_.folder != nullptr ? static_cast<const ImageSet&>(*parts_.folder) : *generated_;
  EGT_TRY_ASSIGN(feed_, make_image_loader(device_, set, {.first = first, .workers = options.workers}));
  return {};
}

/// Generated images, whatever the feed delivers: the same on every rank.
Status NetworkTest::keep_known_images() {
  const GeneratedImages set(environment_.seed, parts_.options.pixels);
  const auto images = static_cast<std::size_t>(test_.batch), values = static_cast<std::size_t>(set.values());
  constexpr std::uint64_t step = (std::uint64_t{1} << 48) - 1;  // never reached by a feed
  EGT_TRY_ASSIGN(const Buffer host,
                 device_.allocate_pinned(images * (values * sizeof(float) + sizeof(std::int32_t))));
  auto* const labels = reinterpret_cast<std::int32_t*>(host.as<float>() + images * values);
  for (std::size_t i = 0; i < images; ++i)
    EGT_TRY(set.make({.step = step, .images = test_.batch}, static_cast<std::int64_t>(i),
                     host.as<float>() + i * values, labels + i, {}));
  EGT_TRY_ASSIGN(known_, device_.allocate(images * values * sizeof(float)));
  EGT_TRY_ASSIGN(known_labels_, device_.allocate(images * sizeof(std::int32_t)));
  Status copied = device_.copy(known_.data(), host.data(), known_.bytes(), net_->stream());
  if (copied.ok()) copied = device_.copy(known_labels_.data(), labels, known_labels_.bytes(), net_->stream());
  EGT_TRY(device_.synchronize(net_->stream(), environment_.peer_timeout_seconds));
  return copied;
}

Status NetworkTest::mark(std::size_t index) {
  if (marks_.size() <= index) {
    EGT_TRY_ASSIGN(marks_.emplace_back(), device_.create_event(EventUse::timing));
  }
  return device_.record(*marks_[index], net_->stream());
}

/// Without new images it continues with the old ones, because other ranks wait for its all-reduces.
Status NetworkTest::run(std::int64_t count, std::vector<double>& ms) {
  const double seconds = environment_.peer_timeout_seconds;
  EGT_TRY(mark(0));
  Status fed;
  for (std::int64_t i = 0; i < count; ++i) {
    if (fed.ok())
      fed = feed_->enqueue(static_cast<float*>(net_->images().data), net_->labels(), net_->stream(),
                           {.seconds = seconds, .what = "images"});
    EGT_TRY(trains() ? net_->enqueue_training() : net_->enqueue_inference());
    EGT_TRY(mark(static_cast<std::size_t>(i) + 1));
  }
  EGT_TRY(device_.copy(losses_.data(), net_->losses(), losses_.bytes(), net_->stream()));
  EGT_TRY(mark(static_cast<std::size_t>(count) + 1));
  EGT_TRY(wait_with_peers(device_, environment_.communicator, *marks_[static_cast<std::size_t>(count) + 1],
                          seconds, "iterations"));
  EGT_TRY(read_times(count, ms));
  read_losses();
  return fed;
}

Status NetworkTest::read_times(std::int64_t count, std::vector<double>& ms) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    EGT_TRY_ASSIGN(const double one, device_.elapsed_ms(*marks_[i], *marks_[i + 1]));
    ms.push_back(one);
    device_seconds_ += 1e-3 * one;
  }
  made_ += count;
  return {};
}

void NetworkTest::read_losses() {
  double sum = 0;
  for (std::int64_t i = 0; i < test_.batch; ++i) sum += losses_.as<float>()[i];
  loss_last_ = sum / static_cast<double>(test_.batch);
  if (std::isnan(loss_first_)) loss_first_ = loss_last_;
}

Status NetworkTest::enqueue_answers(Digest* digests, int) {
  Stream& stream = net_->stream();
  EGT_TRY(device_.digest(net_->weights(), digests++, stream));
  if (trains()) EGT_TRY(device_.digest(net_->velocity(), digests++, stream));
  EGT_TRY(device_.copy(net_->images().data, known_.data(), known_.bytes(), stream));
  EGT_TRY(device_.copy(net_->labels(), known_labels_.data(), known_labels_.bytes(), stream));
  return net_->enqueue_replay(digests);
}

Result<std::string> NetworkTest::inject(const Injection& injection, Flip& flip) {
  const auto& layers = net_->plan().layers;
  if (injection.kind == InjectionKind::weight) {
    flip = choose_flip(injection, net_->weights().count, environment_.seed);
    EGT_TRY(device_.flip(net_->weights(), flip, net_->stream()));
    return std::string("weights");
  }
  const bool of_gradient = injection.kind == InjectionKind::gradient;
  if (of_gradient && !trains())
    return Status(StatusCode::unsupported, "inference makes no gradients to change");
  std::vector<PassTensor> tensors = net_->replay_tensors();
  std::erase_if(tensors, [&](const PassTensor& tensor) {
    return (tensor.kind == TensorKind::weight_gradient) != of_gradient ||
           !layers[static_cast<std::size_t>(tensor.layer)].has_parameters();
  });
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) { return a.layer < b.layer; });
  const auto chosen = choose_layer(injection, static_cast<int>(tensors.size()), environment_.seed);
  const PassTensor tensor = tensors[static_cast<std::size_t>(chosen)];
  const NetworkLayer& layer = layers[static_cast<std::size_t>(tensor.layer)];
  const auto words =
      static_cast<std::uint64_t>(of_gradient ? layer.weight_count : net_->plan().y_of(layer).count() / 2);
  flip = choose_flip(injection, words, environment_.seed);
  net_->set_tensor_faults({{.tensor = tensor, .flip = flip}});
  return net_->name_of(tensor);
}

LoadJobFigures NetworkTest::figures() const {
  LoadJobFigures figures;
  if (trains()) {
    figures.loss_first = loss_first_;
    figures.loss_last = loss_last_;
  }
  figures.samples = static_cast<double>(test_.batch);
  figures.flops = net_->flops();
  const FeedFigures fed = feed_->figures();
  const double rate = device_seconds_ > fed.waited_seconds && made_ > 0
                          ? static_cast<double>(made_ * test_.batch) / (device_seconds_ - fed.waited_seconds)
                          : 0;
  figures.bottleneck = loader_bottleneck(fed, rate, device_.info().multiprocessors);
  figures.more = {{"num_workers", parts_.options.workers}, {"loader_waited_seconds", fed.waited_seconds}};
  if (!net_->capture_failure().empty()) figures.more["not_captured"] = net_->capture_failure();
  if (parts_.folder != nullptr) {
    figures.more["image_files"] = parts_.folder->files();
    figures.more["bad_image_files"] = parts_.folder->bad_files();
    if (const std::string complaint = parts_.folder->complaint(); !complaint.empty())
      figures.more["images"] = complaint;
  }
  return figures;
}

std::string NetworkTest::failure() const {
  if (!std::isfinite(loss_last_) && made_ > 0) return "the loss is not finite";
  if (trains() && made_ >= learns_after && loss_last_ >= loss_first_)
    return fmt::format("the loss did not fall: {:.4g} at first, {:.4g} after {} iterations", loss_first_,
                       loss_last_, made_);
  return {};
}

}  // namespace

Result<std::unique_ptr<LoadJob>> make_network_test(Environment& environment, const LoadTestParts& parts,
                                                   const LoadTest& test) {
  auto job = std::make_unique<NetworkTest>(environment, parts, test);
  EGT_TRY(job->open());
  return std::unique_ptr<LoadJob>(std::move(job));
}

}  // namespace egt
