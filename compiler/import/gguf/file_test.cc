#include "compiler/import/gguf/file.h"

#include <bit>
#include <string>
#include <vector>

#include "base/blocks.h"
#include "compiler/import/gguf/test_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cuvil::gguf {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Values that break sloppy arithmetic.
constexpr uint64_t kHostile[] = {0,
                                 1,
                                 uint64_t{1} << 31,
                                 (uint64_t{1} << 32) - 1,
                                 uint64_t{1} << 32,
                                 uint64_t{1} << 62,
                                 uint64_t{1} << 63,
                                 ~uint64_t{0} - 31,
                                 ~uint64_t{0}};

std::string Error(const std::string& bytes) {
  return std::string(File::Parse(bytes).status().message());
}

FileBuilder Good() {
  FileBuilder builder;
  builder.Text("general.architecture", "llama").Int("a.count", 7).Float("a.eps", 0.5f);
  builder.Bool("a.flag", true).Texts("a.words", {"one", "", "three"});
  builder.Numbers<int32_t>("a.types", ValueType::kI32, {1, -2, 3});
  builder.Numbers<float>("a.scores", ValueType::kF32, {0.5f, -1.0f});
  builder.Entry("a.big", ValueType::kU64, Bytes().Put(~uint64_t{0}));
  builder.Zeros("w", {4, 2}).Zeros("v", {3});
  return builder;
}

TEST(File, ReadsMetadata) {
  const auto file = File::Parse(Good().Build());
  ASSERT_TRUE(file.ok()) << file.status();
  const File& f = **file;
  EXPECT_EQ(f.version(), 3u);
  EXPECT_EQ(*f.String("general.architecture"), "llama");
  EXPECT_EQ(*f.Int("a.count"), 7);
  EXPECT_EQ(*f.Float("a.eps"), 0.5);
  EXPECT_TRUE(*f.Bool("a.flag"));
  EXPECT_THAT(*f.Strings("a.words"), ElementsAre("one", "", "three"));
  EXPECT_THAT(*f.Ints("a.types"), ElementsAre(1, -2, 3));
  EXPECT_THAT(*f.Floats("a.scores"), ElementsAre(0.5, -1.0));
  EXPECT_EQ(*f.IntOr("a.none", 5), 5);
  EXPECT_FALSE(f.Has("a.none"));
  EXPECT_EQ(f.key(1), "a.count");
}

TEST(File, ReadsEveryIntegerType) {
  FileBuilder builder;
  builder.Entry("u8", ValueType::kU8, Bytes().Put<uint8_t>(200));
  builder.Entry("i8", ValueType::kI8, Bytes().Put<int8_t>(-3));
  builder.Entry("u16", ValueType::kU16, Bytes().Put<uint16_t>(60000));
  builder.Entry("i16", ValueType::kI16, Bytes().Put<int16_t>(-300));
  builder.Entry("i32", ValueType::kI32, Bytes().Put<int32_t>(-70000));
  builder.Entry("i64", ValueType::kI64, Bytes().Put<int64_t>(-5000000000));
  builder.Entry("u64", ValueType::kU64, Bytes().Put<uint64_t>(5000000000));
  builder.Entry("f64", ValueType::kF64, Bytes().Put<double>(0.1));
  const auto file = File::Parse(builder.Build());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(*(*file)->Int("u8"), 200);
  EXPECT_EQ(*(*file)->Int("i8"), -3);
  EXPECT_EQ(*(*file)->Int("u16"), 60000);
  EXPECT_EQ(*(*file)->Int("i16"), -300);
  EXPECT_EQ(*(*file)->Int("i32"), -70000);
  EXPECT_EQ(*(*file)->Int("i64"), -5000000000);
  EXPECT_EQ(*(*file)->Int("u64"), 5000000000);
  EXPECT_EQ(*(*file)->Float("f64"), 0.1);
}

