#include "trainer/data/catalog.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// `train_count` images of 2x2 in `classes` classes, and 4 test images: 5 * (train_count + 4) bytes in memory.
void PutDataset(const fs::path& folder, uint32_t train_count = 6, uint32_t classes = 3, bool gzip = false) {
  fs::create_directories(folder);
  const auto put = [&](const std::string& name, const Bytes& bytes) {
    PutFile(folder / (gzip ? name + ".gz" : name), gzip ? Gzip(bytes) : bytes);
  };
  put("train-images-idx3-ubyte", ImagesIdx(train_count, 2, 2));
  put("train-labels-idx1-ubyte", CyclicLabelsIdx(train_count, classes));
  put("t10k-images-idx3-ubyte", ImagesIdx(4, 2, 2));
  put("t10k-labels-idx1-ubyte", CyclicLabelsIdx(4, 2));
}

std::vector<std::string> Names(const DatasetCatalog& catalog) {
  std::vector<std::string> names;
  for (const DatasetInfo& info : catalog.List()) names.push_back(info.name);
  return names;
}

class CatalogTest : public ::testing::Test {
 protected:
  fs::path Root(const std::string& name) const {
    fs::create_directories(root_ / name);
    return root_ / name;
  }

  TempFolder temp_;
  fs::path root_ = fs::canonical(temp_.path());
};

TEST_F(CatalogTest, ListsByNameTheFirstRootFirst) {
  PutDataset(Root("one") / "b");
  PutDataset(Root("two") / "a", 8, 2, /*gzip=*/true);
  PutDataset(Root("two") / "b", 100);
  fs::create_directories(Root("one") / "unrelated");
  PutDataset(Root("one") / ".hidden");
  PutDataset(Root("one") / "-x");
  PutDataset(Root("one") / "with space");
  PutFile(Root("one") / "file", {});

  const DatasetCatalog catalog({root_ / "one", root_ / "missing", root_ / "two"});
  const std::vector<DatasetInfo> infos = catalog.List();
  ASSERT_EQ(infos.size(), 2u);
  EXPECT_EQ(infos[0].name, "a");
  EXPECT_EQ(infos[0].path, (root_ / "two" / "a").string());
  EXPECT_TRUE(infos[0].valid) << infos[0].error;
  EXPECT_EQ(infos[0].shape, (ImageShape{1, 2, 2}));
  EXPECT_EQ(infos[0].train_count, 8);
  EXPECT_EQ(infos[0].test_count, 4);
  EXPECT_EQ(infos[1].name, "b");
  EXPECT_EQ(infos[1].path, (root_ / "one" / "b").string());
  EXPECT_EQ(infos[1].train_count, 6);
  EXPECT_THAT(DatasetCatalog({}).List(), IsEmpty());
}

