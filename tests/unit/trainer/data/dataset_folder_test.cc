#include "trainer/data/dataset_folder.h"

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/trainer/data/idx_bytes.h"

namespace lenet {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr char kTrainImages[] = "train-images-idx3-ubyte";
constexpr char kTrainLabels[] = "train-labels-idx1-ubyte";
constexpr char kTestImages[] = "t10k-images-idx3-ubyte";
constexpr char kTestLabels[] = "t10k-labels-idx1-ubyte";

class DatasetFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = fs::canonical(temp_.path());
    folder_ = root_ / "set";
    fs::create_directory(folder_);
    PutFile(folder_ / kTrainImages, ImagesIdx(6, 4, 5));
    PutFile(folder_ / kTrainLabels, LabelsIdx({0, 1, 2, 2, 1, 0}));
    PutFile(folder_ / kTestImages, ImagesIdx(2, 4, 5));
    PutFile(folder_ / kTestLabels, LabelsIdx({2, 0}));
  }

  absl::StatusOr<Dataset> Load() const {
    const absl::StatusOr<DatasetFiles> files = FindDatasetFiles(folder_, root_);
    if (!files.ok()) return files.status();
    return LoadDataset("set", *files);
  }
  absl::StatusOr<DatasetHeaders> Headers() const {
    const absl::StatusOr<DatasetFiles> files = FindDatasetFiles(folder_, root_);
    if (!files.ok()) return files.status();
    return ReadDatasetHeaders(*files);
  }

  // The load's error names the file, the offset and each of `parts`.
  void ExpectInvalid(const char* file, int offset, const std::vector<std::string>& parts) const {
    const absl::Status status = Load().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    const std::string message(status.message());
    EXPECT_THAT(message, HasSubstr(absl::StrCat("'", (folder_ / file).string(), "': offset ", offset)));
    for (const std::string& part : parts) EXPECT_THAT(message, HasSubstr(part));
  }

  TempFolder temp_;
  fs::path root_;
  fs::path folder_;
};

TEST_F(DatasetFolderTest, LoadsTheFourFiles) {
  const absl::StatusOr<Dataset> dataset = Load();
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->name, "set");
  EXPECT_EQ(dataset->classes, 3);
  EXPECT_EQ(dataset->train.shape, (ImageShape{1, 4, 5}));
  EXPECT_EQ(dataset->train.count, 6);
  EXPECT_EQ(dataset->train.images.size(), 120u);
  EXPECT_EQ(dataset->train.images[119], static_cast<uint8_t>(119 * 7));
  EXPECT_EQ(dataset->train.labels, (Bytes{0, 1, 2, 2, 1, 0}));
  EXPECT_EQ(dataset->test.shape, (ImageShape{1, 4, 5}));
  EXPECT_EQ(dataset->test.count, 2);
  EXPECT_EQ(dataset->test.images.size(), 40u);
  EXPECT_EQ(dataset->test.labels, (Bytes{2, 0}));
}

TEST_F(DatasetFolderTest, ReadsTheHeaders) {
  const absl::StatusOr<DatasetHeaders> headers = Headers();
  ASSERT_TRUE(headers.ok()) << headers.status();
  EXPECT_EQ(headers->shape, (ImageShape{1, 4, 5}));
  EXPECT_EQ(headers->train_count, 6);
  EXPECT_EQ(headers->test_count, 2);
}

TEST_F(DatasetFolderTest, PrefersThePlainFileToGzip) {
  PutFile(folder_ / absl::StrCat(kTestLabels, ".gz"), Gzip(LabelsIdx({1, 1})));
  EXPECT_EQ(Load()->test.labels, (Bytes{2, 0}));
  fs::remove(folder_ / kTestLabels);
  EXPECT_EQ(Load()->test.labels, (Bytes{1, 1}));
}

TEST_F(DatasetFolderTest, TellsGzipByContentNotByName) {
  PutFile(folder_ / kTestLabels, Gzip(LabelsIdx({1, 1})));
  EXPECT_EQ(Load()->test.labels, (Bytes{1, 1}));
  fs::remove(folder_ / kTestLabels);
  PutFile(folder_ / absl::StrCat(kTestLabels, ".gz"), LabelsIdx({1, 2}));
  EXPECT_EQ(Load()->test.labels, (Bytes{1, 2}));
}