TEST(File, ErrorsNameTheKeyAndWhatWasFound) {
  const auto file = File::Parse(Good().Build());
  ASSERT_TRUE(file.ok());
  EXPECT_EQ((*file)->Int("a.words").status().message(),
            "metadata 'a.words' in '<memory>' is array of 3 string, not an integer below 2^63");
  EXPECT_THAT(std::string((*file)->Int("a.big").status().message()), HasSubstr("u64"));
  EXPECT_FALSE((*file)->Float("a.count").ok());
  EXPECT_FALSE((*file)->Bool("a.count").ok());
  EXPECT_FALSE((*file)->String("a.count").ok());
  EXPECT_FALSE((*file)->Ints("a.count").ok());
  EXPECT_FALSE((*file)->Ints("a.words").ok());
  EXPECT_FALSE((*file)->Floats("a.types").ok());
  EXPECT_FALSE((*file)->Strings("a.types").ok());
  EXPECT_FALSE((*file)->IntOr("a.flag", 1).ok());
  EXPECT_TRUE(absl::IsNotFound((*file)->Int("a.none").status()));
}

TEST(File, ReadsTensors) {
  FileBuilder builder = Good();
  builder.data[4] = 0x00, builder.data[7] = 0x3f, builder.data[6] = '\x80';  // 1.0f
  const auto file = File::Parse(builder.Build());
  ASSERT_TRUE(file.ok()) << file.status();
  const Tensor* w = (*file)->FindTensor("w");
  ASSERT_NE(w, nullptr);
  EXPECT_EQ(w->dims[0], 4);
  EXPECT_THAT(w->shape(), ElementsAre(2, 4));
  EXPECT_EQ(w->rows(), 2);
  EXPECT_EQ(Describe(*w), "f32 [2, 4]");
  ASSERT_EQ(w->data.size(), 32u);
  EXPECT_EQ(w->offset % 32, 0u);
  float row[4];
  DecodeRow(w->dtype, w->data.data(), 4, row);
  EXPECT_THAT(row, ElementsAre(0.0f, 1.0f, 0.0f, 0.0f));
  EXPECT_EQ((*file)->FindTensor("x"), nullptr);
  EXPECT_EQ((*file)->FindTensor("v")->data.size(), 12u);
}

TEST(File, ReadsVersion2AndKeepsNestedArrays) {
  FileBuilder builder = Good();
  builder.version = 2;
  Bytes nested;
  nested.Type(ValueType::kArray).Put<uint64_t>(2);
  nested.Type(ValueType::kU8).Put<uint64_t>(3).Raw("abc");
  nested.Type(ValueType::kString).Put<uint64_t>(1).Str("x");
  builder.Entry("nested", ValueType::kArray, nested).Int("after", 9);
  const auto file = File::Parse(builder.Build());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(Describe(*(*file)->Find("nested")), "array of 2 array");
  EXPECT_EQ(*(*file)->Int("after"), 9);
  EXPECT_FALSE((*file)->Ints("nested").ok());
}

TEST(File, RefusesOtherFiles) {
  EXPECT_THAT(Error(""), HasSubstr("cut short"));
  EXPECT_THAT(Error("GG"), HasSubstr("cut short"));
  EXPECT_THAT(Error(std::string(100, 'x')), HasSubstr("starts with 'xxxx'"));
  FileBuilder builder;
  for (const uint32_t version : {0u, 1u, 4u, 0x7fffu}) {
    builder.version = version;
    EXPECT_THAT(Error(builder.Build()), HasSubstr("versions 2 and 3")) << version;
  }
  builder.version = 0x03000000;
  EXPECT_THAT(Error(builder.Build()), HasSubstr("big-endian"));
}

TEST(File, RefusesEveryTruncation) {
  const std::string whole = Good().Build();
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(File::Parse(whole.substr(0, size)).ok()) << size;
  }
}