TEST_F(CatalogTest, TheRootsCanBeChangedWhileOthersLook) {
  PutDataset(Root("one") / "a");
  PutDataset(Root("two") / "b");
  DatasetCatalog catalog({root_ / "one"});
  const std::shared_ptr<const Dataset> loaded = *catalog.Load("a");
  std::thread looks([&] {
    while (!catalog.Resolve("b").ok()) std::this_thread::yield();
  });
  catalog.SetRoots({root_ / "missing", root_ / "two"});
  looks.join();
  EXPECT_THAT(Names(catalog), ElementsAre("b"));
  EXPECT_EQ(catalog.Load("a").status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(loaded->name, "a");
  catalog.SetRoots({root_ / "two", root_ / "one"});
  EXPECT_THAT(Names(catalog), ElementsAre("a", "b"));
  EXPECT_EQ(*catalog.Load("a"), loaded);
}

TEST_F(CatalogTest, ListsWhatIsWrongWithASet) {
  PutDataset(root_ / "bad");
  PutFile(root_ / "bad" / "t10k-images-idx3-ubyte", BytesOf("<html>"));
  PutDataset(root_ / "part");
  fs::remove(root_ / "part" / "train-labels-idx1-ubyte");
  const std::vector<DatasetInfo> infos = DatasetCatalog({root_}).List();
  ASSERT_EQ(infos.size(), 2u);
  EXPECT_FALSE(infos[0].valid);
  EXPECT_THAT(infos[0].error, AllOf(HasSubstr("t10k-images-idx3-ubyte"), HasSubstr("HTML")));
  EXPECT_FALSE(infos[1].valid);
  EXPECT_THAT(infos[1].error, AllOf(HasSubstr("train-labels-idx1-ubyte"), HasSubstr("missing")));
}

TEST_F(CatalogTest, TakesNoNameThatIsNoName) {
  PutDataset(root_ / "x");
  PutDataset(root_ / "sub" / "y");
  DatasetCatalog catalog({root_ / "sub"});
  for (const std::string& name :
       {std::string(), std::string("."), std::string(".."), std::string("../x"), std::string("/etc"), std::string("y/"),
        std::string("y/../../x"), std::string(".y"), std::string("-y"), std::string("_y"), std::string("y\0", 2),
        std::string("y "), std::string("y\n"), std::string("\xc3\xa9"), std::string("a\\b"), std::string(65, 'a')}) {
    const absl::Status status = catalog.Resolve(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("1 to 64 of [A-Za-z0-9._-]"));
    EXPECT_EQ(catalog.Load(name).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(catalog.Resolve(std::string(64, 'a')).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(CatalogTest, ResolvesAndNamesWhatThereIs) {
  PutDataset(root_ / "Fashion-MNIST_2.0");
  PutDataset(root_ / "mnist");
  const DatasetCatalog catalog({root_});
  EXPECT_EQ(*catalog.Resolve("Fashion-MNIST_2.0"), root_ / "Fashion-MNIST_2.0");
  const absl::Status status = catalog.Resolve("kmnist").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("\"kmnist\""), HasSubstr("Fashion-MNIST_2.0, mnist")));
  EXPECT_THAT(std::string(DatasetCatalog({}).Resolve("kmnist").status().message()), HasSubstr("there is none"));
}

TEST_F(CatalogTest, ALinkLeadsOnlyToPlacesWithinTheRoot) {
  PutDataset(root_ / "outside");
  PutDataset(Root("data") / "set");
  fs::create_directory_symlink(root_ / "outside", root_ / "data" / "escape");
  fs::create_directory_symlink("set", root_ / "data" / "alias");
  fs::create_directory_symlink("loop", root_ / "data" / "loop");
  fs::create_directory_symlink(root_ / "data", root_ / "link");
  for (const char* root : {"data", "link"}) {
    DatasetCatalog catalog({root_ / root});
    EXPECT_EQ(catalog.Resolve("escape").status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(catalog.Load("escape").status().code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(*catalog.Resolve("alias"), root_ / "data" / "set");
    EXPECT_EQ(*catalog.Resolve("set"), root_ / "data" / "set");
    EXPECT_THAT(Names(catalog), ElementsAre("alias", "set"));
  }
}

TEST_F(CatalogTest, AFileMayNotLinkOutOfTheRoot) {
  PutDataset(root_ / "data" / "set");
  fs::rename(root_ / "data" / "set" / "train-labels-idx1-ubyte", root_ / "labels");
  fs::create_symlink(root_ / "labels", root_ / "data" / "set" / "train-labels-idx1-ubyte");
  DatasetCatalog catalog({root_ / "data"});
  EXPECT_EQ(catalog.Load("set").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(catalog.List()[0].error, HasSubstr("is a link"));
}

TEST_F(CatalogTest, LoadsOnceWhileTheFilesStayAsTheyAre) {
  PutDataset(root_ / "set");
  DatasetCatalog catalog({root_});
  const auto first = catalog.Load("set");
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ((*first)->name, "set");
  EXPECT_EQ((*first)->classes, 3);
  EXPECT_EQ(*catalog.Load("set"), *first);

  PutDataset(root_ / "set", 7, 4);
  const auto second = catalog.Load("set");
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*second)->train.count, 7);
  EXPECT_EQ((*second)->classes, 4);
  EXPECT_EQ((*first)->train.count, 6);  // its holder sees no change

  // The same size, another file.
  PutFile(root_ / "new", CyclicLabelsIdx(7, 5));
  fs::rename(root_ / "new", root_ / "set" / "train-labels-idx1-ubyte");
  EXPECT_EQ((*catalog.Load("set"))->classes, 5);

  // The same size and file, another time.
  PutFile(root_ / "set" / "train-labels-idx1-ubyte", CyclicLabelsIdx(7, 6));
  fs::last_write_time(root_ / "set" / "train-labels-idx1-ubyte",
                      fs::file_time_type::clock::now() + std::chrono::seconds(1));
  EXPECT_EQ((*catalog.Load("set"))->classes, 6);
}

TEST_F(CatalogTest, AnErrorNamesTheSetAndIsNotKept) {
  PutDataset(root_ / "set");
  PutFile(root_ / "set" / "t10k-images-idx3-ubyte", {0, 0, 8});
  DatasetCatalog catalog({root_});
  const absl::Status status = catalog.Load("set").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("data set \"set\": "), HasSubstr("t10k-images-idx3-ubyte': offset 3: ")));
  PutDataset(root_ / "set");
  EXPECT_TRUE(catalog.Load("set").ok());
}

TEST_F(CatalogTest, KeepsTheMostRecentlyUsedWithinItsBytes) {
  for (const char* name : {"a", "b", "c"}) PutDataset(root_ / name, 16);  // 100 bytes each
  DatasetCatalog catalog({root_}, /*cache_bytes=*/200);
  std::weak_ptr<const Dataset> a = *catalog.Load("a");
  std::weak_ptr<const Dataset> b = *catalog.Load("b");
  EXPECT_FALSE(a.expired());
  EXPECT_EQ(*catalog.Load("a"), a.lock());
  std::weak_ptr<const Dataset> c = *catalog.Load("c");
  EXPECT_FALSE(a.expired());
  EXPECT_TRUE(b.expired());
  EXPECT_FALSE(c.expired());
}

TEST_F(CatalogTest, SharesWhatAJobHoldsThoughItIsEvicted) {
  for (const char* name : {"a", "b"}) PutDataset(root_ / name, 16);
  DatasetCatalog catalog({root_}, /*cache_bytes=*/99);
  std::shared_ptr<const Dataset> held = *catalog.Load("a");
  const std::weak_ptr<const Dataset> watch = held;
  EXPECT_TRUE(catalog.Load("b").ok());
  EXPECT_EQ(*catalog.Load("a"), held);
  held.reset();
  EXPECT_TRUE(watch.expired());
}

TEST_F(CatalogTest, ACancelledLoadEndsInTheMiddleAndTheNextStartsAnew) {
  PutDataset(root_ / "set", 200000, 3, /*gzip=*/true);  // of 12 MB, decompressed
  DatasetCatalog catalog({root_});
  int asked = 0;
  const absl::Status status = catalog.Load("set", [&asked] { return ++asked == 4; }).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("data set \"set\": "));
  EXPECT_EQ(asked, 4);
  EXPECT_EQ((*catalog.Load("set", [] { return false; }))->train.count, 200000);
}

TEST_F(CatalogTest, AWaiterForAnothersLoadCanBeCancelled) {
  PutDataset(root_ / "set");
  DatasetCatalog catalog({root_});
  std::atomic<bool> loading{false};
  std::atomic<bool> go_on{false};
  std::thread loader([&] {
    EXPECT_TRUE(catalog
                    .Load("set",
                          [&] {
                            loading = true;
                            while (!go_on) std::this_thread::yield();
                            return false;
                          })
                    .ok());
  });
  while (!loading) std::this_thread::yield();
  EXPECT_EQ(catalog.Load("set", [] { return true; }).status().code(), absl::StatusCode::kCancelled);
  go_on = true;
  loader.join();
}

TEST_F(CatalogTest, ThreadsShareOneLoad) {
  constexpr int kThreads = 8;
  PutDataset(root_ / "a", 200000, 3, /*gzip=*/true);
  PutDataset(root_ / "b", 200000, 3, /*gzip=*/true);
  PutDataset(root_ / "bad");
  PutFile(root_ / "bad" / "t10k-images-idx3-ubyte", {0, 0, 8});
  DatasetCatalog catalog({root_});
  std::vector<std::shared_ptr<const Dataset>> loaded(2 * kThreads);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < loaded.size(); ++i) {
    threads.emplace_back([&, i] {
      EXPECT_EQ(catalog.Load("bad").status().code(), absl::StatusCode::kDataLoss);
      loaded[i] = catalog.Load(i % 2 == 0 ? "a" : "b").value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < loaded.size(); ++i) {
    EXPECT_EQ(loaded[i]->name, i % 2 == 0 ? "a" : "b");
    EXPECT_EQ(loaded[i], loaded[i % 2]);
    EXPECT_EQ(loaded[i]->train.count, 200000);
  }
}

}  // namespace
}  // namespace lenet
