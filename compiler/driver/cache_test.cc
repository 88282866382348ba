#include "compiler/driver/cache.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "base/hash.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::driver {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

// Someone else, when the tests run as root.
constexpr uid_t kNobody = 65534;

class CacheTest : public testing::Test {
 protected:
  CacheTest() {
    std::string name = (fs::temp_directory_path() / "cuvil_cache_XXXXXX").string();
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    base_ = name;
    dir_ = base_ / "cache";
  }
  ~CacheTest() override { fs::remove_all(base_); }

  std::unique_ptr<ArtifactCache> Open(CacheLimits limits = {}) {
    auto cache = ArtifactCache::Open(dir_.string(), limits);
    EXPECT_TRUE(cache.ok()) << cache.status();
    return *std::move(cache);
  }
  std::string OpenError(const fs::path& dir) {
    const auto cache = ArtifactCache::Open(dir.string());
    EXPECT_EQ(cache.status().code(), absl::StatusCode::kFailedPrecondition) << cache.status();
    return std::string(cache.status().message());
  }
  fs::path Entry(const std::string& key) const { return dir_ / "v1" / key; }
  size_t NamesBesideEntries() const {
    size_t count = 0;
    for (const auto& entry : fs::directory_iterator(dir_ / "v1")) {
      count += entry.path().filename().string().size() != 64;
    }
    return count;
  }

  fs::path base_, dir_;
};

std::string Key(int number) { return Sha256Hex(std::string_view(std::to_string(number))); }

Artifact MakeArtifact(int seed = 1, size_t object_bytes = 300) {
  Artifact artifact;
  artifact.program_json = absl::StrCat("{\"program\":", seed, "}");
  for (int i = 0; i < 3; ++i) {
    ObjectFile object{absl::StrCat("kernel_", seed, "_", i), {}};
    for (size_t b = 0; b < object_bytes; ++b) {
      object.object.push_back(static_cast<uint8_t>(b * 7 + i + seed));
    }
    artifact.objects.push_back(std::move(object));
  }
  artifact.key_components = {{"ir", absl::StrCat("ir", seed)}, {"target", "cpu:avx2"}, {"rows", 8}};
  return artifact;
}

void ExpectSame(const Artifact& a, const Artifact& b) {
  EXPECT_EQ(a.program_json, b.program_json);
  EXPECT_EQ(a.key_components, b.key_components);
  ASSERT_EQ(a.objects.size(), b.objects.size());
  for (size_t i = 0; i < a.objects.size(); ++i) {
    EXPECT_EQ(a.objects[i].symbol, b.objects[i].symbol);
    EXPECT_EQ(a.objects[i].object, b.objects[i].object);
  }
}

void ExpectHit(ArtifactCache& cache, const std::string& key, const Artifact& want) {
  const auto loaded = cache.Load(key);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ASSERT_TRUE(loaded->has_value());
  ExpectSame(**loaded, want);
}

bool IsMiss(ArtifactCache& cache, const std::string& key) {
  const auto loaded = cache.Load(key);
  return loaded.ok() && !loaded->has_value();
}

TEST_F(CacheTest, StoresAndLoadsWhatWasStored) {
  const auto cache = Open();
  EXPECT_TRUE(IsMiss(*cache, Key(1)));
  ASSERT_TRUE(cache->Store(Key(1), MakeArtifact(1)).ok());
  ASSERT_TRUE(cache->Store(Key(2), MakeArtifact(2, 0)).ok());
  ASSERT_TRUE(cache->Store(Key(3), Artifact{}).ok());
  const auto reopened = Open();
  ExpectHit(*reopened, Key(1), MakeArtifact(1));
  ExpectHit(*reopened, Key(2), MakeArtifact(2, 0));
  ExpectHit(*reopened, Key(3), Artifact{});
  EXPECT_EQ(NamesBesideEntries(), 0u);
}