TEST(File, RefusesHostileCounts) {
  const std::string whole = Good().Build();
  for (const uint64_t count : kHostile) {
    for (const size_t offset : {8, 16}) {
      std::string bytes = whole;
      std::memcpy(bytes.data() + offset, &count, 8);
      if (count < 2 && offset == 8) continue;  // fewer tensors than there are: harmless
      EXPECT_FALSE(File::Parse(bytes).ok()) << offset << " " << count;
    }
  }
}

TEST(File, RefusesHostileLengths) {
  for (const uint64_t length : kHostile) {
    if (length < 2) continue;
    FileBuilder key;
    key.entries.push_back(Bytes().Put(length).Raw("k").Type(ValueType::kU8).Put('x').data_);
    EXPECT_THAT(Error(key.Build()), HasSubstr("metadata key number 0")) << length;
    FileBuilder text;
    text.Entry("k", ValueType::kString, Bytes().Put(length).Raw("abc"));
    EXPECT_THAT(Error(text.Build()), HasSubstr("metadata 'k'")) << length;
    FileBuilder name;
    name.tensors.push_back(Bytes().Put(length).Raw(std::string(64, 'n')).data_);
    EXPECT_FALSE(File::Parse(name.Build()).ok()) << length;
    for (uint32_t element = 0; element <= 12; ++element) {
      FileBuilder array;
      array.Entry("k", ValueType::kArray, Bytes().Put(element).Put(length).Raw("abc"));
      if (length == 2 && element == 0) continue;
      EXPECT_FALSE(File::Parse(array.Build()).ok()) << length << " " << element;
    }
  }
}

TEST(File, RefusesBadMetadata) {
  FileBuilder twice = Good();
  twice.Int("a.count", 8);
  EXPECT_THAT(Error(twice.Build()), HasSubstr("'a.count' appears twice"));
  FileBuilder type;
  type.Entry("k", static_cast<ValueType>(13), Bytes().Put<uint64_t>(0));
  EXPECT_THAT(Error(type.Build()), HasSubstr("unknown value type 13"));
  FileBuilder boolean;
  boolean.Entry("k", ValueType::kBool, Bytes().Put<uint8_t>(2));
  EXPECT_THAT(Error(boolean.Build()), HasSubstr("bool byte 2"));
  FileBuilder empty;
  empty.Entry("", ValueType::kU64, Bytes().Put<uint64_t>(0));
  EXPECT_THAT(Error(empty.Build()), HasSubstr("0 bytes"));
  FileBuilder long_key;
  long_key.Int(std::string(kMaxKeyBytes + 1, 'k'), 1);
  EXPECT_THAT(Error(long_key.Build()), HasSubstr("65536 bytes"));
}

TEST(File, LimitsNesting) {
  const auto nested = [](int depth) {
    Bytes array;
    for (int i = 1; i < depth; ++i) array.Type(ValueType::kArray).Put<uint64_t>(1);
    array.Type(ValueType::kU8).Put<uint64_t>(1).Put<uint8_t>(7);
    FileBuilder builder;
    return builder.Entry("k", ValueType::kArray, array).Build();
  };
  EXPECT_EQ(Error(nested(kMaxArrayDepth)), "");
  EXPECT_THAT(Error(nested(kMaxArrayDepth + 1)), HasSubstr("nests arrays"));
  EXPECT_THAT(Error(nested(100000)), HasSubstr("nests arrays"));
}

TEST(File, RefusesHostileDimensions) {
  for (const uint64_t dim : kHostile) {
    if (dim == 1) continue;
    for (const uint32_t type : {0u, 1u, 2u, 8u, 12u, 28u}) {
      FileBuilder builder;
      builder.Descriptor("w", {dim, dim}, type, 0).data.resize(64);
      EXPECT_FALSE(File::Parse(builder.Build()).ok()) << dim << " " << type;
      FileBuilder outer;
      outer.Descriptor("w", {256, dim}, type, 0).data.resize(64);
      EXPECT_FALSE(File::Parse(outer.Build()).ok()) << dim << " " << type;
    }
  }
}

