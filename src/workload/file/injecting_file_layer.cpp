#include "workload/file/injecting_file_layer.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "egt/core/file_io.hpp"
#include "workload/file/file_block.hpp"

namespace egt {
namespace {

constexpr std::uint64_t for_good = ~std::uint64_t{0};

/// A write of whole blocks.
struct Write {
  const std::uint32_t* words;
  std::uint64_t blocks;
  std::uint64_t offset;  ///< bytes

  std::uint64_t place(std::uint64_t block) const { return offset + block * file_block_bytes; }
  const std::uint32_t* block(std::uint64_t index) const { return words + index * file_block_words; }
};

/// Corrupted blocks of a file, kept from one opening for writing to the next.
struct Corruption {
  std::vector<std::uint64_t> now;     ///< offsets of blocks corrupted now
  std::vector<std::uint64_t> before;  ///< offsets without a right block at the previous opening

  bool was(std::uint64_t offset) const {
    return std::find(before.begin(), before.end(), offset) != before.end();
  }
};

/// State shared by all files of a layer.
struct Shared {
  std::unique_ptr<FileLayer> layer;
  Injector& injector;
  std::function<std::int64_t()> step;
  std::uint64_t seed;
  std::map<std::string, Corruption> spoiled;
  std::uint64_t refusals = 0;  ///< writes that the full disk will still refuse

  Status refuse_if_full(const std::string& path, std::uint64_t offset);
};

Status Shared::refuse_if_full(const std::string& path, std::uint64_t offset) {
  if (const auto due = injector.take(InjectionKind::diskfull, step())) {
    refusals = due->count > 1 ? due->count : for_good;
    injector.report(*due, step(), fmt::format("{}, byte {}: disk full", path, offset));
  }
  if (refusals == 0) return {};
  if (refusals != for_good) --refusals;
  return file_error(path, fmt::format("cannot write at byte {}", offset), ENOSPC);
}

class InjectingFile : public OpenFile {
 public:
  InjectingFile(std::unique_ptr<OpenFile> file, Shared& shared, std::string path, std::uint64_t old_size,
                bool direct)
      : file_(std::move(file)),
        shared_(shared),
        path_(std::move(path)),
        old_size_(old_size),
        direct_(direct),
        spoiled_(shared.spoiled[path_]) {
    spoiled_.before = std::exchange(spoiled_.now, {});
  }

  Status write(const void* data, std::size_t bytes, std::uint64_t offset) override;
  Status read(void* data, std::size_t bytes, std::uint64_t offset) override {
    return file_->read(data, bytes, offset);
  }
  Result<std::uint64_t> size() override { return file_->size(); }
  Status sync() override { return file_->sync(); }
  Result<bool> drop_cache() override { return file_->drop_cache(); }

 private:
  /// A chosen injection and its location.
  struct Strike {
    Injection injection;
    std::uint64_t block = 0;  ///< index in the write, from 0
    Flip flip;                ///< words of the block to flip
  };
  /// Effect of an injection on its block.
  struct Damage {
    std::uint64_t place;  ///< offset in bytes at which it is visible
    std::string what;
    std::optional<FileBlock> instead;  ///< data written instead; empty: none
  };

  std::optional<Strike> choose(const Write& write);
  std::optional<std::uint64_t> choose_block(InjectionKind kind, const Write& write, std::uint64_t wish) const;
  bool allows(InjectionKind kind, const Write& write, std::uint64_t block) const;
  bool written_before(std::uint64_t place) const { return place + file_block_bytes <= old_size_; }
  Status strike(const Write& write, const Strike& strike);
  Result<Damage> damage_of(const Write& write, const Strike& strike);
  Status write_part(const Write& write, std::uint64_t from, std::uint64_t to);
  Result<FileBlock> held_at(std::uint64_t place);
  std::uint64_t other_place(const Write& write, std::uint64_t block) const;
  void report(const Strike& strike, const Damage& damage);

