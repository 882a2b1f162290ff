// Preload library that flips one bit of a result of a GEMM, sinf or expf of the training, or of a gradient
// all-reduce message. EGT_STRIKES_AT selects the strikes. EGT_STRIKES_LOG is the file for executed strikes
// and, with EGT_STRIKES_TRACE, for all passes and messages. A training step is recognized by its input, the
// operand of the first layer's GEMM with the shape EGT_STRIKES_INPUT ("batch,neurons,inputs").
#include <dlfcn.h>
#include <fcntl.h>
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <mutex>
#include <string>
#include <vector>

namespace {

enum Function { gemm, sine, exponential, message };
constexpr std::array names{"gemm", "sinf", "expf", "message"};

/// Strikes call number `call` of a function after the `seen`th occurrence of the input `input`. For messages:
/// the first one to `peer` after the input was seen, in the all-reduce with index `call / 2` in the list of
/// sizes. An odd `call` selects sums, an even one terms.
struct Strike {
  int rank = 0, input = 0, seen = 0;
  Function function = gemm;
  int call = 0, peer = -1;
  unsigned element = 0, bit = 0;
  bool is_done = false;
};

struct Input {
  std::uint64_t hash = 0;
  int seen = 0;
};

class Striker {
 public:
  Striker() {
    const char* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
    rank_ = rank ? std::atoi(rank) : 0;
    if (const char* const shape = std::getenv("EGT_STRIKES_INPUT"))
      std::sscanf(shape, "%d,%d,%d", &batch_, &neurons_, &inputs_);
    if (const char* const elements = std::getenv("EGT_STRIKES_SUMS"))
      std::sscanf(elements, "%d,%d,%d,%d", &sums_[0], &sums_[1], &sums_[2], &ranks_);
    const char* asked = std::getenv("EGT_STRIKES_AT");
    for (int read = 0; asked != nullptr && *asked != '\0'; asked += read) {
      Strike strike;
      int function = 0;
      if (std::sscanf(asked, "%d:%d:%d:%d:%d:%d:%u:%u;%n", &strike.rank, &strike.input, &strike.seen,
                      &function, &strike.call, &strike.peer, &strike.element, &strike.bit, &read) != 8)
        std::abort();
      strike.function = static_cast<Function>(function);
      if (strike.rank == rank_) strikes_.push_back(strike);
    }
  }

  bool is_input(int m, int n, int k) const { return m == batch_ && n == neurons_ && k == inputs_; }

  void begin_pass(const void* data, std::size_t bytes) {
    std::uint64_t hash = 14695981039346656037u;
    for (std::size_t i = 0; i < bytes; ++i)
      hash = (hash ^ static_cast<const unsigned char*>(data)[i]) * 1099511628211u;
    const std::lock_guard lock(mutex_);
    trace();
    input_ = 0;
    while (input_ < inputs_seen_.size() && inputs_seen_[input_].hash != hash) ++input_;
    if (input_ == inputs_seen_.size()) inputs_seen_.push_back({hash, 0});
    ++inputs_seen_[input_].seen;
    calls_ = {};
  }

  /// A result of `elements` values of type T, `columns` per row, with stride `leading` between rows.
  template <typename T, typename Bits>
  void result(Function function, T* values, unsigned elements, unsigned columns = 1, unsigned leading = 1) {
    if (::gettid() == ::getpid()) return;  // the main thread computes samples of checks, not passes
    const std::lock_guard lock(mutex_);
    if (inputs_seen_.empty()) return;
    const int call = calls_[function]++;
    for (Strike& one : strikes_) {
      if (one.is_done || one.function != function || one.call != call ||
          one.input != static_cast<int>(input_) || one.seen != inputs_seen_[input_].seen)
        continue;
      flip<T, Bits>(one, values, elements, columns, leading);
    }
  }

