#include "loadtest/images/image_folder.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#if __has_include(<stb/stb_image_write.h>)
#define STB_IMAGE_WRITE_STATIC
#define STB_IMAGE_WRITE_IMPLEMENTATION
#include <stb/stb_image_write.h>
#define EGT_TEST_WITH_STB
#endif

#include "loadtest/images/image_file.hpp"
#include "tests/support/image_fixture.hpp"

namespace egt::test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::EndsWith;
using testing::FloatEq;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;
using testing::StartsWith;

using Pixels = std::vector<float>;

/// The displayed value of a byte.
float shown(int byte) {
  return static_cast<float>(byte) / 127.5f - 1.0f;
}

class ImageFiles : public testing::Test {
 protected:
  /// The image decoded from a file with these bytes; the error is in `status_`.
  Pixels read(std::string_view bytes, std::int64_t side, const std::string& name = "a.ppm") {
    return read_path(folder_.write(name, bytes), side);
  }
  Pixels read_path(const std::string& path, std::int64_t side) {
    Pixels pixels(static_cast<std::size_t>(side * side * 3));
    status_ = read_image(path, side, pixels.data());
    return pixels;
  }
  /// The reason why a file with these bytes is invalid; it begins with the path.
  std::string why_not(std::string_view bytes, const std::string& name = "a.ppm") {
    read(bytes, 2, name);
    EXPECT_EQ(status_.code(), StatusCode::io_error);
    EXPECT_THAT(status_.what(), StartsWith(folder_.path + "/" + name));
    return status_.what();
  }
  Result<std::unique_ptr<ImageFolder>> open(const std::string& below = "") {
    return ImageFolder::open(folder_.path + below, 1, 2, {});
  }

  ScratchFolder folder_;
  Status status_;
};

TEST_F(ImageFiles, ArePpmWithCommentsAndPgm) {
  EXPECT_THAT(read("P6 # one\n#two\n2 2\n255\n\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\xff", 2),
              Pointwise(FloatEq(), {shown(1), shown(2), shown(3), shown(4), shown(5), shown(6), shown(7),
                                    shown(8), shown(9), shown(10), shown(11), 1.0f}));
  EXPECT_THAT(read("P5\n1\n1\n255\n\x40", 1), ElementsAre(shown(64), shown(64), shown(64)));
}

TEST_F(ImageFiles, AreResizedBetweenTheNearestPixels) {
  const std::string four = "P5 2 2 255\n" + std::string("\x00\x64\xc8\x64", 4);  // 0 100 / 200 100
  const Pixels larger = read(four, 4);
  const auto row = [&](std::size_t y) {
    Pixels values;
    for (std::size_t x = 0; x < 4; ++x) values.push_back((larger[(y * 4 + x) * 3] + 1) * 127.5f);
    return values;
  };
  EXPECT_THAT(row(0), Pointwise(FloatNear(1e-3f), {0.f, 25.f, 75.f, 100.f}));
  EXPECT_THAT(row(1), Pointwise(FloatNear(1e-3f), {50.f, 62.5f, 87.5f, 100.f}));
  EXPECT_THAT(row(3), Pointwise(FloatNear(1e-3f), {200.f, 175.f, 125.f, 100.f}));
  EXPECT_THAT(read(four, 1), Each(FloatNear(shown(100), 1e-6f)));
  EXPECT_THAT(read(ppm(301, 7, 9, 99, 199), 2)[5], shown(199));
  EXPECT_THAT(read(ppm(1, 1, 9, 99, 199), 50).back(), shown(199));
}

