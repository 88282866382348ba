// A compiled model as a folder of its own: what `cuvil compile -o DIR` writes and `cuvil explain
// DIR` reads. Laid out like an entry of the artifact cache (compiler/driver/cache.h: manifest,
// program, objects, every digest), with text beside it for people:
//
//   kernels/00000.kir  llvm/00000.ll  times.json
//
// The entry is the same, byte for byte, whenever the same model is compiled; times.json is not.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "compiler/driver/cache.h"

namespace cuvil::cli {

struct ArtifactFolder {
  std::string key;
  driver::Artifact artifact;
  std::vector<std::string> kernel_ir, llvm_ir;  // written, not read; aligned with the objects
  std::vector<double> compile_s;                // aligned with the objects; empty: not known
};

// Whether WriteArtifactFolder may put an artifact there: nothing, an empty folder or an artifact is
// there now. AlreadyExists otherwise.
absl::Status CheckArtifactPath(const std::string& path);

// Writes all of it under a temporary name beside `path`, then gives it its name, replacing what
// CheckArtifactPath allows to replace.
absl::Status WriteArtifactFolder(const std::string& path, const ArtifactFolder& folder);

// InvalidArgument when the folder is no artifact; DataLoss when a file is not as it was written.
absl::StatusOr<ArtifactFolder> ReadArtifactFolder(const std::string& path);

}  // namespace cuvil::cli