TEST(File, RefusesHostileRanksTypesAndOffsets) {
  for (const uint32_t rank : {0u, 5u, 0x80000000u, 0xffffffffu}) {
    FileBuilder builder;
    builder.tensors.push_back(Bytes().Str("w").Put(rank).Raw(std::string(200, '\1')).data_);
    EXPECT_THAT(Error(builder.Build()), HasSubstr("dimensions")) << rank;
  }
  for (const uint32_t type : {4u, 5u, 9u, 15u, 16u, 31u, 39u, 0x80000000u, 0xffffffffu}) {
    FileBuilder builder;
    builder.Descriptor("blk.0.w", {32}, type, 0).data.resize(128);
    EXPECT_THAT(Error(builder.Build()),
                HasSubstr(absl::StrCat("'blk.0.w' has tensor type number ", type)));
  }
  for (const uint64_t offset : kHostile) {
    if (offset == 0) continue;
    FileBuilder builder;
    builder.Descriptor("w", {8}, 0, offset).data.resize(64);
    EXPECT_THAT(Error(builder.Build()), HasSubstr("tensor 'w'")) << offset;
  }
}

TEST(File, RefusesBadTensorTables) {
  FileBuilder twice;
  EXPECT_THAT(Error(twice.Zeros("w", {8}).Zeros("w", {8}).Build()), HasSubstr("appears twice"));
  FileBuilder overlap;
  overlap.Descriptor("a", {16}, 0, 0).Descriptor("b", {8}, 0, 32).data.resize(64);
  EXPECT_THAT(Error(overlap.Build()), HasSubstr("'a' and 'b' overlap"));
  FileBuilder same;
  same.Descriptor("a", {8}, 0, 0).Descriptor("b", {8}, 0, 0).data.resize(64);
  EXPECT_THAT(Error(same.Build()), HasSubstr("overlap"));
  FileBuilder block;
  block.Descriptor("w", {48}, 2, 0).data.resize(64);
  EXPECT_THAT(Error(block.Build()), HasSubstr("multiple of 32"));
  FileBuilder name;
  EXPECT_THAT(Error(name.Zeros(std::string(65, 'n'), {8}).Build()), HasSubstr("65 bytes"));
  FileBuilder longest;
  EXPECT_EQ(Error(longest.Zeros(std::string(64, 'n'), {8}).Build()), "");
  FileBuilder nameless;
  EXPECT_THAT(Error(nameless.Zeros("", {8}).Build()), HasSubstr("0 bytes"));
}

TEST(File, ChecksTheAlignment) {
  for (const uint64_t alignment : kHostile) {
    FileBuilder builder;
    builder.Entry("general.alignment", ValueType::kU64, Bytes().Put(alignment));
    builder.Zeros("w", {8});
    EXPECT_EQ(File::Parse(builder.Build()).ok(), alignment == 1) << alignment;
  }
  for (const uint32_t alignment : {3u, 24u, 33u}) {
    FileBuilder builder;
    builder.Int("general.alignment", alignment).Zeros("w", {8});
    EXPECT_THAT(Error(builder.Build()), HasSubstr("power of two")) << alignment;
  }
  FileBuilder wide;
  wide.alignment = 256;
  wide.Int("general.alignment", 256).Zeros("w", {8}).Zeros("v", {8});
  const auto file = File::Parse(wide.Build());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->FindTensor("v")->offset % 256, 0u);
}

TEST(File, MessagesAreOneQuotedLine) {
  FileBuilder builder;
  builder.Int(std::string("a\nb\x80", 4), 1).Int(std::string("a\nb\x80", 4), 1);
  EXPECT_THAT(Error(builder.Build()), HasSubstr("'a\\nb\\x80'"));
}

TEST(File, OpensFromDiskAndRefusesOthers) {
  EXPECT_FALSE(File::Open("/nonexistent/x.gguf").ok());
  EXPECT_FALSE(File::Open("/tmp").ok());
  EXPECT_FALSE(File::Open("/dev/null").ok());
}

}  // namespace
}  // namespace cuvil::gguf