  const std::unique_ptr<OpenFile> file_;
  Shared& shared_;
  const std::string path_;
  const std::uint64_t old_size_;  ///< size in bytes when opened: this much was written before
  const bool direct_;
  Corruption& spoiled_;
  bool struck_ = false;
  alignas(file_block_bytes) FileBlock aligned_{};  ///< aligned for direct I/O
};

Status InjectingFile::write(const void* data, std::size_t bytes, std::uint64_t offset) {
  EGT_TRY(shared_.refuse_if_full(path_, offset));
  const Write write{static_cast<const std::uint32_t*>(data), bytes / file_block_bytes, offset};
  if (const std::optional<Strike> chosen = struck_ ? std::nullopt : choose(write)) {
    struck_ = true;
    return strike(write, *chosen);
  }
  return file_->write(data, bytes, offset);
}

std::optional<InjectingFile::Strike> InjectingFile::choose(const Write& write) {
  const std::int64_t step = shared_.step();
  for (const InjectionRow& row : injection_rows) {
    const InjectionKind kind = row.kind;
    if (!is_of_files(kind) || !row.changes_data() || !choose_block(kind, write, 0)) continue;
    const std::optional<Injection> due = shared_.injector.take(kind, step);
    if (!due) continue;
    const std::uint64_t words = write.blocks * file_block_words;
    Strike chosen{*due, 0, choose_flip(*due, words, shared_.seed)};
    chosen.block = *choose_block(kind, write, chosen.flip.first / file_block_words);
    chosen.flip.first %= file_block_words;
    chosen.flip.count = choose_flip(*due, file_block_words, shared_.seed).count;  // flips each word once
    if (kind != InjectionKind::file_bit) chosen.flip = {.first = 0, .mask = 0};
    return chosen;
  }
  return std::nullopt;
}

/// The first block from `wish` on (cyclic) to which the kind is applicable.
std::optional<std::uint64_t> InjectingFile::choose_block(InjectionKind kind, const Write& write,
                                                         std::uint64_t wish) const {
  for (std::uint64_t i = 0; i < write.blocks; ++i)
    if (const std::uint64_t block = (wish + i) % write.blocks; allows(kind, write, block)) return block;
  return std::nullopt;
}

/// A stale or misplaced block leaves the old content at its place. Stale: it must be a right block of this
/// run. Misplaced: it may also be unwritten, except at the end, where the file would be too short.
bool InjectingFile::allows(InjectionKind kind, const Write& write, std::uint64_t block) const {
  const std::uint64_t place = write.place(block);
  const bool last = block + 1 == write.blocks;
  if (kind == InjectionKind::file_stale) return written_before(place) && !spoiled_.was(place);
  if (kind == InjectionKind::file_misplaced)
    return other_place(write, block) != place && !spoiled_.was(place) && (written_before(place) || !last);
  return true;
}

/// The next block of the write, else the previous one.
std::uint64_t InjectingFile::other_place(const Write& write, std::uint64_t block) const {
  if (block + 1 < write.blocks) return write.place(block + 1);
  return write.place(block) - (write.place(block) > 0 ? file_block_bytes : 0);
}

Status InjectingFile::strike(const Write& write, const Strike& strike) {
  EGT_TRY_ASSIGN(const Damage damage, damage_of(write, strike));
  EGT_TRY(write_part(write, 0, strike.block));
  EGT_TRY(write_part(write, strike.block + 1, write.blocks));
  if (damage.instead) {
    aligned_ = *damage.instead;
    EGT_TRY(file_->write(aligned_.data(), file_block_bytes, damage.place));
  }
  spoiled_.now = {write.place(strike.block), damage.place};
  report(strike, damage);
  return {};
}

Result<InjectingFile::Damage> InjectingFile::damage_of(const Write& write, const Strike& strike) {
  const std::uint64_t place = write.place(strike.block);
  FileBlock block;
  std::memcpy(block.data(), write.block(strike.block), file_block_bytes);
  switch (strike.injection.kind) {
    case InjectionKind::file_stale:
      return Damage{place, "not written again", std::nullopt};
    case InjectionKind::file_lost:
      return Damage{place, "zeros instead of it", FileBlock{}};
    case InjectionKind::file_misplaced:
      return Damage{other_place(write, strike.block),
                    fmt::format("the block of byte {} written there", place), block};
    case InjectionKind::file_torn: {
      EGT_TRY_ASSIGN(FileBlock half, held_at(place));
      std::memcpy(half.data(), block.data(), file_block_bytes / 2);
      return Damage{place, "only its first half written", half};
    }
    default:
      break;
  }
  for (std::uint64_t i = 0; i < strike.flip.count; ++i) {
    std::uint32_t& word = block[(strike.flip.first + i * strike.flip.stride) % file_block_words];
    word = strike.flip(word);
  }
  return Damage{place, "bits flipped", block};
}

Status InjectingFile::write_part(const Write& write, std::uint64_t from, std::uint64_t to) {
  if (from == to) return {};
  return file_->write(write.block(from), (to - from) * file_block_bytes, write.place(from));
}

/// The block's content on the disk; zeros if not written yet.
Result<FileBlock> InjectingFile::held_at(std::uint64_t place) {
  if (!written_before(place)) return FileBlock{};
  EGT_TRY_ASSIGN(const std::unique_ptr<OpenFile> old, shared_.layer->open(path_, FileAccess::read, direct_));
  EGT_TRY(old->read(aligned_.data(), file_block_bytes, place));
  return aligned_;
}

void InjectingFile::report(const Strike& strike, const Damage& damage) {
  Flip flip = strike.flip;
  flip.first += damage.place / sizeof(std::uint32_t);
  shared_.injector.report(
      strike.injection, shared_.step(), flip,
      fmt::format("{}, block {}: {}", path_, damage.place / file_block_bytes, damage.what));
}

class InjectingFileLayer : public FileLayer {
 public:
  explicit InjectingFileLayer(Shared shared) : shared_(std::move(shared)) {}

  Result<DiskSpace> space(const std::string& directory) override { return shared_.layer->space(directory); }
  FileSystem file_system(const std::string& directory) override {
    return shared_.layer->file_system(directory);
  }
  Result<std::unique_ptr<FileClaim>> claim(const std::string& path) override {
    return shared_.layer->claim(path);
  }
  Leftovers remove_leftovers(const std::string& directory, const std::string& hostname) override {
    return shared_.layer->remove_leftovers(directory, hostname);
  }
  Status remove(const std::string& path) override { return shared_.layer->remove(path); }
  Result<std::unique_ptr<OpenFile>> open(const std::string& path, FileAccess access, bool direct) override {
    EGT_TRY_ASSIGN(std::unique_ptr<OpenFile> file, shared_.layer->open(path, access, direct));
    if (access == FileAccess::read) return file;
    EGT_TRY_ASSIGN(const std::uint64_t size, file->size());
    return std::unique_ptr<OpenFile>(new InjectingFile(std::move(file), shared_, path, size, direct));
  }

 private:
  Shared shared_;
};

}  // namespace

std::unique_ptr<FileLayer> make_injecting_file_layer(std::unique_ptr<FileLayer> layer, Injector& injector,
                                                     std::function<std::int64_t()> step, std::uint64_t seed) {
  return std::make_unique<InjectingFileLayer>(Shared{.layer = std::move(layer),
                                                     .injector = injector,
                                                     .step = std::move(step),
                                                     .seed = seed,
                                                     .spoiled = {},
                                                     .refusals = 0});
}

}  // namespace egt
