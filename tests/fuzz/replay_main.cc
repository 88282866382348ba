// A fuzz target's main where libFuzzer is not linked: replays a corpus, then runs seeded mutations.
//
//   <target> CORPUS_DIR
//
// Every file of CORPUS_DIR is one input. A missing folder counts as an empty corpus: the target
// then sees the built-in trivial inputs only, so a target always runs. After the replay it runs
// mutated inputs until CUVIL_FUZZ_RUNS mutations (default 2000) or CUVIL_FUZZ_SECONDS (default 20)
// are reached. CUVIL_FUZZ_SEED (default 1) seeds the mutations; the run prints it. Each input is
// written to a memory-mapped temp file before it runs, so that after any crash, sanitizer abort
// included, the file whose path the run printed holds the input that caused it; a clean run removes
// it.

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Input = std::vector<uint8_t>;
using Random = std::mt19937_64;

// An input never grows past this: targets stay fast and the crash file fits its mapping.
constexpr size_t kMaxInputBytes = 64 * 1024;
// A seed file may be larger than a mutated input, up to this.
constexpr size_t kMaxSeedBytes = 4 * 1024 * 1024;

// Written once per input; survives the death of this process because the mapping is shared.
class CrashFile {
 public:
  CrashFile() {
    const char* folder = std::getenv("TMPDIR");
    path_ = std::string(folder != nullptr ? folder : "/tmp") + "/cuvil_fuzz_XXXXXX";
    fd_ = mkstemp(path_.data());
    if (fd_ < 0 || ftruncate(fd_, kHeader + kMaxSeedBytes) != 0) Die("cannot create " + path_);
    void* map = mmap(nullptr, kHeader + kMaxSeedBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
    if (map == MAP_FAILED) Die("cannot map " + path_);
    bytes_ = static_cast<uint8_t*>(map);
  }

  // The layout is the input, zero padded, after an 8-byte little-endian length; Extract() undoes
  // it.
  void Put(const Input& input) {
    const uint64_t size = input.size();
    std::memcpy(bytes_, &size, sizeof(size));
    if (size != 0) std::memcpy(bytes_ + kHeader, input.data(), size);
  }
  void Remove() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

  [[noreturn]] static void Die(const std::string& why) {
    std::fprintf(stderr, "replay: %s\n", why.c_str());
    std::exit(2);
  }

  static constexpr size_t kHeader = 8;

 private:
  std::string path_;
  int fd_ = -1;
  uint8_t* bytes_ = nullptr;
};

uint64_t EnvOr(const char* name, uint64_t fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : std::strtoull(value, nullptr, 10);
}

Input ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) CrashFile::Die("cannot read " + path.string());
  Input bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // A crash file of an earlier run, named *.crash by whoever kept it, carries the length header.
  if (path.extension() == ".crash" && bytes.size() >= CrashFile::kHeader) {
    uint64_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof(size));
    bytes.erase(bytes.begin(), bytes.begin() + CrashFile::kHeader);
    bytes.resize(std::min<uint64_t>(size, bytes.size()));
  }
  if (bytes.size() > kMaxSeedBytes) CrashFile::Die("seed is too large: " + path.string());
  return bytes;
}

std::vector<Input> ReadCorpus(const std::filesystem::path& path) {
  std::vector<std::filesystem::path> names;
  if (std::filesystem::is_regular_file(path)) {
    names.push_back(path);
  } else if (std::filesystem::is_directory(path)) {
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.is_regular_file()) names.push_back(entry.path());
    }
  }
  std::sort(names.begin(), names.end());  // the same order, so the same run, everywhere
  std::vector<Input> seeds;
  for (const auto& name : names) seeds.push_back(ReadFile(name));
  return seeds;
}

std::vector<Input> TrivialInputs() {
  return {{}, {0}, {0xff}, {'a'}, Input(64, 0), Input(64, 0xff), Input(257, 'a'), {'{', '}'}};
}

size_t Below(Random& random, size_t bound) { return bound == 0 ? 0 : random() % bound; }

void FlipBits(Random& random, Input& input) {
  if (input.empty()) return;
  const size_t count = 1 + Below(random, 8);
  for (size_t i = 0; i < count; ++i) input[Below(random, input.size())] ^= 1u << Below(random, 8);
}

void SetBytes(Random& random, Input& input) {
  if (input.empty()) return;
  const size_t count = 1 + Below(random, 4);
  for (size_t i = 0; i < count; ++i) {
    input[Below(random, input.size())] = static_cast<uint8_t>(random());
  }
}