TEST_F(ImageFiles, ThatCannotBeUsedAreToldWhy) {
  EXPECT_THAT(why_not(""), EndsWith("is empty"));
  EXPECT_THAT(why_not("hello"), EndsWith("is no PPM, PNG or JPEG"));
  EXPECT_THAT(why_not("P6"), EndsWith("is no PPM of 8 bits a channel (largest value 255)"));
  EXPECT_THAT(why_not("P6 # endless"), HasSubstr("is no PPM"));
  EXPECT_THAT(why_not("P6 1 1 65535\n123456"), HasSubstr("is no PPM of 8 bits"));
  EXPECT_THAT(why_not("P6 99999999999 1 255\n123456"), HasSubstr("has no pixels"));
  EXPECT_THAT(why_not("P6 1 1 255"), EndsWith("is truncated"));
  EXPECT_THAT(why_not("P6 1 1 255\n12"), EndsWith("is truncated"));
  EXPECT_THAT(why_not("P6 0 9 255\n12"), EndsWith("has no pixels"));
  EXPECT_THAT(why_not("P6 -1 9 255\n12"), EndsWith("has no pixels"));
  EXPECT_THAT(why_not("P6 2147483647 2147483647 255\n1"),
              EndsWith("is too large: 2147483647 x 2147483647 pixels; the limit is 67108864"));
  EXPECT_THAT(why_not("P6 8193 8192 255\n1"), HasSubstr("is too large"));
  EXPECT_THAT(why_not("P6 8192 8192 255\n1"), EndsWith("is truncated")) << "just at the limit";
  const std::string large = folder_.write("large.ppm", "P6 1 1 255\n123");
  std::filesystem::resize_file(large, max_image_bytes + 1);
  read_path(large, 2);
  EXPECT_THAT(status_.what(), HasSubstr("large.ppm is too large: 536870913 bytes"));
}

TEST_F(ImageFiles, ThatAreNoFilesAreNotOpened) {
  const std::string pipe = folder_.path + "/pipe.png", link = folder_.path + "/link.png";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero"), folder_.path}) {
    read_path(path, 2);
    EXPECT_EQ(status_.what(), path + " is no regular file");
  }
  std::filesystem::create_symlink(folder_.path + "/nowhere", link);
  read_path(link, 2);
  EXPECT_EQ(status_.what(), link + ": cannot be read: No such file or directory");
}

#ifdef EGT_TEST_WITH_STB

