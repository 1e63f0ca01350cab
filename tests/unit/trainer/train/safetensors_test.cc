#include "trainer/train/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "tests/support/temp_folder.h"

namespace lenet {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> Bytes(const std::string& text) {
  const auto view = std::as_bytes(std::span<const char>(text));
  return {view.begin(), view.end()};
}

std::string FileText(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string text(8, '\0');
  for (size_t i = 0; i < 8; ++i) text[i] = static_cast<char>((length >> (8 * i)) & 0xff);
  return text + header + data;
}

absl::StatusOr<TensorFile> Parse(const std::string& text) { return ParseTensorFile(Bytes(text), "some.safetensors"); }

TensorFile Example() {
  TensorFile file;
  file.metadata = {{"step", "12"}, {"note", "a \"quoted\" line\nand another"}};
  file.tensors["b"] = {DType::kF32, {2, 3}, Bytes(std::string(24, 'f'))};
  file.tensors["a"] = {DType::kU8, {5}, Bytes("bytes")};
  file.tensors["c/d.weight"] = {DType::kF64, {1, 1, 2}, Bytes(std::string(16, 'd'))};
  file.tensors["empty"] = {DType::kI64, {0, 4}, {}};
  file.tensors["scalar"] = {DType::kU64, {}, Bytes("12345678")};
  return file;
}

std::string ReadAll(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(SafetensorsTest, WritesAndReadsBack) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "round_trip.safetensors";
  const TensorFile file = Example();
  ASSERT_TRUE(WriteTensorFile(path, file).ok());
  const absl::StatusOr<TensorFile> read = ReadTensorFile(path);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->metadata, file.metadata);
  ASSERT_EQ(read->tensors.size(), file.tensors.size());
  for (const auto& [name, tensor] : file.tensors) {
    ASSERT_TRUE(read->tensors.contains(name)) << name;
    EXPECT_EQ(read->tensors.at(name).dtype, tensor.dtype) << name;
    EXPECT_EQ(read->tensors.at(name).shape, tensor.shape) << name;
    EXPECT_EQ(read->tensors.at(name).data, tensor.data) << name;
  }
}

TEST(SafetensorsTest, WritesTheDocumentedForm) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "form.safetensors";
  TensorFile file;
  file.metadata = {{"k", "v"}};
  file.tensors["a"] = {DType::kU8, {3}, Bytes("abc")};
  file.tensors["z"] = {DType::kF32, {1}, Bytes("wxyz")};
  ASSERT_TRUE(WriteTensorFile(path, file).ok());
  std::string header = R"({"__metadata__":{"k":"v"},"z":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                       R"("a":{"dtype":"U8","shape":[3],"data_offsets":[4,7]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  EXPECT_EQ(ReadAll(path), FileText(header, "wxyzabc"));
}

TEST(SafetensorsTest, ReadsAFileOfAnotherWriter) {
  const absl::StatusOr<TensorFile> read = ReadTensorFile(LENET_TEST_DATA "/lenet_mnist_seed1.safetensors");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->metadata.at("batch"), "8");
  const Tensor& images = read->tensors.at("images");
  EXPECT_EQ(images.dtype, DType::kU8);
  EXPECT_EQ(images.shape, (std::vector<int64_t>{32, 28, 28}));
  EXPECT_EQ(images.data.size(), 32u * 28 * 28);
  const Tensor& losses = read->tensors.at("sgd/losses");
  ASSERT_EQ(losses.dtype, DType::kF64);
  double first = 0;
  std::memcpy(&first, losses.data.data(), sizeof(first));
  EXPECT_GT(first, 2.2);
  EXPECT_LT(first, 2.4);
}

TEST(SafetensorsTest, KeepsWhatWasThereWhenItCannotWrite) {
  const TempFolder folder;
  TensorFile file;
  file.tensors["a"] = {DType::kF32, {2}, Bytes("abc")};
  const std::filesystem::path path = folder.path() / "not_written.safetensors";
  const absl::Status status = WriteTensorFile(path, file);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tensor a"));
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(WriteTensorFile(folder.path() / "no/such/folder/x", Example()).ok());
}

TEST(SafetensorsTest, TextThatIsNotUtf8DoesNotThrow) {
  const TempFolder folder;
  TensorFile file;
  file.metadata["path"] = "caf\xe9";
  const std::filesystem::path path = folder.path() / "not_utf8.safetensors";
  ASSERT_TRUE(WriteTensorFile(path, file).ok());
  EXPECT_TRUE(ReadTensorFile(path).ok());
}

TEST(SafetensorsTest, MissingFile) {
  const TempFolder folder;
  EXPECT_EQ(ReadTensorFile(folder.path() / "none.safetensors").status().code(), absl::StatusCode::kNotFound);
}

struct BrokenFile {
  std::string what;
  std::string text;
  std::string message;
};

std::string Entry(const std::string& fields) { return absl::StrCat("{\"t\":{", fields, "}}"); }

