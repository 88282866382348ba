#include "compiler/emit/llvm/code_image.h"

#include <utility>

#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/ExecutionEngine/Orc/ObjectLinkingLayer.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"

namespace cuvil::emit {
namespace {

absl::Status FromLlvm(llvm::Error error, const std::string& what) {
  return absl::InternalError(absl::StrCat(what, ": ", llvm::toString(std::move(error))));
}

class LinkedImage : public CodeImage {
 public:
  LinkedImage(std::unique_ptr<llvm::orc::LLJIT> jit, std::map<std::string, KernelFn> functions,
              size_t bytes)
      : jit_(std::move(jit)), functions_(std::move(functions)), bytes_(bytes) {}
  KernelFn Function(const std::string& symbol) const override {
    const auto it = functions_.find(symbol);
    CUVIL_CHECK(it != functions_.end(), absl::StrCat("no kernel '", symbol, "' in this image"));
    return it->second;
  }
  size_t code_bytes() const override { return bytes_; }

 private:
  std::unique_ptr<llvm::orc::LLJIT> jit_;
  std::map<std::string, KernelFn> functions_;
  size_t bytes_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const CodeImage>> CodeImage::Link(absl::Span<const Object> objects) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  llvm::orc::JITTargetMachineBuilder machine{llvm::Triple("x86_64-unknown-linux-gnu")};
  auto jit = llvm::orc::LLJITBuilder()
                 .setJITTargetMachineBuilder(std::move(machine))
                 .setLinkProcessSymbolsByDefault(false)
                 .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
                 .create();
  if (!jit) return FromLlvm(jit.takeError(), "cannot start the linker");
  size_t bytes = 0;
  for (const Object& object : objects) {
    auto buffer = llvm::MemoryBuffer::getMemBuffer(
        llvm::StringRef(reinterpret_cast<const char*>(object.bytes.data()), object.bytes.size()),
        object.symbol,
        /*RequiresNullTerminator=*/false);
    if (llvm::Error e = (*jit)->addObjectFile(std::move(buffer))) {
      return FromLlvm(std::move(e), absl::StrCat("cannot link kernel '", object.symbol, "'"));
    }
    bytes += object.bytes.size();
  }
  std::map<std::string, KernelFn> functions;
  for (const Object& object : objects) {
    auto address = (*jit)->lookup(object.symbol);
    if (!address)
      return FromLlvm(address.takeError(),
                      absl::StrCat("cannot link kernel '", object.symbol, "'"));
    functions[object.symbol] = address->toPtr<KernelFn>();
  }
  return std::shared_ptr<const CodeImage>(
      std::make_shared<LinkedImage>(std::move(*jit), std::move(functions), bytes));
}

}  // namespace cuvil::emit