void append(void* text, void* bytes, int size) {
  static_cast<std::string*>(text)->append(static_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

/// One color increases to the right, another downwards.
std::string gradient(int side, int channels) {
  std::string bytes;
  for (int y = 0; y < side; ++y)
    for (int x = 0; x < side; ++x)
      for (int c = 0; c < channels; ++c) bytes += static_cast<char>(c == 0 ? x * 4 : c == 1 ? y * 4 : 50);
  return bytes;
}

std::string png(int side, int channels) {
  std::string file;
  stbi_write_png_to_func(append, &file, side, side, channels, gradient(side, channels).data(), 0);
  return file;
}

std::string jpeg(int side, int channels) {
  std::string file;
  stbi_write_jpg_to_func(append, &file, side, side, channels, gradient(side, channels).data(), 95);
  return file;
}

TEST_F(ImageFiles, ArePng) {
  for (const int channels : {1, 3, 4}) {
    const Pixels pixels = read(png(40, channels), 40, "a.png");
    ASSERT_EQ(status_.what(), "");
    for (const std::size_t at : {0u, 39u, 40u, 1599u}) {
      const int x = static_cast<int>(at % 40), y = static_cast<int>(at / 40);
      EXPECT_EQ(pixels[3 * at], shown(4 * x)) << channels;
      EXPECT_EQ(pixels[3 * at + 1], shown(channels == 1 ? 4 * x : 4 * y)) << channels;
      EXPECT_EQ(pixels[3 * at + 2], shown(channels == 1 ? 4 * x : 50)) << channels;
    }
  }
}

TEST_F(ImageFiles, AreJpeg) {
  for (const int channels : {1, 3}) {
    const Pixels pixels = read(jpeg(40, channels), 40, "a.jpeg");
    ASSERT_EQ(status_.what(), "");
    for (std::size_t at = 0; at < 1600; at += 7) {
      const int x = static_cast<int>(at % 40), y = static_cast<int>(at / 40);
      EXPECT_NEAR(pixels[3 * at], shown(4 * x), 0.08) << channels;
      EXPECT_NEAR(pixels[3 * at + 1], shown(channels == 1 ? 4 * x : 4 * y), 0.08) << channels;
    }
  }
  EXPECT_EQ(read(jpeg(16, 3) + "and more behind it", 4, "more.jpg"), read(jpeg(16, 3), 4, "a.jpg"));
}

TEST_F(ImageFiles, OfPngAndJpegThatAreTruncatedAreToldSo) {
  for (const bool is_png : {true, false}) {
    const std::string whole = is_png ? png(40, 3) : jpeg(40, 3);
    for (const std::size_t size :
         {std::size_t{8}, std::size_t{40}, whole.size() / 2, whole.size() - 40, whole.size() - 2}) {
      if (is_png && size == whole.size() - 2) continue;  // the checksum of the last, empty chunk
      EXPECT_THAT(why_not(whole.substr(0, size), "cut.jpg"),
                  testing::AnyOf(HasSubstr("cannot be decoded: "), EndsWith("is truncated")))
          << size;
    }
  }
  EXPECT_THAT(why_not(jpeg(200, 3).substr(0, jpeg(200, 3).size() / 2)), EndsWith("is truncated"));
}

TEST_F(ImageFiles, OfPngMayNotTakeAllMemory) {
  std::string hostile = png(40, 3);
  for (const std::size_t at : {16u, 20u}) hostile.replace(at, 4, std::string("\x00\x10\x00\x00", 4));  // 2^20
  EXPECT_THAT(why_not(hostile, "huge.png"), HasSubstr("too large"));
  hostile.replace(16, 8, std::string("\x00\x00\x20\x00\x00\x00\x20\x01", 8));
  EXPECT_THAT(why_not(hostile, "huge.png"), HasSubstr("is too large: 8192 x 8193 pixels"));
}

#endif

/// Label by color: the red byte identifies the file.
std::map<int, int> labels_of_reds(const ImageFolder& set, const ImageBatch& batch) {
  const MadeBatch made = made_by(set, batch);
  std::map<int, int> labels;
  for (std::size_t i = 0; i < made.labels.size(); ++i)
    labels[static_cast<int>((made.pixels[i * 12] + 1) * 127.5f + 0.5f)] = made.labels[i];
  return labels;
}

TEST_F(ImageFiles, HaveTheirFoldersAsClasses) {
  folder_.write("a-b/x.PPM", ppm(1, 1, 10, 0, 0));
  folder_.write("a/deep/y.ppm", ppm(1, 1, 20, 0, 0));
  folder_.write("a/z.ppm", ppm(1, 1, 21, 0, 0));
  folder_.write("ü ñ/Bild ä.ppm", ppm(1, 1, 30, 0, 0));
  folder_.write("none/readme.txt", "no image");
  folder_.write("beside.ppm", ppm(1, 1, 40, 0, 0));
  std::filesystem::create_directory_symlink("..", folder_.path + "/a/loop");
  std::filesystem::create_directory_symlink("a-b", folder_.path + "/linked");
  auto set = open();
  ASSERT_TRUE(set.ok()) << set.status().what();
  EXPECT_EQ(set.value()->classes(), 4);
  EXPECT_EQ(set.value()->files(), 5);
  EXPECT_EQ(set.value()->left_out(), 1);
  EXPECT_EQ(set.value()->complaint(), "1 images are next to the class folders");
  std::map<int, int> labels = labels_of_reds(*set.value(), {.images = 5});
  EXPECT_EQ(labels[20], 0) << "a is before a-b";
  EXPECT_EQ(labels[21], 0);
  EXPECT_EQ(labels[30], 3);
  EXPECT_THAT(labels[10], testing::AnyOf(1, 2)) << "the same file is in the folder and behind the link";
}

TEST_F(ImageFiles, WithoutFoldersHaveClassesByTheHashOfTheirNames) {
  for (int i = 0; i < 100; ++i) folder_.write(std::to_string(i) + ".ppm", ppm(1, 1, std::uint8_t(i), 0, 0));
  auto set = std::move(open("/").value());
  EXPECT_EQ(set->classes(), ImageFolder::hashed_classes);
  std::set<int> classes;
  for (const auto& [red, label] : labels_of_reds(*set, {.images = 100})) classes.insert(label);
  EXPECT_GT(classes.size(), 12u);
  EXPECT_LT(*classes.rbegin(), 16);
  EXPECT_EQ(set->complaint(), "");
}

TEST_F(ImageFiles, AreEachTakenOnceAnEpochByAllRanksTogether) {
  for (int i = 0; i < 24; ++i)
    folder_.write(std::to_string(10 + i) + ".ppm", ppm(1, 1, std::uint8_t(i), 0, 0));
  const auto set = std::move(open().value());
  std::vector<std::vector<int>> epochs(2);
  for (std::uint64_t step = 0; step < 6; ++step)
    for (int rank = 0; rank < 2; ++rank) {
      const MadeBatch made = made_by(*set, {.step = step, .rank = rank, .ranks = 2, .images = 4});
      for (std::size_t i = 0; i < 4; ++i)
        epochs[step / 3].push_back(static_cast<int>((made.pixels[i * 12] + 1) * 127.5f + 0.5f));
    }
  EXPECT_NE(epochs[0], epochs[1]);
  for (std::vector<int>& reds : epochs) {
    int neighbors = 0;
    for (std::size_t i = 1; i < 24; ++i) neighbors += reds[i] == (reds[i - 1] + 1) % 24;
    EXPECT_LT(neighbors, 8) << "files of a class would come together";
    std::sort(reds.begin(), reds.end());
    for (int i = 0; i < 24; ++i) EXPECT_EQ(reds[static_cast<std::size_t>(i)], i);
  }
}

TEST_F(ImageFiles, ThatAreBadAreSkippedAndCountedAndBitsAreAlikeForAnyNumberOfWorkers) {
  for (int i = 0; i < 20; ++i)
    folder_.write("c/" + std::to_string(i) + ".ppm", i % 4 == 1 ? "hello" : ppm(3, 3, std::uint8_t(i), 0, 0));
  ASSERT_EQ(::mkfifo((folder_.path + "/c/pipe.jpg").c_str(), 0600), 0);
  std::vector<MadeBatch> first;
  for (const int workers : {1, 3}) {
    const auto set = std::move(open().value());
    FeedTarget target(7, set->values());
    {
      const auto feed = std::move(
          make_image_loader(*target.device, *set, {.first = {.images = 7}, .workers = workers}).value());
      for (std::size_t step = 0; step < 6; ++step) {
        const MadeBatch made = target.next(*feed);
        if (workers == 1) first.push_back(made);
        EXPECT_EQ(made, first[step]);
      }
    }
    EXPECT_EQ(set->bad_files(), 6);
    EXPECT_THAT(set->complaint(), StartsWith("6 of 21 files cannot be used, the first: " + folder_.path));
  }
}

TEST_F(ImageFiles, OfWhichNoneIsGoodAreAnError) {
  folder_.write("a/1.ppm", "hello");
  folder_.write("a/2.ppm", "");
  const Status status = open().status();
  EXPECT_EQ(status.code(), StatusCode::unavailable);
  EXPECT_THAT(status.what(),
              StartsWith(folder_.path + ": none of its 2 images can be used: " + folder_.path));
}

TEST_F(ImageFiles, FoldersWithoutImagesAreToldSo) {
  EXPECT_EQ(open().status().what(), folder_.path + " has no image (.ppm, .png, .jpg, .jpeg)");
  EXPECT_THAT(open("/not there").status().what(), HasSubstr("/not there/: cannot be listed: No such file"));
  const std::string file = folder_.write("a.ppm", ppm(1, 1, 0, 0, 0));
  EXPECT_THAT(open("/a.ppm").status().what(), HasSubstr("a.ppm/: cannot be listed: Not a directory"));
  EXPECT_EQ(open("/a.ppm").status().code(), StatusCode::unavailable);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(ImageFolder::open(folder_.path, 1, 2, stop.get_token()).status().code(), StatusCode::stopped);
}

TEST(ImageNames, EndAsImagesDo) {
  for (const char* name : {"a.ppm", "a.PNG", ".jpg", "a.b.JpEg"}) EXPECT_TRUE(is_image_name(name)) << name;
  for (const char* name : {"", "png", "a.png.txt", "a.gif", "a.", "jpg.d"})
    EXPECT_FALSE(is_image_name(name)) << name;
}

}  // namespace
}  // namespace egt::test