std::vector<BrokenFile> BrokenFiles() {
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  const std::string data(8, 'x');
  return {
      {"empty", "", "0 bytes"},
      {"seven bytes", "1234567", "7 bytes"},
      {"no header", std::string(8, '\0'), "not JSON"},
      {"header longer than the file", FileText("{}", "").substr(0, 9), "header length 2: must be at most 1"},
      {"huge header", std::string(8, '\xff') + "{}", "18446744073709551615: must be at most 2"},
      {"not JSON", FileText("hello", ""), "not JSON"},
      {"cut JSON", FileText("{\"t\":{", ""), "not JSON"},
      {"text after the JSON", FileText("{} x", ""), "not JSON"},
      {"bad UTF-8", FileText("{\"\xff\":{}}", ""), "not JSON"},
      {"an array on top", FileText("[]", ""), "an array is not expected"},
      {"a number on top", FileText("1", ""), "the number 1"},
      {"nested deeply", FileText("{\"t\":" + std::string(1'000'000, '['), ""), "an array is not expected"},
      {"deep objects", FileText("{\"t\":{\"shape\":{", ""), "an object is not expected"},
      {"a tensor that is a number", FileText("{\"t\":4}", ""), "the number 4"},
      {"metadata of numbers", FileText("{\"__metadata__\":{\"k\":1}}", ""), "__metadata__ k: the number 1"},
      {"metadata twice", FileText("{\"__metadata__\":{},\"__metadata__\":{}}", ""), "twice"},
      {"metadata key twice", FileText("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}", ""), "k stands twice"},
      {"no dtype", FileText(Entry(R"("shape":[2],"data_offsets":[0,8])"), data), "lacks dtype"},
      {"no shape", FileText(Entry(R"("dtype":"F32","data_offsets":[0,8])"), data), "lacks shape"},
      {"no offsets", FileText(Entry(R"("dtype":"F32","shape":[2])"), data), "lacks data_offsets"},
      {"one offset", FileText(Entry(R"("dtype":"F32","shape":[2],"data_offsets":[8])"), data), "lacks data_offsets"},
      {"three offsets", FileText(Entry(R"("dtype":"F32","shape":[2],"data_offsets":[0,4,8])"), data), "more than 2"},
      {"unknown dtype", FileText(Entry(R"("dtype":"BF16","shape":[4],"data_offsets":[0,8])"), data), "\"BF16\""},
      {"dtype twice", FileText(Entry("\"dtype\":\"F32\"," + good), data), "dtype stands twice"},
      {"shape twice", FileText(Entry("\"shape\":[2]," + good), data), "shape stands twice"},
      {"unknown field", FileText(Entry("\"extra\":1," + good), data), "extra is not known"},
      {"nine dimensions", FileText(Entry(R"("dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8])"), data),
       "more than 8"},
      {"negative shape", FileText(Entry(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), data), "the number -2"},
      {"fractional shape", FileText(Entry(R"("dtype":"F32","shape":[2.5],"data_offsets":[0,8])"), data),
       "the number 2.5"},
      {"a number beyond double", FileText(Entry("\"dtype\":\"F32\",\"shape\":[1e999]"), ""), "not JSON"},
      {"a number beyond int64", FileText(Entry("\"dtype\":\"F32\",\"shape\":[9223372036854775808]"), ""),
       "9223372036854775808"},
      {"a number of many digits", FileText(Entry("\"dtype\":\"F32\",\"shape\":[" + std::string(5000, '7') + "]"), ""),
       ""},
      {"shape product overflows",
       FileText(Entry(R"("dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,8])"), data), "2^63"},
      {"shape larger than the span", FileText(Entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])"), data),
       "spans 8 bytes: its shape and F32 need 12"},
      {"offsets reversed", FileText(Entry(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), data),
       "begins at byte 8"},
      {"ends before it begins",
       FileText("{\"s\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
                "\"t\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[8,4]}}",
                data),
       "ends at byte 4"},
      {"past the end", FileText(Entry(R"("dtype":"F32","shape":[3],"data_offsets":[0,12])"), data),
       "ends at byte 12: must be in 0 to 8"},
      {"gap at the start", FileText(Entry(R"("dtype":"U8","shape":[4],"data_offsets":[4,8])"), data),
       "must begin at 0"},
      {"overlap",
       FileText(R"({"s":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
                R"("t":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                data),
       "tensor t: begins at byte 4: must begin at 5"},
      {"trailing bytes", FileText(Entry(good), data + "y"), "holds 9 bytes of tensors: the header describes 8"},
      {"the same tensor twice",
       FileText(R"({"t":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                R"("t":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                data),
       "tensor t stands twice"},
  };
}

TEST(SafetensorsTest, NamesWhatIsBroken) {
  for (const BrokenFile& broken : BrokenFiles()) {
    const absl::StatusOr<TensorFile> read = Parse(broken.text);
    ASSERT_FALSE(read.ok()) << broken.what;
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << broken.what;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr("some.safetensors")) << broken.what;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr(broken.message)) << broken.what;
    EXPECT_LT(read.status().message().size(), 400u) << broken.what;
  }
}

TEST(SafetensorsTest, AnyDamageGivesAStatus) {
  const TempFolder folder;
  const std::filesystem::path path = folder.path() / "damaged.safetensors";
  ASSERT_TRUE(WriteTensorFile(path, Example()).ok());
  const std::string good = ReadAll(path);
  std::mt19937 random(7);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (uint32_t changes = 1 + random() % 4; changes > 0; --changes) {
      text[random() % text.size()] = static_cast<char>(random());
    }
    if (random() % 8 == 0) text.resize(random() % text.size());
    const absl::StatusOr<TensorFile> read = Parse(text);
    if (read.ok()) continue;
    ++refused;
    ASSERT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace lenet