  /// Returns null if this message is not struck.
  float* struck_message(const void* data, int bytes, int peer, int tag) {
    // In the communicator's tag range (mpi_group.cpp), these tags belong to collectives and the others to
    // single messages. An all-reduce sends its terms with an even tag and its sums with the next one.
    constexpr int collective_tags = 2 * 4096, tags = 3 * 4096, tag_of_texts = 1;
    if (tag % tags >= collective_tags || tag == tag_of_texts || bytes % 4 != 0) return nullptr;
    const std::lock_guard lock(mutex_);
    for (Strike& one : strikes_) {
      if (one.is_done || one.function != message || one.peer != peer || one.call % 2 != tag % 2 ||
          inputs_seen_.size() <= static_cast<std::size_t>(one.input))
        continue;
      const int least = sums_[static_cast<std::size_t>(one.call) / 2] / ranks_, elements = bytes / 4;
      if (elements != least && elements != least + 1) continue;
      auto* const copy = new float[static_cast<std::size_t>(elements)];  // MPI sends it later
      std::memcpy(copy, data, static_cast<std::size_t>(bytes));
      flip<float, std::uint32_t>(one, copy, static_cast<unsigned>(elements), 1, 1);
      return copy;
    }
    return nullptr;
  }

 private:
  template <typename T, typename Bits>
  void flip(Strike& one, T* values, unsigned elements, unsigned columns, unsigned leading) {
    one.is_done = true;
    const unsigned element = one.element % elements, bit = one.bit % (8 * sizeof(T));
    T& value = values[element / columns * leading + element % columns];
    const T before = value;
    Bits bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits ^= Bits{1} << bit;
    std::memcpy(&value, &bits, sizeof bits);
    std::array<char, 400> text;
    std::snprintf(
        text.data(), text.size(),
        "{\"struck\": \"%s\", \"rank\": %d, \"newest\": %zu, \"input\": %d, \"seen\": %d, \"call\": %d, "
        "\"peer\": %d, \"element\": %u, \"bit\": %u, \"bits\": %zu, \"before\": \"%.9g\", \"after\": "
        "\"%.9g\", \"time\": %ld}\n",
        names[one.function], rank_, inputs_seen_.size() - 1, one.input, one.seen, one.call, one.peer, element,
        bit, 8 * sizeof(T), static_cast<double>(before), static_cast<double>(value), std::time(nullptr));
    write(text.data());
  }

  /// Logs the calls of the pass that ends.
  void trace() const {
    static const bool is_traced = std::getenv("EGT_STRIKES_TRACE") != nullptr;
    if (!is_traced || inputs_seen_.empty()) return;
    std::array<char, 200> text;
    std::snprintf(text.data(), text.size(),
                  "{\"rank\": %d, \"input\": %zu, \"seen\": %d, \"calls\": [%d, %d, %d]}\n", rank_, input_,
                  inputs_seen_[input_].seen, calls_[gemm], calls_[sine], calls_[exponential]);
    write(text.data());
  }

  static void write(const char* text) {
    static const char* const path = std::getenv("EGT_STRIKES_LOG");
    const int file = path ? ::open(path, O_WRONLY | O_APPEND | O_CREAT, 0644) : -1;
    if (file < 0 || ::write(file, text, std::strlen(text)) < 0) std::abort();
    ::close(file);
  }