void Truncate(Random& random, Input& input) { input.resize(Below(random, input.size() + 1)); }

void Erase(Random& random, Input& input) {
  if (input.empty()) return;
  const size_t from = Below(random, input.size());
  const size_t count = 1 + Below(random, std::min<size_t>(32, input.size() - from));
  input.erase(input.begin() + from, input.begin() + from + count);
}

// Inserts a run copied from anywhere in `other`.
void Splice(Random& random, Input& input, const Input& other) {
  if (other.empty()) return;
  const size_t from = Below(random, other.size());
  const size_t count = 1 + Below(random, std::min<size_t>(512, other.size() - from));
  const size_t at = Below(random, input.size() + 1);
  input.insert(input.begin() + at, other.begin() + from, other.begin() + from + count);
}

// Values at which sizes, offsets and signs go wrong, in 1, 2, 4 or 8 bytes of either byte order.
void WriteInteger(Random& random, Input& input) {
  static constexpr uint64_t kValues[] = {
      0,          1,          2,          7,          0x7f,       0x80,
      0xff,       0x100,      0x7fff,     0x8000,     0xffff,     0x10000,
      0x7fffffff, 0x80000000, 0xffffffff, 1ull << 32, 1ull << 62, 0x7fffffffffffffff,
      1ull << 63, ~0ull,      ~0ull - 1,  64,         4096,       1000000};
  const size_t width = size_t{1} << Below(random, 4);
  if (input.size() < width) return;
  uint64_t value = kValues[Below(random, std::size(kValues))];
  if (Below(random, 4) == 0) value = 0 - value;
  uint8_t bytes[8];
  std::memcpy(bytes, &value, sizeof(bytes));
  if (Below(random, 4) == 0) std::reverse(bytes, bytes + width);
  std::memcpy(input.data() + Below(random, input.size() - width + 1), bytes, width);
}

Input Mutate(Random& random, const std::vector<Input>& seeds) {
  Input input = seeds[Below(random, seeds.size())];
  const size_t rounds = 1 + Below(random, 4);
  for (size_t i = 0; i < rounds; ++i) {
    switch (Below(random, 7)) {
      case 0:
        FlipBits(random, input);
        break;
      case 1:
        SetBytes(random, input);
        break;
      case 2:
        Truncate(random, input);
        break;
      case 3:
        Erase(random, input);
        break;
      case 4:
        Splice(random, input, seeds[Below(random, seeds.size())]);
        break;
      case 5:
        Splice(random, input, Input(input));
        break;
      case 6:
        WriteInteger(random, input);
        break;
    }
  }
  if (input.size() > kMaxInputBytes) input.resize(kMaxInputBytes);
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) CrashFile::Die("usage: TARGET CORPUS_DIR_OR_FILE");
  const uint64_t runs = EnvOr("CUVIL_FUZZ_RUNS", 2000);
  const uint64_t seconds = EnvOr("CUVIL_FUZZ_SECONDS", 20);
  const uint64_t seed = EnvOr("CUVIL_FUZZ_SEED", 1);

  std::vector<Input> seeds = ReadCorpus(argv[1]);
  const size_t from_corpus = seeds.size();
  for (Input& input : TrivialInputs()) seeds.push_back(std::move(input));

  CrashFile crash;
  std::printf("replay: seed %llu, %zu corpus inputs from %s; after a crash the input is in %s\n",
              static_cast<unsigned long long>(seed), from_corpus, argv[1], crash.path().c_str());
  std::fflush(stdout);
  // Each input is handed over in a heap block of exactly its size, so ASan sees any overrun.
  const auto run_one = [&crash](const Input& input) {
    crash.Put(input);
    const Input exact(input.begin(), input.end());
    LLVMFuzzerTestOneInput(exact.data(), exact.size());
  };
  for (const Input& input : seeds) run_one(input);

  const auto start = std::chrono::steady_clock::now();
  const auto limit = std::chrono::seconds(seconds);
  Random random(seed);
  uint64_t done = 0;
  while (done < runs && std::chrono::steady_clock::now() - start < limit) {
    run_one(Mutate(random, seeds));
    ++done;
  }
  crash.Remove();
  std::printf("replay: %zu seeds and %llu of %llu mutations ran (seed %llu)\n", seeds.size(),
              static_cast<unsigned long long>(done), static_cast<unsigned long long>(runs),
              static_cast<unsigned long long>(seed));
  return 0;
}