TEST_F(CacheTest, TellsTheProgramBeforeItReadsObjects) {
  const auto cache = Open();
  ASSERT_TRUE(cache->Store(Key(1), MakeArtifact(1)).ok());
  std::vector<std::string> told;
  const auto listen = [&](std::string_view program) {
    told.emplace_back(program);
    return absl::OkStatus();
  };
  ASSERT_TRUE(cache->Load(Key(1), listen).ok());
  EXPECT_TRUE(IsMiss(*cache, Key(2)));
  fs::resize_file(Entry(Key(1)) / "00001.o", 3);
  EXPECT_EQ(cache->Load(Key(1), listen).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(told, std::vector<std::string>(2, MakeArtifact(1).program_json));
  // A program whose digest is wrong is told to nobody.
  ASSERT_TRUE(cache->Store(Key(1), MakeArtifact(1)).ok());
  fs::resize_file(Entry(Key(1)) / "program.json", 3);
  EXPECT_FALSE(cache->Load(Key(1), listen).ok());
  EXPECT_EQ(told.size(), 2u);
}

TEST_F(CacheTest, AnErrorOfTheListenerLeavesTheEntry) {
  const auto cache = Open();
  ASSERT_TRUE(cache->Store(Key(1), MakeArtifact(1)).ok());
  const auto refuse = [](std::string_view) { return absl::DataLossError("no memory for it"); };
  EXPECT_EQ(cache->Load(Key(1), refuse).status(), absl::DataLossError("no memory for it"));
  ExpectHit(*cache, Key(1), MakeArtifact(1));
}

TEST_F(CacheTest, OnlyTheOwnerHasAccess) {
  const auto cache = Open();
  ASSERT_TRUE(cache->Store(Key(1), MakeArtifact()).ok());
  EXPECT_EQ(fs::status(dir_).permissions(), fs::perms::owner_all);
  for (const auto& entry : fs::recursive_directory_iterator(dir_)) {
    EXPECT_EQ(fs::status(entry).permissions() & (fs::perms::group_all | fs::perms::others_all),
              fs::perms::none)
        << entry.path();
  }
}

TEST_F(CacheTest, RefusesKeysThatAreNoKeys) {
  const auto cache = Open();
  for (const std::string& key : {std::string(), std::string("../../etc"), Key(1) + "0",
                                 std::string(64, 'G'), std::string(63, 'a') + "/"}) {
    EXPECT_EQ(cache->Load(key).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(cache->Store(key, {}).code(), absl::StatusCode::kInvalidArgument);
  }
}

// Flips a bit at every seventh byte of every file in turn.
TEST_F(CacheTest, EveryDamagedByteIsAMissThatHealsItself) {
  const auto cache = Open();
  const Artifact artifact = MakeArtifact(1, 150);
  ASSERT_TRUE(cache->Store(Key(1), artifact).ok());
  std::vector<fs::path> files;
  for (const auto& file : fs::directory_iterator(Entry(Key(1)))) files.push_back(file.path());
  EXPECT_EQ(files.size(), 7u);
  int flips = 0;
  for (const fs::path& file : files) {
    for (size_t at = 0; at < fs::file_size(file); at += 7, ++flips) {
      {
        std::fstream stream(file, std::ios::in | std::ios::out | std::ios::binary);
        stream.seekg(static_cast<std::streamoff>(at));
        const char byte = static_cast<char>(stream.get() ^ (1 << at % 8));
        stream.seekp(static_cast<std::streamoff>(at));
        stream.put(byte);
      }
      const auto loaded = cache->Load(Key(1));
      ASSERT_EQ(loaded.status().code(), absl::StatusCode::kDataLoss) << file << " byte " << at;
      ASSERT_THAT(std::string(loaded.status().message()), HasSubstr("was damaged"));
      ASSERT_TRUE(IsMiss(*cache, Key(1)));
      ASSERT_TRUE(cache->Store(Key(1), artifact).ok());
    }
  }
  EXPECT_GT(flips, 100);
  ExpectHit(*cache, Key(1), artifact);
  EXPECT_EQ(NamesBesideEntries(), 0u);
}

TEST_F(CacheTest, MissingShortenedAndReplacedFilesAreMisses) {
  const auto cache = Open();
  const auto damaged_by = [&](const std::function<void(const fs::path&)>& damage) {
    EXPECT_TRUE(cache->Store(Key(1), MakeArtifact()).ok());
    damage(Entry(Key(1)));
    return cache->Load(Key(1)).status().code() == absl::StatusCode::kDataLoss &&
           IsMiss(*cache, Key(1));
  };
  for (const char* name : {"manifest.json", "digest", "program.json", "key.json", "00002.o"}) {
    EXPECT_TRUE(damaged_by([&](const fs::path& e) { fs::remove(e / name); })) << name;
    EXPECT_TRUE(damaged_by([&](const fs::path& e) { fs::resize_file(e / name, 3); })) << name;
    EXPECT_TRUE(damaged_by([&](const fs::path& e) {
      fs::rename(e / name, base_ / "elsewhere");
      fs::create_symlink(base_ / "elsewhere", e / name);
    })) << name;
    EXPECT_TRUE(damaged_by([&](const fs::path& e) {
      fs::remove(e / name);
      ASSERT_EQ(mkfifo((e / name).c_str(), 0600), 0);
    })) << name;
  }
  EXPECT_TRUE(damaged_by([&](const fs::path& e) {
    fs::remove_all(e);
    std::ofstream(e) << "a file";
  }));
  EXPECT_TRUE(damaged_by([&](const fs::path& e) {
    fs::rename(e, base_ / "moved");
    fs::create_directory_symlink(base_ / "moved", e);
  }));
  // A whole entry under another key is intact but not what was asked for.
  EXPECT_TRUE(damaged_by([&](const fs::path& e) {
    EXPECT_TRUE(cache->Store(Key(2), MakeArtifact(2)).ok());
    fs::remove_all(e);
    fs::rename(Entry(Key(2)), e);
  }));
}

TEST_F(CacheTest, RefusesDirectoriesThatAreNotPrivate) {
  fs::create_directory(dir_);
  fs::permissions(dir_, fs::perms::all);
  EXPECT_THAT(OpenError(dir_), HasSubstr("has mode 0777, 'chmod 700' makes it usable"));
  fs::permissions(dir_, fs::perms::owner_all);
  fs::create_directory_symlink(dir_, base_ / "link");
  EXPECT_THAT(OpenError(base_ / "link"), HasSubstr("is a link or no directory"));
  EXPECT_THAT(OpenError((base_ / "link").string() + "/"), HasSubstr("is a link or no directory"));
  std::ofstream(base_ / "file") << "x";
  EXPECT_THAT(OpenError(base_ / "file"), HasSubstr("is a link or no directory"));
  EXPECT_THAT(OpenError("/proc/no-such-cache"), HasSubstr("cannot be opened"));
  // Inside as well.
  fs::create_directory(base_ / "other");
  fs::permissions(base_ / "other", fs::perms::owner_all);
  fs::create_directory_symlink(base_ / "other", dir_ / "v1");
  EXPECT_THAT(OpenError(dir_), HasSubstr("v1' is a link or no directory"));
}

TEST_F(CacheTest, RefusesADirectoryOfAnotherUser) {
  if (geteuid() == 0) {
    fs::create_directory(dir_);
    fs::permissions(dir_, fs::perms::owner_all);
    ASSERT_EQ(chown(dir_.c_str(), kNobody, kNobody), 0);
    EXPECT_THAT(OpenError(dir_), HasSubstr("belongs to user 65534, not to 0"));
  } else {
    EXPECT_THAT(OpenError("/usr"), HasSubstr("belongs to user 0"));
  }
}

// Root may write anywhere, so root steps down for a while.
TEST_F(CacheTest, ADirectoryThatBecameReadOnlyIsAnErrorAndLeavesNothing) {
  const uid_t self = geteuid();
  fs::permissions(base_, fs::perms::all);
  if (self == 0) {
    ASSERT_EQ(seteuid(kNobody), 0);
  }
  {
    const auto cache = Open();
    EXPECT_TRUE(cache->Store(Key(1), MakeArtifact()).ok());
    fs::permissions(dir_ / "v1", fs::perms::owner_read | fs::perms::owner_exec);
    EXPECT_EQ(cache->Store(Key(2), MakeArtifact()).code(), absl::StatusCode::kPermissionDenied);
    ExpectHit(*cache, Key(1), MakeArtifact());
    EXPECT_EQ(NamesBesideEntries(), 0u);
    fs::permissions(dir_ / "v1", fs::perms::owner_all);
    fs::remove_all(dir_);
    fs::create_directory(dir_);
    fs::permissions(dir_, fs::perms::owner_read | fs::perms::owner_exec);
    EXPECT_THAT(OpenError(dir_), HasSubstr("cannot be written"));
    fs::permissions(dir_, fs::perms::owner_all);
  }
  if (self == 0) {
    ASSERT_EQ(seteuid(self), 0);
  }
}

// A file size limit makes write fail halfway as a full disk does.
TEST_F(CacheTest, AFullDiskIsAnErrorAndLeavesNothing) {
  const auto cache = Open();
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{10'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = cache->Store(Key(1), MakeArtifact(1, 20'000));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_TRUE(fs::is_empty(dir_ / "v1"));
  EXPECT_TRUE(cache->Store(Key(1), MakeArtifact(1, 20'000)).ok());
  ExpectHit(*cache, Key(1), MakeArtifact(1, 20'000));
}

TEST_F(CacheTest, ThreadsMayStoreAndLoadTheSameKey) {
  const auto cache = Open();
  std::atomic<int> hits{0}, failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 12; ++i) {
        if (!cache->Store(Key(i / 4), MakeArtifact(i / 4)).ok()) ++failures;
        const auto loaded = cache->Load(Key(i / 4));
        if (!loaded.ok()) ++failures;
        if (loaded.ok() && loaded->has_value()) ++hits;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures.load(), 0);
  EXPECT_EQ(hits.load(), 48);
  for (int i = 0; i < 3; ++i) ExpectHit(*cache, Key(i), MakeArtifact(i));
  EXPECT_EQ(NamesBesideEntries(), 0u);
}

TEST_F(CacheTest, ProcessesMayStoreTheSameKey) {
  std::vector<pid_t> children;
  for (int p = 0; p < 4; ++p) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const auto cache = ArtifactCache::Open(dir_.string());
      bool ok = cache.ok();
      for (int i = 0; ok && i < 5; ++i) ok = (*cache)->Store(Key(i), MakeArtifact(i)).ok();
      _exit(ok ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const auto cache = Open();
  for (int i = 0; i < 5; ++i) ExpectHit(*cache, Key(i), MakeArtifact(i));
  EXPECT_EQ(NamesBesideEntries(), 0u);
}

void SetAge(const fs::path& path, int64_t seconds) {
  fs::last_write_time(path, fs::file_time_type::clock::now() - std::chrono::seconds(seconds));
}

TEST_F(CacheTest, TheLeastRecentlyUsedGoFirst) {
  {
    const auto cache = Open();
    for (int i = 0; i < 5; ++i) {
      ASSERT_TRUE(cache->Store(Key(i), MakeArtifact(i)).ok());
      SetAge(Entry(Key(i)), 1000 - i);
    }
    ExpectHit(*cache, Key(0), MakeArtifact(0));  // now the youngest
    const auto entries = cache->List();
    ASSERT_TRUE(entries.ok());
    std::vector<std::string> keys;
    for (const CacheEntry& entry : *entries) keys.push_back(entry.key);
    EXPECT_THAT(keys, testing::ElementsAre(Key(1), Key(2), Key(3), Key(4), Key(0)));
    EXPECT_GT((*entries)[0].bytes, 900);
  }
  const auto cache = Open({.entries_max = 3});
  const auto report = cache->Gc();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->entries, 2);
  EXPECT_TRUE(IsMiss(*cache, Key(1)));
  EXPECT_TRUE(IsMiss(*cache, Key(2)));
  ASSERT_TRUE(cache->Store(Key(9), MakeArtifact(9)).ok());  // collects on its own
  EXPECT_TRUE(IsMiss(*cache, Key(3)));
  for (const int i : {4, 0, 9}) ExpectHit(*cache, Key(i), MakeArtifact(i));
}

TEST_F(CacheTest, StaysUnderItsBytes) {
  const auto cache = Open({.bytes_max = 100'000});
  for (int i = 0; i < 6; ++i) {
    ASSERT_TRUE(cache->Store(Key(i), MakeArtifact(i, 10'000)).ok());
    SetAge(Entry(Key(i)), 1000 - i);
  }
  const auto entries = cache->List();
  ASSERT_TRUE(entries.ok());
  EXPECT_EQ(entries->size(), 3u);
  ExpectHit(*cache, Key(5), MakeArtifact(5, 10'000));
  EXPECT_EQ(cache->Store(Key(7), MakeArtifact(7, 40'000)).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cache->List()->size(), 3u);
}

TEST_F(CacheTest, LeftoversOfDeadWritersGoAfterAnHour) {
  const auto cache = Open();
  for (const char* name : {".tmp-1-1-1", ".tmp-2-2-2", ".drop-3-3-3"}) {
    fs::create_directory(dir_ / "v1" / name);
    std::ofstream(dir_ / "v1" / name / "00000.o") << "half";
  }
  SetAge(dir_ / "v1" / ".tmp-1-1-1", 3700);
  const auto report = cache->Gc();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->stale, 2);
  EXPECT_TRUE(fs::exists(dir_ / "v1" / ".tmp-2-2-2"));  // its writer may be alive
  EXPECT_EQ(NamesBesideEntries(), 1u);
}

TEST_F(CacheTest, VerifyDropsTheDamagedAndKeepsTheGood) {
  const auto cache = Open();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(cache->Store(Key(i), MakeArtifact(i)).ok());
  fs::remove(Entry(Key(1)) / "00000.o");
  const auto report = cache->Verify();
  ASSERT_TRUE(report.ok());
  EXPECT_EQ(report->good, 2);
  ASSERT_EQ(report->dropped.size(), 1u);
  EXPECT_THAT(report->dropped[0], HasSubstr("'00000.o'"));
  EXPECT_TRUE(IsMiss(*cache, Key(1)));
}

TEST_F(CacheTest, ExplainsWhyKeysDiffer) {
  const auto cache = Open();
  ASSERT_TRUE(cache->Store(Key(1), MakeArtifact(1)).ok());
  ASSERT_TRUE(cache->Store(Key(2), MakeArtifact(2)).ok());
  EXPECT_EQ(*cache->Explain(Key(1), Key(2)), "'ir' differs: \"ir1\" against \"ir2\"");
  EXPECT_EQ(cache->Explain(Key(1), Key(3)).status().code(), absl::StatusCode::kNotFound);
  const Json a = {{"ir", "x"}, {"target", "t"}}, shorter = {{"ir", "x"}};
  EXPECT_EQ(ExplainKey(a, a), "all key components are equal");
  EXPECT_EQ(ExplainKey(a, shorter), "'target' is a component of the first key only");
  EXPECT_EQ(ExplainKey(shorter, a), "'target' is a component of the second key only");
  EXPECT_EQ(ExplainKey(a, Json{{"target", "t"}, {"ir", "x"}}),
            "the key components are in another order");
}

}  // namespace
}  // namespace cuvil::driver