  std::mutex mutex_;
  int rank_ = 0, batch_ = 0, neurons_ = 0, inputs_ = 0;
  std::vector<Strike> strikes_;
  std::vector<Input> inputs_seen_;
  std::size_t input_ = 0;       ///< of the current pass
  std::array<int, 3> calls_{};  ///< calls per function in this pass, except messages
  std::array<int, 3> sums_{};   ///< elements per all-reduce of a step
  int ranks_ = 1;
};

Striker& striker() {
  static Striker* const one = new Striker;  // outlives all threads
  return *one;
}

template <typename Call>
Call real(const char* name) {
  return reinterpret_cast<Call>(dlsym(RTLD_NEXT, name));
}

constexpr int row_major = 101, not_transposed = 111;

template <typename T, typename Bits, typename Call>
void multiply(Call call, int order, int transpose_a, int transpose_b, int m, int n, int k, T alpha,
              const T* a, int lda, const T* b, int ldb, T beta, T* c, int ldc) {
  if (order != row_major) std::abort();
  if (transpose_a == not_transposed && striker().is_input(m, n, k))
    striker().begin_pass(a, sizeof(T) * static_cast<std::size_t>(m) * static_cast<std::size_t>(lda));
  call(order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
  striker().result<T, Bits>(gemm, c, static_cast<unsigned>(m) * static_cast<unsigned>(n),
                            static_cast<unsigned>(n), static_cast<unsigned>(ldc));
}

}  // namespace

extern "C" void cblas_sgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, float alpha,
                            const float* a, int lda, const float* b, int ldb, float beta, float* c, int ldc) {
  static const auto call = real<decltype(&cblas_sgemm)>("cblas_sgemm");
  multiply<float, std::uint32_t>(call, order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta,
                                 c, ldc);
}

extern "C" void cblas_dgemm(int order, int transpose_a, int transpose_b, int m, int n, int k, double alpha,
                            const double* a, int lda, const double* b, int ldb, double beta, double* c,
                            int ldc) {
  static const auto call = real<decltype(&cblas_dgemm)>("cblas_dgemm");
  multiply<double, std::uint64_t>(call, order, transpose_a, transpose_b, m, n, k, alpha, a, lda, b, ldb, beta,
                                  c, ldc);
}

extern "C" float sinf(float value) noexcept {
  static const auto call = real<float (*)(float)>("sinf");
  float result = call(value);
  striker().result<float, std::uint32_t>(sine, &result, 1);
  return result;
}

extern "C" float expf(float value) noexcept {
  static const auto call = real<float (*)(float)>("expf");
  float result = call(value);
  striker().result<float, std::uint32_t>(exponential, &result, 1);
  return result;
}

/// With EGT_WRONG_TANF every result has this bit flipped.
extern "C" float tanf(float value) noexcept {
  static const auto call = real<float (*)(float)>("tanf");
  static const char* const wrong = std::getenv("EGT_WRONG_TANF");
  static const std::uint32_t mask = wrong ? 1u << std::atoi(wrong) : 0;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(call(value)) ^ mask);
}

/// With EGT_SPOILT_COPIES=RANK:BYTES:NUMBER each copy of so many bytes on that rank has a wrong bit, from
/// this number on.
struct SpoiltCopies {
  SpoiltCopies() {
    const char* const asked = std::getenv("EGT_SPOILT_COPIES");
    const char* const own = std::getenv("OMPI_COMM_WORLD_RANK");
    std::size_t rank = 0;
    if (asked == nullptr || own == nullptr) return;
    if (std::sscanf(asked, "%zu:%zu:%ld", &rank, &bytes, &left) != 3 ||
        rank != std::strtoul(own, nullptr, 10))
      bytes = 0;
  }
  std::size_t bytes = 0;
  long left = 0;
};

extern "C" void* memcpy(void* to, const void* from, std::size_t bytes) noexcept {
  auto* const out = static_cast<volatile char*>(to);  // volatile: else the loop would call memcpy
  const auto* const in = static_cast<const char*>(from);
  for (std::size_t i = 0; i < bytes; ++i) out[i] = in[i];
  if (bytes < 4096) return to;
  static SpoiltCopies spoilt;
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (bytes == spoilt.bytes && spoilt.left-- <= 0) out[0] = static_cast<char>(out[0] ^ 1);
  return to;
}

/// Strikes a copy, so that the rank's own data stay unchanged.
extern "C" int MPI_Isend(const void* data, int bytes, MPI_Datatype type, int peer, int tag, MPI_Comm comm,
                         MPI_Request* request) {
  static const auto call = real<decltype(&MPI_Isend)>("MPI_Isend");
  float* const struck = striker().struck_message(data, bytes, peer, tag);
  return call(struck ? struck : data, bytes, type, peer, tag, comm, request);
}
