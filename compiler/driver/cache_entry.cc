#include "compiler/driver/cache_entry.h"

#include <unistd.h>

#include <utility>

#include "base/hash.h"

namespace cuvil::driver {
namespace {

constexpr int kManifestFormat = 1;
constexpr int64_t kManifestBytesMax = 16 << 20;
// Per file and in number: far above any program, small enough to read without thought.
constexpr int64_t kFileBytesMax = 256 << 20;
constexpr size_t kObjectsMax = 1 << 16;
constexpr char kManifest[] = "manifest.json", kDigest[] = "digest";
constexpr char kProgram[] = "program.json", kKey[] = "key.json";

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

std::string ObjectName(size_t index) { return absl::StrFormat("%05d.o", index); }

// Writes a file and returns its manifest line.
absl::StatusOr<Json> WriteListed(int dir, const std::string& name, absl::Span<const uint8_t> data) {
  RETURN_IF_ERROR(WriteFileAt(dir, name, data));
  return Json{{"name", name}, {"bytes", data.size()}, {"sha256", Sha256Hex(data)}};
}

absl::Status Damaged(absl::string_view what) { return absl::DataLossError(what); }

// Reads a file that line `line` of the manifest describes.
absl::StatusOr<std::vector<uint8_t>> ReadListed(int dir, const Json& line,
                                                const std::string& name) {
  if (!line.is_object() || !line.contains("name") || line["name"] != name ||
      !line.contains("bytes") || !line["bytes"].is_number_unsigned() || !line.contains("sha256") ||
      line["bytes"].get<uint64_t>() > static_cast<uint64_t>(kFileBytesMax)) {
    return Damaged(absl::StrCat("its manifest does not describe '", name, "'"));
  }
  ASSIGN_OR_RETURN(std::vector<uint8_t> data,
                   ReadFileAt(dir, name, line["bytes"].get<int64_t>(), kFileBytesMax));
  if (line["sha256"] != Sha256Hex(absl::MakeConstSpan(data))) {
    return Damaged(absl::StrCat("'", name, "' does not have the digest it was written with"));
  }
  return data;
}

std::string Text(const std::vector<uint8_t>& data) { return std::string(data.begin(), data.end()); }

absl::StatusOr<Json> ReadManifest(int dir, std::string_view key) {
  ASSIGN_OR_RETURN(const std::vector<uint8_t> digest, ReadFileAt(dir, kDigest, 64, 64));
  ASSIGN_OR_RETURN(const std::vector<uint8_t> data,
                   ReadFileAt(dir, kManifest, -1, kManifestBytesMax));
  if (Sha256Hex(absl::MakeConstSpan(data)) != Text(digest)) {
    return Damaged("its manifest does not have the digest it was written with");
  }
  absl::StatusOr<Json> manifest = ParseJson(Text(data));
  if (!manifest.ok()) return Damaged(manifest.status().message());
  const Json& m = *manifest;
  if (!m.is_object() || m.value("format", Json()) != kManifestFormat ||
      m.value("key", Json()) != std::string(key)) {
    return Damaged("its manifest belongs to another key or version");
  }
  if (!m.contains("files") || !m["files"].is_array() || !m.contains("symbols") ||
      !m["symbols"].is_array() || m["symbols"].size() > kObjectsMax ||
      m["files"].size() != m["symbols"].size() + 2) {
    return Damaged("its manifest lists the wrong files");
  }
  return manifest;
}

}  // namespace

int64_t ArtifactBytes(const Artifact& artifact) {
  size_t bytes = artifact.program_json.size() + WriteJson(artifact.key_components).size();
  for (const ObjectFile& object : artifact.objects) bytes += object.object.size();
  return static_cast<int64_t>(bytes);
}

absl::Status WriteEntry(int dir, std::string_view key, const Artifact& artifact) {
  Json files = Json::array(), symbols = Json::array();
  const std::string key_json = WriteJson(artifact.key_components, 1);
  ASSIGN_OR_RETURN(files.emplace_back(), WriteListed(dir, kProgram, Bytes(artifact.program_json)));
  ASSIGN_OR_RETURN(files.emplace_back(), WriteListed(dir, kKey, Bytes(key_json)));
  for (size_t i = 0; i < artifact.objects.size(); ++i) {
    const ObjectFile& object = artifact.objects[i];
    symbols.push_back(object.symbol);
    ASSIGN_OR_RETURN(files.emplace_back(), WriteListed(dir, ObjectName(i), object.object));
  }
  const std::string manifest = WriteJson({{"format", kManifestFormat},
                                          {"key", std::string(key)},
                                          {"files", std::move(files)},
                                          {"symbols", std::move(symbols)}},
                                         1);
  RETURN_IF_ERROR(WriteFileAt(dir, kManifest, Bytes(manifest)));
  RETURN_IF_ERROR(WriteFileAt(dir, kDigest, Bytes(Sha256Hex(std::string_view(manifest)))));
  if (fsync(dir) != 0) return ErrnoStatus("cannot flush entry", std::string(key));
  return absl::OkStatus();
}

absl::StatusOr<Artifact> ReadEntry(int dir, std::string_view key,
                                   const ArtifactCache::OnProgram& on_program) {
  ASSIGN_OR_RETURN(const Json manifest, ReadManifest(dir, key));
  const Json &files = manifest["files"], &symbols = manifest["symbols"];
  Artifact artifact;
  ASSIGN_OR_RETURN(const std::vector<uint8_t> program, ReadListed(dir, files[0], kProgram));
  artifact.program_json = Text(program);
  if (on_program) RETURN_IF_ERROR(on_program(artifact.program_json));
  ASSIGN_OR_RETURN(const std::vector<uint8_t> components, ReadListed(dir, files[1], kKey));
  absl::StatusOr<Json> parsed = ParseJson(Text(components));
  if (!parsed.ok()) return Damaged(parsed.status().message());
  artifact.key_components = *std::move(parsed);
  for (size_t i = 0; i < symbols.size(); ++i) {
    if (!symbols[i].is_string()) return Damaged("its manifest lists a symbol that is no text");
    ASSIGN_OR_RETURN(std::vector<uint8_t> object, ReadListed(dir, files[i + 2], ObjectName(i)));
    artifact.objects.push_back({symbols[i].get<std::string>(), std::move(object)});
  }
  return artifact;
}

}  // namespace cuvil::driver
