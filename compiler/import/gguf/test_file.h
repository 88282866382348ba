// Hand-built GGUF bytes for tests: every field can be set to anything, so hostile files are easy.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "compiler/import/gguf/value.h"

namespace cuvil::gguf {

// Appends little-endian fields to a string.
class Bytes {
 public:
  template <typename T>
  Bytes& Put(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    data_.append(raw, sizeof(T));
    return *this;
  }
  Bytes& Raw(std::string_view text) {
    data_ += text;
    return *this;
  }
  Bytes& Str(std::string_view text) { return Put<uint64_t>(text.size()).Raw(text); }
  Bytes& Type(ValueType type) { return Put(static_cast<uint32_t>(type)); }
  std::string data_;
};

// A file under construction. Fields that are normally derived can be overridden.
struct FileBuilder {
  uint32_t version = 3;
  std::vector<std::string> entries;           // encoded key, type and value
  std::vector<std::string> tensors;           // encoded descriptors
  uint64_t alignment = 32;                    // used for padding only
  std::string data;                           // the tensor data section
  int64_t tensor_count = -1, key_count = -1;  // -1: the real counts

  FileBuilder& Entry(std::string_view key, ValueType type, const Bytes& value) {
    entries.push_back(Bytes().Str(key).Type(type).Raw(value.data_).data_);
    return *this;
  }
  FileBuilder& Int(std::string_view key, uint32_t value) {
    return Entry(key, ValueType::kU32, Bytes().Put(value));
  }
  FileBuilder& Float(std::string_view key, float value) {
    return Entry(key, ValueType::kF32, Bytes().Put(value));
  }
  FileBuilder& Bool(std::string_view key, bool value) {
    return Entry(key, ValueType::kBool, Bytes().Put<uint8_t>(value));
  }
  FileBuilder& Text(std::string_view key, std::string_view value) {
    return Entry(key, ValueType::kString, Bytes().Str(value));
  }
  FileBuilder& Texts(std::string_view key, const std::vector<std::string>& values) {
    Bytes array;
    array.Type(ValueType::kString).Put<uint64_t>(values.size());
    for (const std::string& value : values) array.Str(value);
    return Entry(key, ValueType::kArray, array);
  }
  template <typename T>
  FileBuilder& Numbers(std::string_view key, ValueType element, const std::vector<T>& values) {
    Bytes array;
    array.Type(element).Put<uint64_t>(values.size());
    for (const T value : values) array.Put(value);
    return Entry(key, ValueType::kArray, array);
  }
  // Dims innermost first; type and offset as stored. The caller fills `data`.
  FileBuilder& Descriptor(std::string_view name, const std::vector<uint64_t>& dims, uint32_t type,
                          uint64_t offset) {
    Bytes bytes;
    bytes.Str(name).Put(static_cast<uint32_t>(dims.size()));
    for (const uint64_t dim : dims) bytes.Put(dim);
    tensors.push_back(bytes.Put(type).Put(offset).data_);
    return *this;
  }
  // An F32 tensor of zeros at the next free offset.
  FileBuilder& Zeros(std::string_view name, const std::vector<uint64_t>& dims) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    uint64_t elements = 1;
    for (const uint64_t dim : dims) elements *= dim;
    Descriptor(name, dims, 0, data.size());
    data.resize(data.size() + 4 * elements);
    return *this;
  }
  std::string Build() const {
    Bytes out;
    out.Raw("GGUF").Put(version);
    out.Put<uint64_t>(tensor_count < 0 ? tensors.size() : tensor_count);
    out.Put<uint64_t>(key_count < 0 ? entries.size() : key_count);
    for (const std::string& entry : entries) out.Raw(entry);
    for (const std::string& tensor : tensors) out.Raw(tensor);
    if (!tensors.empty()) {
      out.data_.resize((out.data_.size() + alignment - 1) / alignment * alignment);
    }
    return out.Raw(data).data_;
  }
};

}  // namespace cuvil::gguf
