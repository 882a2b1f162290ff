#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <vector>

#include "device/host/host_loops.hpp"
#include "device/host/host_operations.hpp"

namespace egt::host {
namespace {

/// 4 MiB; a power of two, so that a chunk's indices share their upper 32 bits.
constexpr std::int64_t chunk_words = 1 << 20;
/// Words that are compared one by one after a mismatch within them.
constexpr std::uint64_t block_words = 1024;

/// Within one chunk: calls f with the fast form of `pattern`.
template <typename F>
void with_pattern(const Pattern& pattern, std::uint64_t begin, const F& f) {
  const PatternFunction function(pattern);
  const auto high = static_cast<std::uint32_t>(begin >> 32);
  if (function.is_contribution())
    f(SingleWords{function, std::uint64_t{high} << 32});
  else if (function.is_regular())
    f(function.regular_block(high));
  else if (function.is_operands())
    f(function.operand_block(high));
  else
    f(function.block(high));
}

/// Calls f(i, pattern word) for indices from `begin`, a multiple of four, to `end`.
template <typename Words, typename F>
void for_words(const Words& words, std::uint64_t begin, std::uint64_t end, const F& f) {
  const std::uint64_t whole = begin + (end - begin) / 4 * 4;
  for (std::uint64_t i = begin; i < whole; i += 4) {
    const FourWords four = words.four(static_cast<std::uint32_t>(i));
    for (std::uint64_t k = 0; k < 4; ++k) f(i + k, four.word[k]);
  }
  for (std::uint64_t i = whole; i < end; ++i) f(i, words(static_cast<std::uint32_t>(i)));
}

EGT_FOR_EVERY_CPU void fill_range(std::uint32_t* words, const Pattern& pattern, std::uint64_t begin,
                                  std::uint64_t end) {
  with_pattern(pattern, begin, [&](const auto& pattern_words) {
    for_words(pattern_words, begin, end, [=](std::uint64_t i, std::uint32_t word) { words[i] = word; });
  });
}

/// Also increments `count`, because the word was counted as equal before.
void add_mismatch(Mismatches& report, std::uint64_t index, std::uint32_t expected, std::uint32_t actual) {
  ++report.count;
  report.first_index = std::min(report.first_index, index);
  report.xor_or |= expected ^ actual;
  report.xor_and &= expected ^ actual;
  if (const std::uint64_t slot = report.samples++; slot < Mismatches::max_samples)
    report.sample[slot] = {index, expected, actual, static_cast<std::uint32_t>(sched_getcpu()),
                           static_cast<std::uint32_t>(index / chunk_words)};
}

void add_report(Mismatches& report, const Mismatches& other) {
  report.count += other.count;
  report.first_index = std::min(report.first_index, other.first_index);
  report.xor_or |= other.xor_or;
  report.xor_and &= other.xor_and;
  constexpr std::uint64_t limit = Mismatches::max_samples;
  for (std::uint64_t i = 0; i < std::min(other.samples, limit) && report.samples + i < limit; ++i)
    report.sample[report.samples + i] = other.sample[i];
  report.samples += other.samples;
}

/// Per block, ORs all differences, and compares single words only if the result is not 0. The returned
/// `count` is the change of the caller's count: minus the equal words (modulo 2^64).
EGT_FOR_EVERY_CPU Mismatches verify_range(const std::uint32_t* words, const Pattern& expected,
                                          std::uint64_t begin, std::uint64_t end) {
  Mismatches report = Mismatches::none();
  with_pattern(expected, begin, [&](const auto& pattern_words) {
    for (std::uint64_t block = begin; block < end; block += block_words) {
      const std::uint64_t block_end = std::min(end, block + block_words);
      std::uint32_t difference = 0;
      for_words(pattern_words, block, block_end,
                [&](std::uint64_t i, std::uint32_t word) { difference |= words[i] ^ word; });
      report.count -= block_end - block;
      if (difference == 0) continue;
      for_words(pattern_words, block, block_end, [&](std::uint64_t i, std::uint32_t word) {
        if (words[i] != word) add_mismatch(report, i, word, words[i]);
      });
    }
  });
  return report;
}

/// Works in pieces that stay in the cache between verification and rewrite.
Mismatches verify_and_fill_range(std::uint32_t* words, const Pattern& expected, const Pattern& next,
                                 Direction direction, std::uint64_t begin, std::uint64_t end) {
  Mismatches report = Mismatches::none();
  constexpr std::uint64_t piece_words = 4 * block_words;
  const std::uint64_t pieces = (end - begin + piece_words - 1) / piece_words;
  for (std::uint64_t i = 0; i < pieces; ++i) {
    const std::uint64_t piece = direction == Direction::ascending ? i : pieces - 1 - i;
    const std::uint64_t first = begin + piece * piece_words, last = std::min(end, first + piece_words);
    add_report(report, verify_range(words, expected, first, last));
    fill_range(words, next, first, last);
  }
  return report;
}

/// `terms`: `count` vectors of `elements` elements, contiguous.
template <typename T>
EGT_FOR_EVERY_CPU Mismatches verify_sum_range(const T* sum, const T* terms, int count, std::uint64_t elements,
                                              std::uint64_t begin, std::uint64_t end) {
  Mismatches report = Mismatches::none();
  for (std::uint64_t i = begin; i < end; ++i) {
    --report.count;
    math::SumOfTerms exact;
    for (int k = 0; k < count; ++k)
      exact.add(Element<T>::load(terms[static_cast<std::uint64_t>(k) * elements + i]));
    if (!exact.allows(sum[i])) add_mismatch(report, i, bits_of(exact.template nearest<T>()), bits_of(sum[i]));
  }
  return report;
}

/// *report += check(begin, end) over all chunks in `direction`.
template <typename Check>
void run_check(std::uint64_t elements, Direction direction, Mismatches* report, HostStream& stream,
               const Check& check) {
  const auto count = static_cast<std::int64_t>(elements);
  const std::int64_t chunks = (count + chunk_words - 1) / chunk_words;
  std::vector<Mismatches> reports(static_cast<std::size_t>(chunks));
  stream.share(chunks, [&](std::int64_t i) {
    const std::int64_t chunk = direction == Direction::ascending ? i : chunks - 1 - i;
    reports[static_cast<std::size_t>(i)] =
        check(static_cast<std::uint64_t>(chunk * chunk_words),
              static_cast<std::uint64_t>(std::min(count, (chunk + 1) * chunk_words)));
  });
  for (const Mismatches& of_chunk : reports) add_report(*report, of_chunk);
}

/// *out = the digest of word_of(words[i]) over all i. The terms are integers, so their order does not matter.
template <typename WordOf>
void run_digest(WordsView words, Digest* out, HostStream& stream, std::int64_t chunk, const WordOf& word_of) {
  std::atomic<std::uint64_t> total_a{0}, total_b{0};
  for_ranges(stream, static_cast<std::int64_t>(words.count), chunk,
             [&](std::int64_t begin, std::int64_t end) {
               std::uint64_t a = 0, b = 0;
               for (std::int64_t i = begin; i < end; ++i)
                 add_to_digest(a, b, static_cast<std::uint64_t>(i), word_of(words.data[i]));
               total_a += a;
               total_b += b;
             });
  *out = {total_a, total_b};
}

}  // namespace

void run(const Fill& call, HostStream& stream) {
  const auto& [words, pattern] = call;
  for_ranges(
      stream, static_cast<std::int64_t>(words.count), chunk_words, [&](std::int64_t begin, std::int64_t end) {
        fill_range(words.data, pattern, static_cast<std::uint64_t>(begin), static_cast<std::uint64_t>(end));
      });
}

void run(const Reset& call, HostStream&) {
  *call.report = Mismatches::none();
}

void run(const Verify& call, HostStream& stream) {
  const auto& [words, expected, report, miscomputed] = call;
  run_check(words.count, Direction::ascending, report, stream, [&](std::uint64_t begin, std::uint64_t end) {
    Mismatches found = verify_range(words.data, expected, begin, end);
    if (const std::uint64_t i = miscomputed.first; miscomputed.count > 0 && begin <= i && i < end)
      add_mismatch(found, i, miscomputed(PatternFunction(expected)(i)), words.data[i]);
    return found;
  });
}

void run(const VerifyAndFill& call, HostStream& stream) {
  const auto& [words, expected, next, direction, report] = call;
  run_check(words.count, direction, report, stream, [&](std::uint64_t begin, std::uint64_t end) {
    return verify_and_fill_range(words.data, expected, next, direction, begin, end);
  });
}

void run(const VerifySum& call, HostStream& stream) {
  const auto& [sum, terms, count, report] = call;
  const auto elements = static_cast<std::uint64_t>(sum.count);
  const auto check = [&]<typename T>(std::type_identity<T>) {
    run_check(elements, Direction::ascending, report, stream, [&](std::uint64_t begin, std::uint64_t end) {
      return verify_sum_range(static_cast<const T*>(sum.data), static_cast<const T*>(terms), count, elements,
                              begin, end);
    });
  };
  sum.type == ElementType::bf16 ? check(std::type_identity<Bfloat16>{}) : check(std::type_identity<float>{});
}

void run(const DigestWords& call, HostStream& stream) {
  run_digest(call.words, call.digest, stream, chunk_words, [](std::uint32_t word) { return word; });
}

void run(const SumWords& call, HostStream& stream) {
  const auto& [words, sums] = call;
  std::atomic<std::uint64_t> total{0};
  for_ranges(stream, static_cast<std::int64_t>(words.count), chunk_words,
             [&](std::int64_t begin, std::int64_t end) {
               total += std::accumulate(words.data + begin, words.data + end, std::uint64_t{0});
             });
  *sums = {total, 0};
}

void run(const SineExponential& call, HostStream& stream) {
  run_digest(call.words, call.digest, stream, costly_chunk_elements,
             [iterations = call.iterations](std::uint32_t word) {
               return float_bits(math::sine_exponential(float_from_bits(word), iterations));
             });
}

void run(const FlipWords& call, HostStream&) {
  const auto& [words, flip] = call;
  if (flip.count == 0) return;
  const std::uint64_t stride = flip.stride % words.count;
  std::uint64_t place = flip.first % words.count;
  for (std::uint64_t i = 0; i < flip.count; ++i) {
    words.data[place] = flip(words.data[place]);
    place += place < words.count - stride ? stride : stride - words.count;
  }
}

}  // namespace egt::host