TEST_F(DatasetFolderTest, NamesTheFileThatIsMissing) {
  for (const char* name : {kTrainImages, kTrainLabels, kTestImages, kTestLabels}) {
    fs::rename(folder_ / name, root_ / "aside");
    const absl::Status status = Load().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr((folder_ / name).string()), HasSubstr("missing")));
    fs::rename(root_ / "aside", folder_ / name);
  }
}

TEST_F(DatasetFolderTest, IsOneWithAnyOfTheFiles) {
  EXPECT_TRUE(IsDatasetFolder(folder_));
  EXPECT_FALSE(IsDatasetFolder(root_));
  EXPECT_FALSE(IsDatasetFolder(root_ / "none"));
  fs::create_directory(root_ / "other");
  PutFile(root_ / "other" / "t10k-labels-idx1-ubyte.gz", {});
  EXPECT_TRUE(IsDatasetFolder(root_ / "other"));
}

TEST_F(DatasetFolderTest, CountsThatDiffer) {
  PutFile(folder_ / kTrainLabels, LabelsIdx({0, 1, 2, 2, 1}));
  ExpectInvalid(kTrainLabels, 4, {"5 labels", (folder_ / kTrainImages).string(), "6 images"});
  EXPECT_THAT(std::string(Headers().status().message()), AllOf(HasSubstr("5 labels"), HasSubstr("6 images")));
}

TEST_F(DatasetFolderTest, TestCountsThatDiffer) {
  PutFile(folder_ / kTestLabels, Gzip(LabelsIdx({0, 1, 2})));
  ExpectInvalid(kTestLabels, 4, {"after decompression", "3 labels", "2 images"});
}

TEST_F(DatasetFolderTest, ImageSizesThatDiffer) {
  PutFile(folder_ / kTestImages, ImagesIdx(2, 5, 4));
  ExpectInvalid(kTestImages, 8, {"5x4", "4x5", (folder_ / kTrainImages).string()});
  EXPECT_THAT(std::string(Headers().status().message()), AllOf(HasSubstr("5x4"), HasSubstr("4x5")));
}

TEST_F(DatasetFolderTest, ATestLabelOutOfRange) {
  PutFile(folder_ / kTestLabels, LabelsIdx({2, 3}));
  ExpectInvalid(kTestLabels, 9, {"label 3", (folder_ / kTrainLabels).string(), "is 2"});
  PutFile(folder_ / kTestLabels, Gzip(LabelsIdx({255, 3})));
  ExpectInvalid(kTestLabels, 8, {"after decompression", "label 255"});
}

TEST_F(DatasetFolderTest, FewerThanTwoClasses) {
  PutFile(folder_ / kTrainLabels, LabelsIdx({0, 0, 0, 0, 0, 0}));
  ExpectInvalid(kTrainLabels, 8, {"all 6 labels are 0", "2 classes"});
}

TEST_F(DatasetFolderTest, TakesAllThe256ClassesOfAByte) {
  PutFile(folder_ / kTrainLabels, LabelsIdx({0, 255, 2, 2, 1, 0}));
  EXPECT_EQ(Load()->classes, 256);
}

TEST_F(DatasetFolderTest, AFileIsReadThroughALinkOnlyWithinTheRoot) {
  TempFolder outside;
  for (const bool within : {true, false}) {
    const fs::path target = within ? root_ / "elsewhere" : fs::canonical(outside.path()) / "secret";
    fs::rename(folder_ / kTrainLabels, root_ / "aside");
    fs::copy(root_ / "aside", target);
    fs::create_symlink(target, folder_ / kTrainLabels);
    const absl::Status status = Load().status();
    EXPECT_EQ(status.ok(), within) << status;
    if (!within) {
      EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr((folder_ / kTrainLabels).string()), HasSubstr(target.string()), HasSubstr("link")));
    }
    fs::remove(folder_ / kTrainLabels);
    fs::rename(root_ / "aside", folder_ / kTrainLabels);
  }
}

TEST(IsWithinTest, ComparesWholeComponents) {
  EXPECT_TRUE(IsWithin("/a/b/c", "/a/b"));
  EXPECT_TRUE(IsWithin("/a/b", "/a/b"));
  EXPECT_TRUE(IsWithin("/a", "/"));
  EXPECT_FALSE(IsWithin("/a/bc", "/a/b"));
  EXPECT_FALSE(IsWithin("/a", "/a/b"));
  EXPECT_FALSE(IsWithin("/b/a/b", "/a/b"));
}

}  // namespace
}  // namespace lenet
